// Evaluation of a policy: responses to data.eval under eval.*, scored by the configuration's
// rewards. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/options.h"
#include "reward/reward.h"
#include "rollout/engine.h"
#include "runtime/load_models.h"
#include "runtime/run_data.h"

namespace braid {

struct EvalReport {
  // eval/{reward_mean,accuracy,pass_at_K,NAME_mean,response_mean,truncated_frac,prompts}. A
  // response is right when its total reward reaches eval.pass_threshold; accuracy is the share of
  // right responses, pass_at_K the unbiased estimate of pass@K.
  std::map<std::string, double> metrics;
  std::vector<Json> samples;  // one row per response
};

class Evaluator {
 public:
  // Reads tokenizer, data.eval and rewards; `models` are those of the rewards of type model
  // (load_models.h). Errors name the key.
  static Result<std::unique_ptr<Evaluator>> create(const Config& config, RewardModels models);

  // `step` is what Python rewards see as the trainer's.
  Result<EvalReport> run(Model& policy, int64_t step = 0);

 private:
  Evaluator(const Config& config, RunData data, RewardModels models)
      : config_(config), data_(std::move(data)), reward_models_(std::move(models)) {}
  Result<std::vector<RewardSample>> generate(Model& policy);
  Result<RewardSample> reward_sample(const Generated& generated, int64_t prompt) const;
  Result<RewardTotals> score(const std::vector<RewardSample>& samples, int64_t step);
  void add_passes(const std::vector<double>& totals, EvalReport& report) const;

  Config config_;
  RunData data_;
  int64_t prompts_ = 0;  // lines that are used
  std::vector<std::unique_ptr<Reward>> rewards_;
  RewardModels reward_models_;
};

}  // namespace braid
