// The calls that decide which samples a step learns from: groups with a signal are set aside, draw
// after draw, until they are as many as a step takes (algorithm.dynamic_sampling). All ranks find
// the same. Not thread-safe.
#pragma once

#include "samples/drawn_groups.h"
#include "session/step_context.h"

namespace braid::inline session {

class SelectCalls {
 public:
  // REQUIRES: `step` outlives this.
  explicit SelectCalls(const StepContext& step) : step_(step) {}

  void begin_step() { drawn_.begin(); }
  // Sets aside what the samples at hand have of groups with a signal. Errors: the last draw leaves
  // too few (kStopped), on all ranks.
  Status select();
  // Whether nothing more is to be drawn.
  bool filled() const;
  // The groups set aside become the samples of the step. REQUIRES: filled().
  void give();

 private:
  void note(int64_t groups, int64_t with_signal);
  Status too_few_groups() const;

  const StepContext& step_;
  DrawnGroups drawn_;
};

}  // namespace braid::inline session
