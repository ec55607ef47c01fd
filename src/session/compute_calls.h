// The calls that compute an algorithm's functions over samples, on the rows that this rank computes
// (program/computed_rows.h). Not thread-safe.
#pragma once

#include <map>
#include <optional>

#include "samples/field_account.h"
#include "session/step_context.h"

namespace braid::inline session {

class ComputeCalls {
 public:
  // REQUIRES: the account, of the step's samples, outlives this.
  ComputeCalls(const StepContext& step, FieldAccount& account) : step_(step), account_(account) {}

  // Where the function needs sums of the step and ranks have parts of it, those of this rank alone:
  // its fields are there when all have shared theirs.
  Status compute(const Call& call, SamplePart part);
  Status share(const Exchange& shared);
  // Forgets what a failure left.
  void abandon() { own_.clear(); }

 private:
  bool waits_for_sums(const Call& call) const {
    return step_.ranks() > 1 && words_beside(call) > 0;
  }
  Result<ComputeResult> run(const Call& call, const Rows& rows, AlgoState& state,
                            const std::optional<StepSums>& of_step) const;
  Result<Metrics> compute_rows(const Call& call, const Rows& rows, AlgoState& state,
                               const std::optional<StepSums>& of_step) const;
  // Of samples that an update begins with: the last part does it again, and reports it.
  Status compute_early(const Call& call, SamplePart part);
  Status finish(const Call& call, const std::optional<StepSums>& of_step);
  // Those of all ranks, added in their order: the same numbers on all.
  Result<StepSums> tell(const Exchange& shared, const StepSums& own);

  const StepContext& step_;
  FieldAccount& account_;
  std::map<CallId, StepSums> own_;  // of the rows that this rank reports
};

}  // namespace braid::inline session
