#include "foreign/keys/metric_names.h"

#include "base/text.h"

namespace braid::inline foreign_keys {
namespace {

// verl: trainer/ppo/metric_utils.py, core_algos.py and ray_trainer.py of August 2026. TRL 1.9:
// grpo_trainer.py, dpo_trainer.py, kto_trainer.py, reward_trainer.py.
constexpr MetricName kMetricNames[] = {
    {"reward/raw_mean", "critic/score/mean", "reward"},
    {"reward/raw_max", "critic/score/max", ""},
    {"reward/raw_min", "critic/score/min", ""},
    {"reward/total_mean", "critic/rewards/mean", ""},
    {"reward/NAME_mean", "", "rewards/NAME/mean"},
    {"adv/zero_std_frac", "", "frac_reward_zero_std"},
    {"adv/max", "critic/advantages/max", ""},
    {"adv/min", "critic/advantages/min", ""},
    {"kl/ref_k3", "", "kl"},
    {"policy/loss", "actor/pg_loss", ""},
    {"policy/kl_loss", "actor/kl_loss", ""},
    {"policy/entropy", "actor/entropy", "entropy"},
    {"policy/clipfrac", "actor/pg_clipfrac", "clip_ratio/region_mean"},
    {"policy/clipfrac_low", "", "clip_ratio/low_mean"},
    {"policy/clipfrac_high", "", "clip_ratio/high_mean"},
    {"policy/grad_norm", "actor/grad_norm", "grad_norm"},
    {"policy/lr", "actor/lr", "learning_rate"},
    {"critic/loss", "critic/vf_loss", ""},
    {"critic/clipfrac", "critic/vf_clipfrac", ""},
    {"critic/explained_var", "critic/vf_explained_var", ""},
    {"critic/value_mean", "critic/values/mean", ""},
    {"critic/return_mean", "critic/returns/mean", ""},
    {"length/prompt_mean", "prompt_length/mean", ""},
    {"length/prompt_max", "prompt_length/max", ""},
    {"length/response_mean", "response_length/mean", "completions/mean_length"},
    {"length/response_min", "response_length/min", "completions/min_length"},
    {"length/response_max", "response_length/max", "completions/max_length"},
    {"length/truncated_frac", "", "completions/clipped_ratio"},
    {"mismatch/logprob_abs_mean", "", "sampling/sampling_logp_difference/mean"},
    {"mismatch/logprob_abs_max", "", "sampling/sampling_logp_difference/max"},
    {"sft/loss", "", "loss"},
    {"rm/loss", "", "loss"},
    {"rm/accuracy", "", "accuracy"},
    {"rm/margin_mean", "", "margin"},
    {"rm/score_mean", "", "mean_reward"},
    {"dpo/loss", "", "loss"},
    {"dpo/accuracy", "", "rewards/accuracies"},
    {"dpo/margin_mean", "", "rewards/margins"},
    {"dpo/chosen_reward_mean", "", "rewards/chosen"},
    {"dpo/rejected_reward_mean", "", "rewards/rejected"},
    {"orpo/loss", "", "loss"},
    {"kto/loss", "", "loss"},
    {"kto/kl", "", "kl"},
    {"kto/wanted_reward_mean", "", "rewards/chosen"},
    {"kto/unwanted_reward_mean", "", "rewards/rejected"},
    {"eval/reward_mean", "", "eval_reward"},
    {"eval/NAME_mean", "", "eval_rewards/NAME/mean"},
    {"eval/response_mean", "", "eval_completions/mean_length"},
    {"eval/truncated_frac", "", "eval_completions/clipped_ratio"},
    {"time/generate", "timing_s/gen", ""},
    {"time/reward", "timing_s/reward", ""},
    {"time/old_logprob", "timing_s/old_log_prob", ""},
    {"time/values", "timing_s/values", ""},
    {"time/advantages", "timing_s/adv", ""},
    {"time/update_critic", "timing_s/update_critic", ""},
    {"time/update_actor", "timing_s/update_actor", ""},
    {"time/step", "timing_s/step", ""},
    {"time/eval", "timing_s/testing", ""},
    {"time/checkpoint", "timing_s/save_checkpoint", ""},
    {"perf/tokens_per_s_per_device", "perf/throughput", ""},
};

// Names of the form "reward/X_mean" that are no reward's.
constexpr const char* kNoRewards[] = {"reward/kl_penalty_mean", "reward/greedy_mean"};

constexpr const char* kPlace = "NAME";

// What stands for NAME in a name, or "" where it is no such name.
std::string reward_in(const std::string& pattern, const std::string& name) {
  const size_t at = pattern.find(kPlace);
  if (at == std::string::npos) return "";
  const std::string begin = pattern.substr(0, at), end = pattern.substr(at + 4);
  if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end))
    return "";
  const std::string inside = name.substr(begin.size(), name.size() - begin.size() - end.size());
  for (const char* other : kNoRewards)
    if (name == other) return "";
  return inside.find('/') == std::string::npos ? inside : "";
}

std::string with_reward(const std::string& pattern, const std::string& reward) {
  const size_t at = pattern.find(kPlace);
  return cat(pattern.substr(0, at), reward, pattern.substr(at + 4));
}

}  // namespace

const std::vector<MetricName>& metric_names() {
  static const std::vector<MetricName> all(std::begin(kMetricNames), std::end(kMetricNames));
  return all;
}

std::string metric_name(const std::string& ours, const std::string& names) {
  if (names != "verl" && names != "trl") return ours;
  const auto theirs = [&](const MetricName& row) {
    return std::string(names == "verl" ? row.verl : row.trl);
  };
  for (const MetricName& row : kMetricNames)
    if (ours == row.ours) return theirs(row).empty() ? ours : theirs(row);
  for (const MetricName& row : kMetricNames)
    if (const std::string reward = reward_in(row.ours, ours); !reward.empty())
      return theirs(row).empty() ? ours : with_reward(theirs(row), reward);
  return ours;
}

std::string metric_names_table() {
  const auto cell = [](const std::string& name) {
    return name.empty() ? std::string("") : cat("`", name, "`");
  };
  std::string out = "| Braid | verl | TRL |\n|---|---|---|\n";
  for (const MetricName& row : kMetricNames)
    out += cat("| ", cell(row.ours), " | ", cell(row.verl), " | ", cell(row.trl), " |\n");
  return out;
}

}  // namespace braid::inline foreign_keys
