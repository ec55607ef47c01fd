// Where a rank is in its list, for those who watch it and for the record of the step. Not
// thread-safe.
#pragma once

#include <functional>

#include "session/step_context.h"
#include "session/step_timeline.h"

namespace braid::inline session {

class StepPlace {
 public:
  // REQUIRES: both outlive this.
  StepPlace(const StepContext& step, StepTimeline& timeline) : step_(step), timeline_(timeline) {}

  // The rank has come to this instruction of its list.
  void come_to(size_t instruction);
  // It does something there that watchers know by a name of its own.
  Status within(const char* what, const std::function<Status()>& act);
  // It waits there for what has to have come.
  Status waiting(const std::function<Status()>& wait);

 private:
  const Call& call() const;

  const StepContext& step_;
  StepTimeline& timeline_;
  size_t instruction_ = 0;
};

}  // namespace braid::inline session
