#include "foreign/keys/names.h"

#include "base/contains.h"
#include "base/text.h"

namespace braid::inline foreign_keys {
namespace {

using Kind = ForeignAdvice::Kind;

constexpr const char* kOwnLoss =
    "a loss of tokens may be one of your own (algorithm.loss, docs/own_losses.md)";
constexpr const char* kOwnAdvantages =
    "advantages may be of your own (algorithm.advantages, docs/own_losses.md)";
constexpr const char* kWithoutReference =
    "of losses of preferences without a reference there is orpo";
constexpr const char* kTwoResponses =
    "of algorithms that let the policy's responses compete there is online_dpo";

struct AlgorithmName {
  const char* theirs;  // as folded() leaves it
  const char* ours;    // "" = no counterpart
  const char* more;    // the line beside it, or why there is none
};
constexpr AlgorithmName kNames[] = {
    {"gae", "ppo", ""},
    {"group_norm", "grpo", ""},
    {"grpo_vectorized", "grpo", ""},
    {"bnpo", "grpo", "algorithm.loss_agg: token_mean"},
    {"drgrpo", "dr_grpo", ""},
    {"rloo_vectorized", "rloo", ""},
    {"reinforce_baseline", "reinforce_plus_plus_baseline", ""},
    {"ipo", "dpo", "algorithm.preference_loss: ipo"},
    {"cdpo", "dpo", "algorithm.label_smoothing: 0.1"},
    {"robust_dpo", "dpo", "algorithm.preference_loss: robust"},
    {"slic", "dpo", "algorithm.preference_loss: hinge"},
    {"hinge", "dpo", "algorithm.preference_loss: hinge"},
    {"robust", "dpo", "algorithm.preference_loss: robust"},
    {"reward", "rm", ""},
    {"reward_model", "rm", ""},
    {"reward_modeling", "rm", ""},
    {"gkd", "distill", ""},
    {"minillm", "distill", ""},
    {"opd", "distill", ""},
    {"distillation", "distill", ""},
    {"on_policy_distillation", "distill", ""},
    {"simpo", "", kWithoutReference},
    {"cpo", "", kWithoutReference},
    {"alphapo", "", kWithoutReference},
    {"bco", "", "of losses of single labelled responses there is kto"},
    {"nash_md", "", kTwoResponses},
    {"xpo", "", kTwoResponses},
    {"prm", "", "reward models score whole responses (rm)"},
    {"vapo", "", "of algorithms with a critic there is ppo"},
    {"sapo", "", kOwnLoss},
    {"vespo", "", kOwnLoss},
    {"luspo", "", kOwnLoss},
    {"gmpo", "", kOwnLoss},
    {"geo_mean", "", kOwnLoss},
    {"clip_cov", "", kOwnLoss},
    {"kl_cov", "", kOwnLoss},
    {"dppo_tv", "", kOwnLoss},
    {"dppo_kl", "", kOwnLoss},
    {"dro", "", kOwnLoss},
    {"gpg", "", kOwnAdvantages},
    {"opo", "", kOwnAdvantages},
    {"grpo_passk", "", kOwnAdvantages},
    {"gdpo", "", "rewards are summed before advantages are made of them"},
    {"optimal_token_baseline", "", "a token's baseline is a critic's value (ppo)"},
    {"tir_optimal_token_baseline", "", "a token's baseline is a critic's value (ppo)"},
};

// "Reinforce++-baseline" as reinforce_plus_plus_baseline.
std::string folded(const std::string& name) {
  std::string out;
  for (const char letter : lowered(name)) {
    const bool separates = letter == '-' || letter == ' ' || letter == '.';
    out += letter == '+' ? "_plus" : separates ? "_" : std::string(1, letter);
  }
  return out;
}

}  // namespace

ForeignAdvice algorithm_advice(const std::string& name,
                               const std::vector<std::string>& algorithms) {
  const std::string plain = folded(name);
  if (contains(algorithms, plain)) return {Kind::kLines, cat("algorithm.name: ", plain)};
  for (const AlgorithmName& entry : kNames) {
    if (plain != entry.theirs) continue;
    const std::string ours = entry.ours, more = entry.more;
    if (ours.empty()) return {Kind::kNothing, more};
    if (!contains(algorithms, ours)) return {};
    return {Kind::kLines, cat("algorithm.name: ", ours, more.empty() ? "" : cat("' and '", more))};
  }
  return {};
}

std::string algorithm_hint(const std::string& name, const std::vector<std::string>& algorithms) {
  const ForeignAdvice advice = algorithm_advice(name, algorithms);
  if (advice.kind == Kind::kLines) return cat("; write '", advice.text, "'");
  if (advice.kind == Kind::kNothing) return cat(", which has no counterpart: ", advice.text);
  return did_you_mean(name, algorithms);
}

}  // namespace braid::inline foreign_keys
