// What the samples of a step are worth: the calls of reward models, the list of rewards, which
// ranks ask about the samples that they have generated, and the point at which all ranks come to
// know what training uses of both. What is reported each rank notes of its own samples. Not
// thread-safe.
#pragma once

#include <map>
#include <vector>

#include "passes/generation.h"
#include "samples/field_account.h"
#include "scoring/scoring.h"
#include "session/infer_calls.h"

namespace braid::inline session {

class RewardCalls {
 public:
  // REQUIRES: all outlive this.
  RewardCalls(const StepContext& step, InferCalls& infer, FieldAccount& account,
              Generation& generation, Scoring& scoring)
      : step_(step), infer_(infer), account_(account), generation_(generation), scoring_(scoring) {}

  // An infer call, whose model may be a reward model that reads texts: writes its field, of the
  // samples of the part.
  Status infer(const Call& call, SamplePart part);
  // A reward call: what its model gives, and the list of rewards where nobody has to be waited for.
  Status reward(const Call& call, SamplePart part);
  // What ranks found of their samples becomes everyone's: rewards, and who is dropped.
  Status share(const Exchange& shared);
  // Leaves what a failed step found.
  void abandon() { found_.clear(); }

 private:
  // What the model of a reward call gives, which may read texts.
  Result<InferredRows> scored_by_model(const Call& call, SamplePart part = SamplePart::kAll);
  // Whether the list of rewards is asked when all ranks of the call have said what its model gave.
  bool asks_beside_model(const Call& call) const;
  // What the reward models of the graph gave these rows.
  Result<ModelScores> model_scores(const Call& call, const Rows& rows,
                                   const std::map<size_t, double>& by_row) const;
  // Of samples that an update begins with.
  Status reward_early(const Call& call, SamplePart part);
  Status score(const Call& call, const Rows& rows, const std::map<size_t, double>& scores);
  Status score_late(const Exchange& shared);
  Status put(const Call& call, const FoundScores& found);
  Result<RewardFailures> tell(const Exchange& shared, const FoundScores& found);
  Status keep(const Call& call, const std::vector<bool>& kept);

  const StepContext& step_;
  InferCalls& infer_;
  FieldAccount& account_;
  Generation& generation_;
  Scoring& scoring_;
  std::map<CallId, FoundScores> found_;  // by reward call of the step, until it is shared
};

}  // namespace braid::inline session
