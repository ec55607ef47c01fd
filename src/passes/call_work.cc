#include "passes/call_work.h"

#include "passes/replica_round.h"
#include "program/scored_prefixes.h"

namespace braid::inline passes {
namespace {

Inferred inferred_of(const Call& call) {
  if (call.kind == CallKind::kReward || call.function == "scores") return Inferred::kScores;
  return call.function == "logprobs" ? Inferred::kLogprobs : Inferred::kValues;
}

}  // namespace

Result<Expansion> CallWork::ops_of(const CallFrame& frame, const Partition& partition,
                                   bool fused) const {
  return verified_ops(frame, self(), partition,
                      change_ ? nullptr : &verified_[{frame.call, fused, frame.early}], change_);
}

Result<TrainWork> CallWork::training(CallId call, const Partition& partition) const {
  models_.await(call);
  TrainWork work;
  work.role = &models_.roles().at(program_.graph.calls[call.value].role.value);
  work.partition = &partition;
  work.frame = rows_.frame(call);
  work.fused = work.frame.fused != nullptr;
  work.second = work.fused && work.frame.of_pair > 0;
  BRAID_ASSIGN(work.ops, ops_of(work.frame, partition, work.fused));
  if (everyone_ != nullptr) work.groups = models_.groups(call);
  work.everyone = everyone_;
  work.needs = &needs_[call];
  work.keeps_packed = rows_.lowered().count(call.value) == 0;
  return work;
}

Result<InferWork> CallWork::inference(CallId call, const Partition& partition,
                                      SamplePart part) const {
  InferWork work;
  work.call = &program_.graph.calls[call.value];
  work.model = &models_.model(call);
  work.what = inferred_of(*work.call);
  const auto role = models_.roles().find(work.call->role.value);
  work.sums_gradients = role != models_.roles().end() && role->second.model.get() == work.model &&
                        role->second.gradients;
  work.partition = &partition;
  work.frame = rows_.frame(call);
  work.frame.early = begins_apart(program_, call, part);
  work.part = prefix_part(program_, call, part);
  work.prefixes = rows_.prefixes(call, part);
  BRAID_ASSIGN(work.ops, ops_of(work.frame, partition, false));
  work.everyone = everyone_;
  work.needs = &needs_[call];
  work.keeps_packed = rows_.lowered().count(call.value) == 0;
  if (everyone_ == nullptr) return work;
  const CallGroups& groups = models_.groups(call);
  work.weights = groups.weights;
  if (const auto over = ends_alike(work.frame))
    work.agrees = *over == GroupKind::kCall ? groups.call : groups.replica;
  return work;
}

// A layout as a generation has it: over caches every rank has all rows, and lists have no gathers.
CallFrame CallWork::generating(CallId call) const {
  const CallFrame frame = rows_.frame(call);
  if (frame.kind == CallKind::kGenerate) return frame;
  CallPlacement& where = generating_[call];
  where = *frame.where;
  where.strategy.sequence_parallel = false;
  where.strategy.zero_stage = 0, where.strategy.zero_ranks = 0;
  return {call, CallKind::kGenerate, &where, frame.model};
}

Result<std::unique_ptr<EngineRanks>> CallWork::generation(CallId call) const {
  if (everyone_ == nullptr) return std::unique_ptr<EngineRanks>();
  const CallGroups& groups = models_.groups(call);
  if (groups.replica == nullptr && groups.weights == nullptr) return std::unique_ptr<EngineRanks>();
  const CallFrame frame = generating(call);
  // Ops of all rounds are alike: one look at them.
  if (verified_rounds_.insert(call).second && !change_)
    BRAID_TRY(verify_round_of(frame, self(), {1, 2, true, {1, 2}}));
  return std::unique_ptr<EngineRanks>(
      ReplicaRound::create(frame, self(), groups, *everyone_, change_));
}

}  // namespace braid::inline passes
