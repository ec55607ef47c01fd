// Where the samples of a step come from: each rank reads its share of the data, all tell each other
// what they have read, and each reads later what the data say of the rows that its calls work on.
// Not thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "inputs/run_data.h"
#include "session/call_samples.h"
#include "session/carried_samples.h"
#include "session/length_predictions.h"

namespace braid::inline session {

class FetchCalls {
 public:
  // `carried`: null where no generation leaves samples. `checked`: what the check of rows beside
  // the steps has found (SavedState::follow_data_check()). REQUIRES: all outlive this.
  FetchCalls(const StepContext& step, const CallSamples& samples, const RunData& data,
             CarriedSamples* carried, std::function<Status()> checked);

  // A fetch: reads this rank's share. What fails is said in the share.
  Status fetch(const Call& call);
  // Its share: from here on there are the step's samples.
  Status share(const Call& call);
  // What the data say of the samples that a call works on here.
  Status read_for(const Call& call, SamplePart part) const;

  // The step is complete: what became of its predictions.
  void end_step();
  // Of all prompts, up to the last step; null where nothing is predicted from it.
  LengthHistory* history() { return predicts_ ? &history_ : nullptr; }

 private:
  int64_t prompts() const;
  Result<std::vector<int32_t>> read_share(const Call& call);
  Result<std::vector<std::vector<int32_t>>> tell(const Call& call);

  const StepContext& step_;
  const CallSamples& samples_;
  const RunData& data_;
  CarriedSamples* const carried_;
  const std::function<Status()> checked_;
  const bool predicts_;  // lengths
  LengthHistory history_;
  std::vector<int32_t> told_;  // what this rank tells the others of its share
};

}  // namespace braid::inline session
