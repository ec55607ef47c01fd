// The search for fused pipeline schedules: numbered work units, so that the result is a function of
// (problem, seed, objective, units completed) whatever the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "optimize/units.h"
#include "schedule/pipelines.h"

namespace braid::inline fuse {

enum class FuseObjective {
  kLatency,  // the least makespan; ends when a bound proves it
  kMemory,   // the least peak memory at the best makespan found
};

// A unit that found a better schedule than all units before it.
struct FuseImprovement {
  int64_t unit = 0;  // -1: a schedule that is known before the search
  double elapsed_s = 0;
  double makespan = 0;
  double peak_memory = 0;
};

struct FuseOptions {
  FuseObjective objective = FuseObjective::kLatency;
  uint64_t seed = 1;
  optimize::UnitOptions units;  // threads, limits, clock
  // Called with each improvement, as soon as it is known; never concurrently with the units' stop.
  std::function<void(const FuseImprovement&)> improved;
};

struct FuseResult {
  PipelineTimeline timeline;  // passes verify
  double makespan = 0;
  double lower_bound = 0;
  double peak_memory = 0;  // highest of all nodes
  bool optimal = false;    // makespan is the lower bound's
  int64_t units = 0;
  std::vector<FuseImprovement> log;
};

// Errors: what check_problem finds.
Result<FuseResult> fuse_pipelines(const PipelineProblem& problem, const FuseOptions& options);

}  // namespace braid::inline fuse
