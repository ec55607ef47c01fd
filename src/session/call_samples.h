// The samples that the calls of a list work on: those of the step, or, of calls that work ahead, of
// a later one (session/steps_ahead.h).
#pragma once

#include "samples/field_account.h"
#include "session/step_context.h"
#include "session/steps_ahead.h"

namespace braid::inline session {

class CallSamples {
 public:
  // `account`: of the step's; `ahead`: null where no call works ahead. REQUIRES: all outlive this.
  CallSamples(const StepContext& step, FieldAccount& account, StepsAhead* ahead)
      : step_(step), account_(account), ahead_(ahead) {}

  SampleStore& store(const Call& call) const { return ahead(call) ? ahead_->store() : step_.store; }
  CallRows& rows(const Call& call) const { return ahead(call) ? ahead_->rows() : step_.rows; }
  FieldAccount& account(const Call& call) const {
    return ahead(call) ? ahead_->account() : account_;
  }
  FieldExchange& exchange(const Call& call) const {
    return ahead(call) ? ahead_->exchange() : step_.exchange;
  }
  // So many steps are complete before the one that learns from them.
  int64_t learning_step(const Call& call) const {
    return step_.position.step + (ahead(call) ? ahead_->waiting() : 0);
  }
  // Of the step that learns from them.
  Metrics& metrics(const Call& call) const {
    return ahead(call) ? ahead_->metrics() : step_.record.metrics;
  }
  static bool ahead(const Call& call) { return call.steps_ahead > 0; }

 private:
  const StepContext& step_;
  FieldAccount& account_;
  StepsAhead* const ahead_;
};

}  // namespace braid::inline session
