#include "session/session.h"

#include <algorithm>

#include "base/text.h"
#include "device/tensor_memory.h"
#include "samples/step_metrics.h"
#include "session/call_balance.h"
#include "weights/memory_report.h"

namespace braid::inline session {

StepContext Session::context() {
  return {config_, program_,  exchange_, store_, rows_,  *models_,
          work_,   position_, record_,   talk_,  reader_};
}

Status Session::execute(const Instruction& instruction) {
  if (!calls_.timeline.on()) return act(instruction);
  const PeakMeter meter(device_);
  BRAID_TRY(act(instruction));
  const OpKind kind = instruction.kind;
  const bool passes = kind == OpKind::kPasses || kind == OpKind::kRound || kind == OpKind::kCall;
  calls_.timeline.hold(passes ? "activations" : "other",
                       meter.most_bytes() - std::max<int64_t>(0, meter.kept_bytes()));
  if (kind == OpKind::kRound) calls_.timeline.hold("KV cache", calls_.generation.cache_bytes());
  return ok_status();
}

void Session::note_memory() {
  if (!calls_.timeline.on()) return;
  const MemoryUseOfRank use = memory_use(*models_, 0);
  for (const auto& [owner, bytes] : use.weights) calls_.timeline.hold(owner, bytes);
  calls_.timeline.hold("gradients", use.gradients);
  calls_.timeline.hold("optimizer", use.optimizer);
  calls_.timeline.hold("samples", store_.bytes());
}

bool Session::has_work(const Instruction& instruction) const {
  const OpKind kind = instruction.kind;
  // Weights come and go in every turn.
  if (kind == OpKind::kReallocate || kind == OpKind::kRelease || moves_state(kind)) return true;
  if (!moves_fields(kind)) return has_samples(turn_, step_.call(instruction.call));
  const Exchange& fields = program_.exchanges[instruction.detail];
  return has_samples(turn_, step_.call(fields.samples_of()));
}

Status Session::act(const Instruction& instruction) {
  if (!has_work(instruction)) return ok_status();
  const Call& call = step_.call(instruction.call);
  const bool generates = call.kind == CallKind::kGenerate;
  switch (instruction.kind) {
    case OpKind::kCall:
      return run_call(call, instruction.part);
    case OpKind::kRegionBegin:
      return begin_region(call, instruction.part);
    case OpKind::kRegionEnd:
      return end_region(call, instruction.part);
    case OpKind::kTally:
      return calls_.hand_over.tally(instruction.call);
    case OpKind::kHandOver:
      return calls_.hand_over.hand_over(instruction.call);
    case OpKind::kRound:
      return calls_.generates.round(call);
    case OpKind::kPasses:
      return instruction.detail < 0 ? calls_.trains.run_passes(call)
                                    : calls_.trains.run_fused(program_.fused[instruction.detail]);
    case OpKind::kReduce:
      return calls_.trains.reduce(instruction.call);
    case OpKind::kAgree:
      return generates ? calls_.generates.agree(call) : calls_.trains.agree(call);
    case OpKind::kUpdate:
      return calls_.trains.update(call);
    case OpKind::kAllGather:
      return calls_.trains.gather(instruction.call);
    case OpKind::kRepeat:
      calls_.selects.give();
      return ok_status();
    case OpKind::kShare:
      return share(instruction.detail);
    case OpKind::kExchange:
      return calls_.account.begin_exchange(instruction.detail, position_.step);
    case OpKind::kReallocate:
    case OpKind::kLoad:
    case OpKind::kOffload:
    case OpKind::kRelease:
      return calls_.weights.execute(instruction);
    default:
      break;
  }
  BRAID_CHECK(false, cat(op_kind_name(instruction.kind), " is no instruction of a list"));
}

Status Session::begin_ahead(const Instruction& instruction) {
  return calls_.weights.begin_ahead(instruction);
}

Status Session::wait_for(const Instruction& instruction) {
  return calls_.place.waiting([&] {
    return instruction.kind == OpKind::kExchange ? exchange_.arrive(instruction.detail)
                                                 : calls_.weights.wait_for(instruction);
  });
}

Status Session::share(int32_t entry) {
  const Exchange& shared = program_.exchanges[entry];
  const Call& call = step_.call(shared.producer);
  if (call.carried_steps > 0) BRAID_TRY(calls_.carried->settle());
  calls_.samples.account(call).note_shared(entry, position_.step);
  if (call.kind == CallKind::kFetch) return calls_.fetches.share(call);
  if (call.kind == CallKind::kReward) return calls_.rewards.share(shared);
  if (call.kind == CallKind::kCompute) return calls_.computes.share(shared);
  return calls_.generates.share(shared);
}

Status Session::run_call(const Call& call, SamplePart part) {
  BRAID_TRY(calls_.fetches.read_for(call, part));
  BRAID_TRY(execute_call(call, part));
  if (part == SamplePart::kAll) balance(call);
  calls_.weights.leave(call);
  return ok_status();
}

void Session::balance(const Call& call) {
  note_balance(step_, call, calls_.samples.rows(call), calls_.samples.store(call));
}

Status Session::execute_call(const Call& call, SamplePart part) {
  switch (call.kind) {
    case CallKind::kFetch:
      return calls_.fetches.fetch(call);
    case CallKind::kInfer:
      return calls_.rewards.infer(call, part);
    case CallKind::kReward:
      return calls_.rewards.reward(call, part);
    case CallKind::kCompute:
      return talk_.until_told(guarded([&] { return calls_.computes.compute(call, part); }));
    case CallKind::kFollow:
      return calls_.weights.follow(call);
    case CallKind::kSelect:
      return calls_.selects.select();
    case CallKind::kGenerate:
    case CallKind::kTrainStep:
      break;
  }
  BRAID_CHECK(false, "call " + call.name + " must be a region");
}

Status Session::begin_region(const Call& call, SamplePart part) {
  const bool trains = call.kind == CallKind::kTrainStep;
  const bool goes_on = part != SamplePart::kAll && part != SamplePart::kEarly;
  if (goes_on && !trains) return ok_status();
  BRAID_TRY(calls_.fetches.read_for(call, part));
  if (goes_on) return calls_.trains.go_on(call, part);
  return trains ? calls_.trains.begin(call, part) : calls_.generates.begin(call);
}

bool Session::region_done(const Instruction& end) const {
  if (!has_work(end)) return true;
  if (end.exit == ExitCondition::kFilled) return calls_.selects.filled();
  if (end.exit == ExitCondition::kFewLeft) return calls_.hand_over.few_left();
  const bool generates = step_.call(end.call).kind == CallKind::kGenerate;
  return generates ? calls_.generates.done(end.exit) : calls_.trains.done(end.call);
}

Status Session::end_region(const Call& call, SamplePart part) {
  if (part != parts_of_call(program_, step_.id_of(call)).back()) return ok_status();
  if (call.kind == CallKind::kGenerate) {
    BRAID_TRY(calls_.generates.end(call));
  } else {
    models_->note_training(call.role);
    balance(call);
  }
  calls_.weights.leave(call);
  return ok_status();
}

Result<std::vector<Json>> Session::sample_rows(size_t count) {
  Rows first = store_.all_rows();
  first.resize(std::min(count, first.size()));
  BRAID_TRY(reader_.read(first, store_).at("data.train"));
  return braid::sample_rows(store_, data_.tokenizer_or_null(), config_.rollout.stop,
                            position_.step - 1, count);
}

}  // namespace braid::inline session
