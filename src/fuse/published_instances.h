// The twelve problems on which RLHFuse's authors publish the results of their schedule search
// (Zhong et al., arXiv 2409.13221, public solver): numbers to compare with. Constants.
#pragma once

#include <array>

#include "schedule/pipelines.h"

namespace braid::inline fuse {

struct PublishedInstance {
  const char* name;
  const char* models;  // large / small
  int32_t stages_large, stages_small;
  int32_t micro_batches_large, micro_batches_small;
  double forward_large, forward_small;  // a backward takes twice that
  double memory_large, memory_small;
  // The authors' results.
  double greedy_makespan, greedy_peak;
  double makespan;
  double peak;  // after their memory optimizer
  double bound;
  double wall_s;  // on at least 512 processor cores
};

const std::array<PublishedInstance, 12>& published_instances();

// The large model's stage s lies on node s; each copy of the small one fills as many nodes as it
// has stages, in the opposite direction.
PipelineProblem problem_of(const PublishedInstance& instance);

}  // namespace braid::inline fuse
