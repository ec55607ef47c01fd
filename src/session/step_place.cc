#include "session/step_place.h"

#include "base/text.h"

namespace braid::inline session {

const Call& StepPlace::call() const {
  return step_.call(step_.program.ranks[step_.rank()].instructions[instruction_].call);
}

void StepPlace::come_to(size_t instruction) {
  instruction_ = instruction;
  const OpKind kind = step_.program.ranks[step_.rank()].instructions[instruction].kind;
  step_.talk.note(cat("step ", step_.position.step + 1, ", call ", call().name),
                  cat("instruction ", instruction, " (", op_kind_name(kind), ")"));
  timeline_.enter(instruction);
}

Status StepPlace::within(const char* what, const std::function<Status()>& act) {
  step_.talk.note(cat("step ", step_.position.step + 1, ", call ", call().name), what);
  BRAID_TRY(act());
  come_to(instruction_);
  return ok_status();
}

Status StepPlace::waiting(const std::function<Status()>& wait) {
  timeline_.enter(instruction_, true);
  BRAID_TRY(wait());
  timeline_.enter(instruction_);
  return ok_status();
}

}  // namespace braid::inline session
