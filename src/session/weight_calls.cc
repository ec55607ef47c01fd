#include "session/weight_calls.h"

#include "base/text.h"
#include "host/machine.h"
#include "host/work_section.h"

namespace braid::inline session {
namespace {

constexpr const char* kMoves = "moving weights";  // for watchers of the rank

}  // namespace

Status WeightCalls::begin_load(const Instruction& load) {
  const WorkSection section;
  step_.models.begin_load(load.detail, load.layers);
  return ok_status();
}

Status WeightCalls::execute(const Instruction& instruction) {
  if (instruction.kind == OpKind::kLoad) return begin_load(instruction);
  if (instruction.kind == OpKind::kReallocate) {
    if (!due(step_.call(instruction.call))) return ok_status();
    return place_.within(kMoves, [&] { return step_.models.reallocate(instruction.detail); });
  }
  if (instruction.kind == OpKind::kRelease) {
    step_.models.release(instruction.detail);
    return ok_status();
  }
  BRAID_CHECK(instruction.kind == OpKind::kOffload,
              cat(op_kind_name(instruction.kind), " moves no weights"));
  const WorkSection section;
  step_.models.offload(instruction.detail);
  return ok_status();
}

Status WeightCalls::begin_ahead(const Instruction& instruction) {
  if (instruction.kind == OpKind::kLoad) return begin_load(instruction);
  if (!due(step_.call(instruction.call))) return ok_status();
  return step_.models.begin_reallocation(instruction.detail);
}

Status WeightCalls::wait_for(const Instruction& instruction) {
  if (!due(step_.call(instruction.call))) return ok_status();
  return place_.within(kMoves, [&] { return step_.models.reallocated(instruction.detail); });
}

Status WeightCalls::follow(const Call& call) {
  if (!due(call)) return ok_status();
  const WorkSection section;
  followed_ = true;
  return step_.models.follow(step_.id_of(call), step_.config.reference.ema);
}

void WeightCalls::leave(const Call& call) const {
  if (step_.models.saves_memory() && uses_model(call)) release_free_heap();
}

}  // namespace braid::inline session
