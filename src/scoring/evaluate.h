// Evaluation of a policy: responses to data.eval under eval.*, scored by the configuration's
// rewards. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/options.h"
#include "inputs/reward_reader.h"
#include "reward/reward.h"
#include "rollout/engine.h"
#include "samples/fetch_samples.h"
#include "weights/load_models.h"

namespace braid::inline scoring {

struct EvalReport {
  // eval/{reward_mean,accuracy,pass_at_K,NAME_mean,response_mean,truncated_frac,prompts}. A
  // response is right when its total reward reaches eval.pass_threshold; accuracy is the share of
  // right responses, pass_at_K the unbiased estimate of pass@K.
  std::map<std::string, double> metrics;
  std::vector<Json> samples;  // one row per response
};

class Evaluator {
 public:
  // Reads tokenizer, data.eval and, where it is to report, the rewards. Errors name the key.
  static Result<std::unique_ptr<Evaluator>> create(const Config& config, bool reports = true);

  // All of it in one process. `models` are those of the rewards of type model (load_models.h);
  // `step` is what Python rewards see as the trainer's.
  Result<EvalReport> run(Model& policy, const RewardModels& models, int64_t step = 0);

  // Responses that an evaluation draws. Each has a number below this, which keys its random
  // numbers, so that whoever draws it draws the same.
  int64_t responses() const { return prompts_ * config_.eval.samples_per_prompt; }
  std::vector<int64_t> numbers() const;  // of all of them
  // Before each round of ranks that make as many as each other: whether any of them has responses
  // `left`. One that has none passes the round by in this.
  using RoundsTogether = std::function<Result<bool>(bool left)>;
  // Draws those of these numbers. `ranks`: where this rank has a part of the policy; else null.
  // `together`: empty where its rounds are its own.
  Result<std::vector<Generated>> generate(Model& policy, EngineRanks* ranks,
                                          const std::vector<int64_t>& numbers,
                                          const RoundsTogether& together = {}) const;
  // What rewards see of these responses, in their order.
  Result<std::vector<RewardSample>> samples(const std::vector<Generated>& responses) const;
  // Asks the rewards about all responses, by number, and reports. `scores`: outcomes of rewards of
  // type model, aligned with the list of rewards; empty for other types. REQUIRES: it was made to
  // report.
  Result<EvalReport> report(const std::vector<RewardSample>& samples,
                            const std::vector<std::vector<RewardOutcome>>& scores, int64_t step);

 private:
  Evaluator(const Config& config, RunData data) : config_(config), data_(std::move(data)) {}
  Result<RewardSample> reward_sample(const Generated& generated) const;
  void add_passes(const std::vector<double>& totals, EvalReport& report) const;

  Config config_;
  RunData data_;
  int64_t prompts_ = 0;  // lines that are used
  std::vector<std::unique_ptr<Reward>> rewards_;
};

// What the models of rewards say about the samples, in the form that report() takes.
Result<std::vector<std::vector<RewardOutcome>>> score_with(const RewardModels& models,
                                                           const RewardReaders& readers,
                                                           const std::vector<RewardSample>& samples,
                                                           const TrainConfig& train);

}  // namespace braid::inline scoring
