// Evaluation within a job, in the layouts of its plan: responses are drawn in that of the call that
// generates, or where none does of the update, each replica its share of them, and scored in that
// of the reward call. Not thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "passes/call_work.h"
#include "scoring/evaluate.h"
#include "scoring/scoring.h"
#include "session/evaluated_samples.h"
#include "session/infer_calls.h"

namespace braid::inline session {

class JobEvaluation {
 public:
  // `evaluator` is null without eval.*; `models` are those of rewards that evaluations alone ask,
  // on the first rank. REQUIRES: the references outlive this.
  JobEvaluation(const StepContext& step, InferCalls& infer, const Scoring& scoring,
                NeedsOfCalls& needs, std::unique_ptr<Evaluator> evaluator, RewardModels models)
      : step_(step),
        infer_(infer),
        scoring_(scoring),
        needs_(needs),
        evaluator_(std::move(evaluator)),
        models_(std::move(models)) {}

  bool configured() const { return evaluator_ != nullptr; }
  // All ranks together; the report is the first one's. REQUIRES: configured().
  Result<EvalReport> run();

 private:
  using Scores = std::vector<std::vector<RewardOutcome>>;

  CallId drawing_call() const;
  std::vector<SampleRows> drawn_by_rank(CallId call, const std::vector<SampleRows>& shares) const;
  Result<std::vector<Generated>> draw(CallId call, const std::vector<SampleRows>& shares);
  Evaluator::RoundsTogether together(CallId call, Model& policy) const;
  std::vector<const Call*> scoring_calls() const;
  Status score_by(const Call& call, EvaluatedSamples& samples);
  Result<SampleStore> as_read_by(const Call& call, EvaluatedSamples& samples,
                                 const Rows& rows) const;
  Result<Scores> scores_of(const std::vector<RewardSample>& asked, const SampleStore& store) const;

  const StepContext& step_;
  InferCalls& infer_;
  const Scoring& scoring_;
  NeedsOfCalls& needs_;
  std::unique_ptr<Evaluator> evaluator_;
  RewardModels models_;
};

}  // namespace braid::inline session
