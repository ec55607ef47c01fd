// The work of every micro-batch of a call under a strategy, as program/partition.h partitions the
// samples. Keeps what strategies have in common. Not thread-safe.
#pragma once

#include <map>
#include <vector>

#include "program/partition.h"
#include "sim/call_cost.h"
#include "sim/simulate.h"

namespace braid::inline sim {

// The samples of a call, and how they are partitioned. Later epochs are simulated with the
// mini-batches of the first.
std::vector<PartitionSample> partition_input(const PlanningProblem& problem,
                                             const SampleLengths& lengths, const Call& call);
PartitionOptions partition_options(const PlanningProblem& problem, const Call& call);

class WorkCuts {
 public:
  using RankBatches = std::vector<std::vector<MicroBatch>>;  // [dp rank]

  // `problem` must outlive the object.
  WorkCuts(const PlanningProblem& problem, SampleLengths lengths)
      : problem_(&problem), lengths_(std::move(lengths)) {}

  // The micro-batches of a call's mini-batch. REQUIRES: models that stay where they are.
  const RankBatches& micro_batches(const Call& call, const CallCost& cost, int64_t minibatch);

 private:
  // What is partitioned: calls of equal key partition the same samples.
  struct StepKey {
    int64_t samples = 0;
    bool trains = false;
    friend auto operator<=>(const StepKey&, const StepKey&) = default;
  };
  struct ShareKey {
    StepKey step;
    int64_t minibatch = 0;
    int dp = 1;
    bool in_order = false;
    friend auto operator<=>(const ShareKey&, const ShareKey&) = default;
  };
  // Whatever else a strategy says cuts the shares in the same way.
  struct BatchKey {
    ShareKey share;
    int64_t micro_tokens = 0, micro_batches = 1;
    int whole_groups = 1;        // their number is a multiple of this
    bool equal_numbers = false;  // on all ranks
    int cp = 1, pp = 1;          // pp: where prompts are shared
    const RoleModel* model = nullptr;
    friend auto operator<=>(const BatchKey&, const BatchKey&) = default;
  };
  struct Step {
    PartitionOptions options;
    std::vector<PartitionSample> samples;
    std::vector<SampleRows> minibatches;
  };
  const Step& step(const Call& call, const StepKey& key);
  const std::vector<SampleRows>& shares(const Step& step, const ShareKey& key,
                                        const Strategy& strategy);

  const PlanningProblem* problem_;
  SampleLengths lengths_;
  std::map<StepKey, Step> steps_;
  std::map<ShareKey, std::vector<SampleRows>> shares_;
  std::map<BatchKey, RankBatches> batches_;
  size_t kept_ = 0;  // micro-batches
};

}  // namespace braid::inline sim
