#include "sim/call_memory.h"

#include <algorithm>
#include <cmath>

#include "batching/cache_pages.h"

namespace braid::inline sim {

const CallMeter::Largest& CallMeter::largest(const Call& call, const CallCost& cost,
                                             int64_t parts) {
  const Strategy& s = cost.strategy();
  const int64_t samples = call_samples(*problem_, call);
  // Only interleaving and shared prompts look at the stages.
  const CutKey key{s.dp,
                   s.cp,
                   s.interleave > 1 || problem_->workload.share_prompts ? s.pp : 1,
                   s.interleave,
                   s.micro_batches,
                   s.micro_tokens,
                   samples,
                   parts,
                   s.in_order};
  const auto found = largest_.find(key);
  if (found != largest_.end()) return found->second;
  Largest out;
  for (int64_t part = 0; part < parts; ++part)
    for (const auto& batches : cuts_.micro_batches(call, cost, part)) {
      out.micro_batches = std::max(out.micro_batches, static_cast<int64_t>(batches.size()));
      for (const MicroBatch& batch : batches)
        if (batch.tokens > out.batch.tokens) out.batch = batch;
    }
  return largest_.emplace(key, out).first->second;
}

int64_t CallMeter::parts_of(const Call& call) const {
  return call.kind == CallKind::kTrainStep ? std::max<int64_t>(1, problem_->workload.minibatches)
                                           : 1;
}

// The most that the passes of a stage hold at once.
double CallMeter::pass_bytes(const Call& call, const CallCost& cost, int stage) {
  const Strategy& s = cost.strategy();
  const bool trains = call.kind == CallKind::kTrainStep;
  const Largest& most = largest(call, cost, parts_of(call));
  // Where backwards begin before all forwards are done, twice as many micro-batches as stages fill
  // every pipeline.
  const bool keeps_all = trains && s.schedule == PipelineOrder::kAllForwardFirst;
  const int64_t filling = keeps_all ? most.micro_batches : 2 * int64_t{s.pp};
  const Schedule schedule =
      schedule_of(s, call.kind, std::min<int64_t>(most.micro_batches, filling));
  const double working = cost.working_bytes(most.batch);
  double kept = 0, peak = 0;
  for (const ScheduleOp& op : schedule.per_stage[stage]) {
    const int part = op.chunk * s.pp + stage;
    const bool forward = op.kind == ScheduleOp::Kind::kForward;
    const double of_part = trains ? cost.activation_bytes(most.batch, part) : 0;
    if (forward) kept += of_part;
    const double logits = part == cost.parts() - 1 ? cost.logit_bytes(most.batch) : 0;
    peak = std::max(peak, kept + working + logits);
    if (!forward) kept -= of_part;
  }
  return peak;
}

double CallMeter::cache_bytes(const Call& call, const CallCost& cost, CallTimer& timer) const {
  const Strategy& s = cost.strategy();
  const int64_t pages = std::max(reserved_pages(*problem_, s), timer.rounds(call, s).pages);
  double bytes = static_cast<double>(pages * kPageTokens) * cost.cache_bytes_per_token();
  // The allocator's reserve, which capacities of the evaluator leave out, is not on a pool.
  if (problem_->reserves_cache) bytes /= std::sqrt(cost.device().efficiency.mem_reserve_factor);
  // Without a budget the engine takes its share of what memory leaves.
  return s.kv_budget_tokens > 0 ? bytes : bytes / kShareForCache;
}

CallMemory CallMeter::memory(const Call& call, const CallCost& cost, CallTimer& timer) {
  const Strategy& s = cost.strategy();
  const bool generates = call.kind == CallKind::kGenerate;
  const bool trains = call.kind == CallKind::kTrainStep;
  const double cache = generates ? cache_bytes(call, cost, timer) : 0;
  const auto prefill =
      static_cast<double>(engine_batch_tokens(*problem_, SimOptions().generate_batch_tokens));
  const bool several =
      generates || (cost.packs() && largest(call, cost, parts_of(call)).micro_batches > 1);
  CallMemory fullest;
  for (int stage = 0; stage < s.pp; ++stage) {
    CallMemory now;
    now.weights = cost.weight_bytes(mesh_index(s, {0, 0, stage}));
    now.transient =
        cost.gathered_bytes(stage) + cost.packed_bytes(mesh_index(s, {0, 0, stage}), several);
    if (trains) {
      now.optimizer = cost.optimizer_bytes(stage);
      now.transient += cost.gradient_bytes(stage);
    }
    now.transient +=
        generates ? cost.prefill_bytes(prefill) + cache : pass_bytes(call, cost, stage);
    if (now.total() > fullest.total()) fullest = now;
  }
  return fullest;
}

}  // namespace braid::inline sim
