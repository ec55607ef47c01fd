// Evaluation within a job: the responses are drawn in the layout of the call that generates, each
// replica its share of them, and scored in that of the reward call. Not thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "passes/call_work.h"
#include "scoring/evaluate.h"
#include "scoring/scoring.h"
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
  bool scored_by_calls() const;
  Result<std::vector<Generated>> responses();
  Result<std::vector<Generated>> responses_in_layout(CallId generate);
  Result<std::vector<Generated>> responses_of_first_rank();
  Result<std::vector<std::vector<RewardOutcome>>> scores(const std::vector<RewardSample>& samples);
  Result<std::vector<double>> scores_by(const Call& call, const std::vector<RewardSample>& samples);

  const StepContext& step_;
  InferCalls& infer_;
  const Scoring& scoring_;
  NeedsOfCalls& needs_;
  std::unique_ptr<Evaluator> evaluator_;
  RewardModels models_;
};

}  // namespace braid::inline session
