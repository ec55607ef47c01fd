// Options of the algorithms: what to optimise. All of them change results.
#pragma once

#include <cstdint>
#include <string>

#include "config/key_facts.h"

namespace braid::inline config {

struct KlOptions {
  double coef = 0.05;
  std::string estimator = "k1";
  std::string in = "reward";
  std::string controller = "fixed";
  double target = 6;
  double horizon = 10000;
};

template <class V>
void visit(V& v, KlOptions& o) {
  v("coef", o.coef, "weight of the KL penalty; 0 = off, no reference model is loaded",
    counted(0, kMostNumber), key::priced, key::read_if(ReadIf::kPolicyLoss));
  v("estimator", o.estimator, "Schulman, \"Approximating KL divergence\", 2020",
    one_of("k1 | k2 | k3"), key::read_if(ReadIf::kKlEstimate));
  v("in", o.in,
    "reward: subtracted per token from the reward | loss: added to the loss | own: left to the "
    "functions of algorithm.loss and algorithm.advantages, which get the reference's log-probs",
    one_of("reward | loss | own"), key::read_if(ReadIf::kPolicyLoss));
  v("controller", o.controller, "Ziegler et al., 2019, section 2.2", one_of("fixed | adaptive"));
  v("target", o.target, "adaptive: KL per sequence aimed at", key::read_if(ReadIf::kAdaptiveKl));
  v("horizon", o.horizon, "adaptive: sequences over which the coefficient adapts",
    key::read_if(ReadIf::kAdaptiveKl));
}

struct AlgorithmOptions {
  std::string name = "ppo";
  double gamma = 1;
  double lam = 0.95;
  std::string normalize_advantages = "batch";
  bool whiten_rewards = false;
  KlOptions kl;

  double clip_low = 0.2;
  double clip_high = 0.2;
  double dual_clip = 0;
  double entropy_coef = 0;
  std::string loss_agg = "token_mean";
  double loss_norm_tokens = 0;
  std::string ratio_level = "token";
  double value_clip = 0.2;
  double critic_coef = 1;
  double stop_kl = 0;
  std::string old_logprobs = "recompute";
  double tis_cap = 0;
  double icepop_low = 0;
  double icepop_high = 0;
  bool mask_truncated = false;

  bool dynamic_sampling = false;
  int64_t max_draws = 10;
  std::string on_shortage = "error";

  double beta = 0.1;
  std::string preference_loss = "sigmoid";
  double label_smoothing = 0;
  double wanted_weight = 1;
  double unwanted_weight = 1;
  std::string reward_loss = "pairwise";

  std::string loss;
  std::string advantages;
};

template <class V>
void visit(V& v, AlgorithmOptions& o) {
  v("name", o.name,
    "ppo | grpo | dapo | dr_grpo | gspo | cispo | rloo | remax | reinforce | reinforce_plus_plus | "
    "reinforce_plus_plus_baseline | dpo | orpo | online_dpo | kto | distill | sft | rm "
    "(docs/algorithms.md); the defaults below, and reward_total.overlong_buffer, depend on it",
    key::priced, key::read_always);
  v("gamma", o.gamma, "discount per token", between(0, 1), key::read_if(ReadIf::kDiscounts));
  v("lam", o.lam, "GAE lambda (Schulman et al., 2016)", between(0, 1),
    key::read_if(ReadIf::kCritic));
  v("normalize_advantages", o.normalize_advantages, "over which tokens they are whitened",
    one_of("batch | group | none"), key::read_if(ReadIf::kNormalization));
  v("whiten_rewards", o.whiten_rewards, "scale the rewards of a rollout to variance 1",
    key::read_if(ReadIf::kTokenRewards));
  v("kl", o.kl, "penalty for leaving the reference model", key::read_if(ReadIf::kKl));
  v("clip_low", o.clip_low, "ratio may fall to 1 - clip_low (Schulman et al., 2017)", between(0, 1),
    key::read_if(ReadIf::kPolicyLoss));
  v("clip_high", o.clip_high, "ratio may rise to 1 + clip_high", counted(0, kMostNumber),
    key::read_if(ReadIf::kPolicyLoss));
  v("dual_clip", o.dual_clip,
    "> 1: bound on the loss of negative advantages (Ye et al., 2020); 0 = off", zero_or_above(1),
    key::read_if(ReadIf::kClippedLoss));
  v("entropy_coef", o.entropy_coef, "weight of the entropy bonus; 0 = off", any_number(),
    key::read_if(ReadIf::kPolicyLoss));
  v("loss_agg", o.loss_agg, "how the losses of tokens become one (docs/algorithms.md)",
    one_of("token_mean | seq_mean_token_mean | seq_mean_token_sum | constant_norm"),
    key::read_if(ReadIf::kPolicyLoss));
  v("loss_norm_tokens", o.loss_norm_tokens,
    "constant_norm: the constant (tokens per sequence), required then",
    key::read_if(ReadIf::kConstantNorm));
  v("ratio_level", o.ratio_level, "of what the ratio of new to old policy is",
    one_of("token | sequence"), key::read_if(ReadIf::kClippedLoss));
  v("value_clip", o.value_clip, "critic: clip around the old value; 0 = off",
    counted(0, kMostNumber), key::read_if(ReadIf::kCritic));
  v("critic_coef", o.critic_coef, "weight of the value loss", counted(0, kMostNumber),
    key::read_if(ReadIf::kCritic));
  v("stop_kl", o.stop_kl, "end the epochs of a step when KL(old, new) exceeds it; 0 = off",
    counted(0, kMostNumber), key::not_priced("no update is priced as ended early"),
    key::read_if(ReadIf::kPolicyLoss));
  v("old_logprobs", o.old_logprobs,
    "denominators of the ratio; sampler: as noted while sampling, which saves a forward",
    one_of("recompute | sampler"), key::priced, key::read_if(ReadIf::kPolicyLoss));
  v("tis_cap", o.tis_cap,
    "truncated importance sampling: tokens weigh min(old / sampler, cap) (Yao et al., 2025); 0 = "
    "off",
    counted(0, kMostNumber), key::priced, key::read_if(ReadIf::kPolicyLoss));
  v("icepop_low", o.icepop_low, "icepop_high: the lower bound", counted(0, kMostNumber),
    key::read_if(ReadIf::kPolicyLoss));
  v("icepop_high", o.icepop_high,
    "IcePop's mask (Ling team, 2025): tokens weigh old / sampler where that is between icepop_low "
    "and this, others nothing; 0 = off",
    counted(0, kMostNumber), key::priced, key::read_if(ReadIf::kPolicyLoss));
  v("mask_truncated", o.mask_truncated,
    "responses cut at max_response_length are not trained on; their rewards still count in the "
    "advantages of the others");
  v("dynamic_sampling", o.dynamic_sampling,
    "groups whose rewards are all equal are left out, and further prompts are drawn until "
    "rollout.prompts_per_step groups are left (DAPO, Yu et al., 2025, section 3.2)",
    key::priced);
  v("max_draws", o.max_draws,
    "dynamic_sampling: draws of rollout.prompts_per_step prompts in a step at most, the first "
    "included; 0 = as many as it takes",
    counted(0, kMostCount), key::not_priced("workload.draws says how many draws a step takes"),
    key::read_if(ReadIf::kDraws));
  v("on_shortage", o.on_shortage,
    "dynamic_sampling, where max_draws leave too few groups: error, the run ends; train, the step "
    "learns from those that are left",
    one_of("error | train"), key::read_if(ReadIf::kDraws));
  v("beta", o.beta,
    "dpo, online_dpo, kto: how far the policy may leave the reference, smaller is farther; orpo: "
    "weight "
    "of the odds ratio",
    positive(), key::read_if(ReadIf::kPreferencesOrLabels));
  v("preference_loss", o.preference_loss, "dpo, online_dpo: docs/algorithms.md",
    one_of("sigmoid | ipo | hinge | robust"), key::read_if(ReadIf::kPairs));
  v("label_smoothing", o.label_smoothing,
    "dpo, online_dpo: share of preferences taken to be the wrong way round; sigmoid (cDPO) and "
    "robust",
    between(0, 0.5), key::read_if(ReadIf::kPairs));
  v("wanted_weight", o.wanted_weight, "kto: weight of responses that are wanted",
    counted(0, kMostNumber), key::read_if(ReadIf::kLabels));
  v("unwanted_weight", o.unwanted_weight, "kto: weight of those that are not",
    counted(0, kMostNumber), key::read_if(ReadIf::kLabels));
  v("reward_loss", o.reward_loss,
    "rm: pairwise, of a chosen and a rejected response; squared_error, of a response and its "
    "score; "
    "cross_entropy, of a response that is wanted or not",
    one_of("pairwise | squared_error | cross_entropy"), key::priced,
    key::read_if(ReadIf::kRewardModel));
  v("loss", o.loss,
    "a library of 'braid build-loss' whose loss of a token stands for that of the policy "
    "(docs/own_losses.md); \"\" = the algorithm's");
  v("advantages", o.advantages,
    "a library of 'braid build-loss' whose advantages stand for the algorithm's; \"\" = its own");
}

// Whether tokens weigh by how likely the trainer finds them beside the sampler.
inline bool weighs_sampled(const AlgorithmOptions& o) {
  return o.tis_cap != 0 || o.icepop_high != 0;
}

// The values that the options of an algorithm have before a configuration sets any (users-and-peers
// defaults: PPO penalizes k1 in the reward, GRPO k3 in the loss and normalizes by group).
AlgorithmOptions default_options(const std::string& name);

}  // namespace braid::inline config
