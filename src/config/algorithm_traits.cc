#include "config/algorithm_traits.h"

#include "config/options.h"

namespace braid::inline config {
namespace {

// GRPO (Shao et al., 2024): statistics of the group, k3 in the loss.
void grpo_defaults(AlgorithmOptions& o) {
  o.normalize_advantages = "group";
  o.kl.coef = 0.001;
  o.kl.estimator = "k3";
  o.kl.in = "loss";
}

// Yu et al., 2025, §3: no reference, a wider upper clip, the mean over tokens, prompts drawn until
// enough of them teach something.
void dapo_defaults(AlgorithmOptions& o) {
  grpo_defaults(o);
  o.kl.coef = 0;
  o.clip_high = 0.28;
  o.dynamic_sampling = true;
}

// Liu et al., 2025, "Understanding R1-Zero-Like Training", §3: neither the spread of the group nor
// the length of the response divides; no reference.
void dr_grpo_defaults(AlgorithmOptions& o) {
  grpo_defaults(o);
  o.normalize_advantages = "none";
  o.loss_agg = "constant_norm";
  o.kl.coef = 0;
}

// Zheng et al., 2025, §4.1 and §5.1.
void gspo_defaults(AlgorithmOptions& o) {
  grpo_defaults(o);
  o.ratio_level = "sequence";
  o.loss_agg = "seq_mean_token_mean";
  o.clip_low = 3e-4;
  o.clip_high = 4e-4;
  o.kl.coef = 0;
}

// MiniMax, 2025, §3.1: no lower bound of the ratio, no reference. The upper bound 5 is that of
// Khatri et al., 2025, "The Art of Scaling RL Compute".
void cispo_defaults(AlgorithmOptions& o) {
  grpo_defaults(o);
  o.clip_low = 1;
  o.clip_high = 4;
  o.kl.coef = 0;
}

// Returns without a baseline, as they are.
void plain_defaults(AlgorithmOptions& o) { o.normalize_advantages = "none"; }

// Hu, 2025, "REINFORCE++": the penalty is in the rewards, returns are whitened over the batch.
void whitened_defaults(AlgorithmOptions& o) { o.kl.coef = 0.01; }

// The same, §3: with the group's mean as baseline the KL is a term of the loss, estimated by k2.
void baseline_defaults(AlgorithmOptions& o) {
  o.kl.coef = 0.001;
  o.kl.estimator = "k2";
  o.kl.in = "loss";
}

// The reference is in the loss itself (Guo et al., 2024).
void online_dpo_defaults(AlgorithmOptions& o) {
  o.normalize_advantages = "none";
  o.kl.coef = 0;
}

// Every token counts for itself: no discounted sum, no whitening (Lu, 2025, "On-Policy
// Distillation").
void distill_defaults(AlgorithmOptions& o) {
  o.gamma = 0;
  o.normalize_advantages = "none";
  o.kl.coef = 1;
}

void no_defaults(AlgorithmOptions&) {}

struct NamedAlgorithm {
  const char* name;
  AlgorithmTraits traits;
  void (*set)(AlgorithmOptions&);
};
constexpr AlgorithmTraits kOfGroups{true, false, false};
constexpr AlgorithmTraits kGiven{false, false, false, false, true};
constexpr AlgorithmTraits kOfGivenPairs{false, false, false, false, true, true};
constexpr NamedAlgorithm kAlgorithms[] = {
    {"ppo", {false, true, true}, no_defaults},
    {"grpo", kOfGroups, grpo_defaults},
    {"dapo", kOfGroups, dapo_defaults},
    {"dr_grpo", kOfGroups, dr_grpo_defaults},
    {"gspo", kOfGroups, gspo_defaults},
    {"cispo", kOfGroups, cispo_defaults},
    {"rloo", {true, true, false}, plain_defaults},
    {"remax", {false, true, true}, plain_defaults},
    {"reinforce", {false, true, true}, plain_defaults},
    {"reinforce_plus_plus", {false, true, true}, whitened_defaults},
    {"reinforce_plus_plus_baseline", {true, true, true}, baseline_defaults},
    {"online_dpo", {true, false, false, false, false, true}, online_dpo_defaults},
    {"distill", {false, true, true, true}, distill_defaults},
    {"dpo", kOfGivenPairs, no_defaults},
    {"orpo", kOfGivenPairs, no_defaults},
    {"rm", kOfGivenPairs, no_defaults},
    {"kto", kGiven, no_defaults},
    {"sft", kGiven, no_defaults},
};

const NamedAlgorithm* find_algorithm(const std::string& name) {
  for (const NamedAlgorithm& entry : kAlgorithms)
    if (name == entry.name) return &entry;
  return nullptr;
}

}  // namespace

AlgorithmTraits algorithm_traits(const std::string& name) {
  const NamedAlgorithm* found = find_algorithm(name);
  return found == nullptr ? AlgorithmTraits{} : found->traits;
}

bool compares_groups(const AlgorithmOptions& options) {
  return options.normalize_advantages == "group" || algorithm_traits(options.name).compares_groups;
}

AlgorithmOptions default_options(const std::string& name) {
  AlgorithmOptions options;
  options.name = name;
  if (const NamedAlgorithm* found = find_algorithm(name)) found->set(options);
  return options;
}

void set_name_defaults(const std::string& name, int64_t max_response_length, Config* config) {
  config->algorithm = default_options(name);
  if (config->algorithm.loss_agg == "constant_norm")
    config->algorithm.loss_norm_tokens = static_cast<double>(max_response_length);
  if (name == "dapo") config->reward_total.overlong_buffer = max_response_length / 5;
}

}  // namespace braid::inline config
