// What brings weights and state to where calls need them and lets them go, and the roles whose
// weights follow another's. Not thread-safe.
#pragma once

#include "session/step_place.h"

namespace braid::inline session {

class WeightCalls {
 public:
  // REQUIRES: both outlive this.
  WeightCalls(const StepContext& step, StepPlace& place) : step_(step), place_(place) {}

  void begin_step() { followed_ = false; }
  // Whether a role has moved in the step.
  bool followed() const { return followed_; }

  // A reallocation, a load, an offload or a release.
  Status execute(const Instruction& instruction);
  // A reallocation or a load begins before its place.
  Status begin_ahead(const Instruction& instruction);
  // A reallocation has ended when this returns.
  Status wait_for(const Instruction& instruction);
  // A follow call.
  Status follow(const Call& call);
  // What a call's models held beside their weights goes back to the machine.
  void leave(const Call& call) const;

 private:
  // Whether a call does anything in this step.
  bool due(const Call& call) const { return (step_.position.step + 1) % call.every_steps == 0; }
  Status begin_load(const Instruction& load);

  const StepContext& step_;
  StepPlace& place_;
  bool followed_ = false;
};

}  // namespace braid::inline session
