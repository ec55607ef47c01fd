// The reward call: scores from the list of rewards or a recorded rollout, penalties, recording.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "runtime/run_keeper.h"
#include "runtime/score_samples.h"
#include "runtime/session.h"

namespace braid {

Result<std::vector<RewardSample>> Session::reward_samples() const {
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  BRAID_ASSIGN(const at::Tensor truncated, store_.reals("truncated"));
  std::vector<RewardSample> out;
  for (size_t i = 0; i < store_.size(); ++i) {
    RewardSample sample;
    sample.sample_id = store_.sample(i).id.value;
    sample.prompt = store_.sample(i).prompt;
    sample.prompt_ids = (*prompts)[i];
    sample.response_ids = (*responses)[i];
    sample.truncated = truncated[static_cast<int64_t>(i)].item<float>() != 0;
    sample.extra = store_.sample(i).extra;
    if (tokenizer_) {
      BRAID_ASSIGN(sample.response, tokenizer_->decode(sample.response_ids, true));
    }
    out.push_back(std::move(sample));
  }
  return out;
}

// What the rewards of the list say now.
Result<ScoredSamples> Session::scored_samples() {
  BRAID_ASSIGN(const std::vector<RewardSample> samples, reward_samples());
  BRAID_ASSIGN(RewardOutcomes outcomes, collect_outcomes(rewards_, config_.reward, samples));
  for (size_t i = 0; i < reward_models_.size(); ++i) {
    if (!reward_models_[i]) continue;
    outcomes.outcomes[i] = score_samples(*reward_models_[i], samples, config_.train.micro_tokens);
  }
  BRAID_ASSIGN(RewardTotals totals, apply_policies(config_.reward, outcomes, samples));
  ScoredSamples scored;
  scored.raw = std::move(totals.total);
  scored.kept = std::move(totals.kept);
  scored.by_name = std::move(totals.by_name);
  scored.timeouts = totals.timeouts;
  scored.errors = totals.errors;
  add_penalties(scored);
  return scored;
}

// Clipping, the penalty of a truncated response, and the one that grows over the last tokens before
// the limit (Yu et al., DAPO, 2025, section 3.4).
void Session::add_penalties(ScoredSamples& scored) const {
  const RewardTotalOptions& options = config_.reward_total;
  const at::Tensor truncated = *store_.reals("truncated");
  const std::vector<int64_t> lens = store_.response_lens();
  const auto buffer = static_cast<double>(options.overlong_buffer);
  for (size_t i = 0; i < scored.raw.size(); ++i) {
    double value = scored.raw[i];
    if (options.clip > 0) value = std::clamp(value, -options.clip, options.clip);
    if (truncated[static_cast<int64_t>(i)].item<float>() != 0) value -= options.missing_eos_penalty;
    const double over = static_cast<double>(lens[i] - config_.rollout.max_response_length) + buffer;
    if (buffer > 0 && over > 0) value -= options.overlong_penalty * std::min(over / buffer, 1.0);
    scored.total.push_back(value);
  }
}

// What the recorded rollout says that they were.
Result<ScoredSamples> Session::replayed_samples() const {
  ScoredSamples scored;
  for (size_t i = 0; i < store_.size(); ++i) {
    const RolloutRow& row = replayed_.at(store_.sample(i).id.value);
    scored.raw.push_back(row.raw_reward);
    scored.total.push_back(row.reward.value_or(std::nan("")));
    scored.kept.push_back(row.reward.has_value());
    for (const auto& [name, value] : row.reward_values) {
      std::vector<double>& values = scored.by_name[name];
      values.resize(store_.size(), std::nan(""));
      values[i] = value;
    }
  }
  return scored;
}

Status Session::record_rollout(const ScoredSamples& scored) {
  if (!recorder_) {
    const std::string folder = run_folder(config_);
    BRAID_TRY(make_folder(folder));
    BRAID_ASSIGN(recorder_, RolloutRecorder::open(join_path(folder, kRolloutFile), step_));
  }
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  BRAID_ASSIGN(const at::Tensor logprobs_R, store_.reals("sampler_logprobs"));
  BRAID_ASSIGN(const at::Tensor truncated_S, store_.reals("truncated"));
  const float* logprob = logprobs_R.const_data_ptr<float>();
  std::vector<RolloutRow> rows;
  for (size_t i = 0; i < store_.size(); ++i) {
    RolloutRow row;
    row.step = step_;
    row.sample = store_.sample(i).id;
    row.prompt_ids = (*prompts)[i];
    row.response_ids = (*responses)[i];
    row.logprobs.assign(logprob, logprob + row.response_ids.size());
    logprob += row.response_ids.size();
    row.truncated = truncated_S[static_cast<int64_t>(i)].item<float>() != 0;
    if (scored.kept[i]) row.reward = scored.total[i];
    row.raw_reward = scored.raw[i];
    for (const auto& [name, values] : scored.by_name) row.reward_values[name] = values[i];
    row.prompt = store_.sample(i).prompt;
    row.extra = store_.sample(i).extra;
    rows.push_back(std::move(row));
  }
  return recorder_->append(rows);
}

Status Session::score_rewards(const Call& call) {
  BRAID_ASSIGN(const ScoredSamples scored, scores() ? scored_samples() : replayed_samples());
  note_rewards(scored);
  if (config_.rollout.record) BRAID_TRY(record_rollout(scored));
  const std::vector<float> rewards(scored.total.begin(), scored.total.end());
  BRAID_TRY(store_.put_reals(call.writes.front().name, at::tensor(rewards)));
  store_.retain(scored.kept);
  if (store_.size() == 0)
    return {Code::kStopped,
            "every sample was dropped by on_error: drop; look at the rewards' errors"};
  return ok_status();
}

}  // namespace braid
