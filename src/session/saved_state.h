// What a checkpoint holds of a session, made and taken over: the state of the run and of its data,
// this rank's share of the weights, rollouts that wait for later steps, a step that was left in the
// middle. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "data/data_check.h"
#include "inputs/run_data.h"
#include "session/carried_samples.h"
#include "session/length_predictions.h"
#include "session/open_step.h"
#include "session/step_context.h"
#include "session/steps_ahead.h"

namespace braid::inline session {

class SavedState {
 public:
  // `ahead`: null where no call works ahead; `carried`: where none leaves samples. `lengths`: the
  // history of lengths, null where nothing is predicted from it. `frozen`: fingerprints of what is
  // not trained. REQUIRES: the references outlive this.
  SavedState(const StepContext& step, const RunData& data, StepsAhead* ahead,
             CarriedSamples* carried, LengthHistory* lengths, Json frozen);

  // Of this rank's share of the weights; the tensors may alias the session's own. `open`: a step
  // that was left in the middle. `noted`: whether the bookkeeping of every update is complete.
  Result<CheckpointState> make(const std::optional<StepProgress>& open, bool noted) const;
  // The rollouts and samples that wait for later steps, of all ranks together, where there are any;
  // `open`: the present step has left them.
  Status add_waiting(bool open, CheckpointState* state) const;
  // Whether steps go on while a checkpoint is written.
  bool written_beside() const;
  // Bytes of the tensors of all shares between two steps, on any rank alone.
  Result<int64_t> bytes() const;
  // Takes it over, of the weights what is here. What is open, but for what roles say. No rank waits
  // for another: each may find that its files are damaged.
  Result<std::optional<StepProgress>> take(CheckpointReader& saved);

  // What the check of rows beside the steps has found since this was called last.
  Status follow_data_check();

 private:
  Json own_data_identity() const;
  Status add_ahead(CheckpointState* state) const;
  Status add_carried(bool open, CheckpointState* state) const;
  Status read_lengths(const Json& numbers);
  Result<StepProgress> read_open_step(CheckpointReader& saved);

  const StepContext& step_;
  const RunData& data_;
  StepsAhead* const ahead_;
  CarriedSamples* const carried_;
  LengthHistory* const lengths_;
  const Json frozen_;
  std::unique_ptr<DataCheck> data_check_;  // where loading left rows; on the first rank
  std::string saved_data_sha256_;          // of the checkpoint; "" once compared
};

}  // namespace braid::inline session
