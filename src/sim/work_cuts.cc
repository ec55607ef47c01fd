#include "sim/work_cuts.h"

#include <algorithm>

#include "program/partition_options.h"

namespace braid::inline sim {
namespace {

constexpr size_t kMostKept = size_t{1} << 20;  // micro-batches: 16 MiB

}  // namespace

std::vector<PartitionSample> partition_input(const PlanningProblem& problem,
                                             const SampleLengths& lengths, const Call& call) {
  const int64_t samples = call_samples(problem, call);
  const auto all = static_cast<int64_t>(lengths.prompt.size());
  const int64_t each = std::max<int64_t>(1, problem.workload.samples_per_prompt);
  std::vector<PartitionSample> out;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t sample = i * all / samples;
    out.push_back({SampleId{sample}, GroupId{sample / each}, lengths.prompt[sample],
                   lengths.response[sample], true});
  }
  return out;
}

PartitionOptions partition_options(const PlanningProblem& problem, const Call& call) {
  return partition_options(problem.graph, call,
                           {.seed = 0,
                            .step = 0,
                            .epochs = 1,
                            .minibatches = std::max<int64_t>(1, problem.workload.minibatches),
                            .share_prompts = problem.workload.share_prompts,
                            .train_engine = problem.train_engine});
}

const WorkCuts::Step& WorkCuts::step(const Call& call, const StepKey& key) {
  const auto found = steps_.find(key);
  if (found != steps_.end()) return found->second;
  Step out{partition_options(*problem_, call), partition_input(*problem_, lengths_, call), {}};
  out.minibatches = partition_minibatches(out.samples, out.options);
  return steps_.emplace(key, std::move(out)).first->second;
}

const std::vector<SampleRows>& WorkCuts::shares(const Step& step, const ShareKey& key,
                                                const Strategy& strategy) {
  const auto found = shares_.find(key);
  if (found != shares_.end()) return found->second;
  const SampleRows& rows = step.minibatches[key.minibatch];
  return shares_.emplace(key, partition_over_ranks(rows, step.samples, strategy, step.options))
      .first->second;
}

const WorkCuts::RankBatches& WorkCuts::micro_batches(const Call& call, const CallCost& cost,
                                                     int64_t minibatch) {
  const Strategy& s = cost.strategy();
  const StepKey of_step{call_samples(*problem_, call), call.kind == CallKind::kTrainStep};
  const ShareKey of_share{of_step, minibatch, s.dp, s.in_order};
  const bool share_prompts = problem_->workload.share_prompts;
  const BatchKey key{of_share,
                     s.micro_tokens,
                     s.micro_batches,
                     s.interleave > 1 ? s.pp : 1,
                     passes_meet(s, of_step.trains),
                     s.cp,
                     share_prompts ? s.pp : 1,
                     &cost.model()};
  const auto found = batches_.find(key);
  if (found != batches_.end()) return found->second;
  const Step& cut = step(call, of_step);
  RankBatches out(s.dp);
  if (minibatch < static_cast<int64_t>(cut.minibatches.size())) {
    const auto ranks = cut_shares(shares(cut, of_share, s), cut.samples, s, cut.options);
    for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank)
      for (const SampleRows& rows : ranks[dp_rank])
        out[dp_rank].push_back(cost.micro_batch(packed_lengths(rows, cut.samples, share_prompts)));
  }
  for (const auto& batches : out) kept_ += batches.size();
  if (kept_ > kMostKept) batches_.clear(), kept_ = 0;
  return batches_.emplace(key, std::move(out)).first->second;
}

}  // namespace braid::inline sim
