#include "config/algorithm_check.h"

#include <cmath>
#include <utility>

#include "base/text.h"
#include "config/algorithm_traits.h"
#include "config/binder.h"

namespace braid::inline config {
namespace {

Status check_own_functions(const AlgorithmOptions& o) {
  for (const auto& [key, value] :
       {std::pair("loss", o.loss), std::pair("advantages", o.advantages)})
    if (!value.empty() && !value.ends_with(".so"))
      return invalid_input(cat("algorithm.", key, ": ", value,
                               " is no library; 'braid build-loss FILE.cc' makes FILE.so, which "
                               "goes here"));
  if (o.kl.in == "own" && o.loss.empty() && o.advantages.empty())
    return invalid_input(
        "algorithm.kl.in: own leaves the penalty to algorithm.loss or algorithm.advantages, "
        "neither of which is set; use reward or loss");
  return {};
}

// What one algorithm alone cannot do.
Status check_named(const AlgorithmOptions& o) {
  if (o.name == "online_dpo" && o.kl.coef > 0)
    return invalid_input(
        "algorithm.kl.coef: online_dpo compares with the reference in its loss, by algorithm.beta; "
        "remove it");
  if (o.name == "online_dpo" && o.mask_truncated)
    return invalid_input(
        "algorithm.mask_truncated: online_dpo learns from pairs, which a response that is left out "
        "would break; remove it, and let a reward (reward_total.overlong_buffer) tell cut "
        "responses "
        "from others");
  if (o.name == "remax" && o.whiten_rewards)
    return invalid_input(
        "algorithm.whiten_rewards: remax subtracts the reward of a greedy response, which is not "
        "scaled; remove it");
  return {};
}

Status check_combinations(const AlgorithmOptions& o) {
  if (o.loss_agg == "constant_norm" && !(o.loss_norm_tokens > 0)) {
    return invalid_input(
        "algorithm.loss_norm_tokens: loss_agg constant_norm needs a positive number of tokens");
  }
  const bool penalized = o.kl.coef > 0;
  if (penalized && o.kl.controller == "adaptive") {
    if (o.kl.in != "reward") {
      return invalid_input(
          cat("algorithm.kl.controller: adaptive needs kl.in: reward; use fixed with kl.in: ",
              o.kl.in));
    }
    if (!(o.kl.target > 0 && o.kl.horizon > 0)) {
      return invalid_input(
          "algorithm.kl.target and algorithm.kl.horizon: adaptive needs positive numbers");
    }
  }
  if (o.tis_cap > 0 && o.old_logprobs == "sampler") {
    return invalid_input(
        "algorithm.tis_cap: with old_logprobs: sampler every weight is 1; use recompute, or 0");
  }
  if (o.icepop_high > 0 && o.old_logprobs == "sampler")
    return invalid_input(
        "algorithm.icepop_high: with old_logprobs: sampler every weight is 1; use recompute, or 0");
  if (o.icepop_high > 0 && o.tis_cap > 0)
    return invalid_input(
        "algorithm.icepop_high: tis_cap caps the weights that it leaves out; set one of them to 0");
  if (o.icepop_low > o.icepop_high)
    return invalid_input(cat("algorithm.icepop_low: ", o.icepop_low, " is above icepop_high, ",
                             o.icepop_high, "; every token would be left out"));
  if (o.preference_loss == "robust" && o.label_smoothing >= 0.5)
    return invalid_input("algorithm.label_smoothing: robust needs less than 0.5");
  const bool smooths = o.preference_loss == "sigmoid" || o.preference_loss == "robust";
  if (o.label_smoothing > 0 && !smooths)
    return invalid_input(cat("algorithm.label_smoothing: preference_loss ", o.preference_loss,
                             " has none; use sigmoid or robust, or 0"));
  const AlgorithmTraits traits = algorithm_traits(o.name);
  BRAID_TRY(check_named(o));
  if (o.dynamic_sampling && !traits.compares_groups)
    return invalid_input(cat("algorithm.dynamic_sampling: ", o.name,
                             " does not compare the responses to a prompt, so that prompts whose "
                             "responses are worth the same teach it too; remove it"));
  if (traits.compares_groups && !traits.rewards_tokens && penalized && o.kl.in == "reward") {
    return invalid_input(cat("algorithm.kl.in: ", o.name,
                             " has no per-token rewards; use kl.in: loss, or kl.coef: 0"));
  }
  if (o.name == "distill" &&
      !(penalized && o.kl.in == "reward" && o.kl.estimator == "k1" && o.kl.controller == "fixed"))
    return invalid_input(
        "algorithm.kl: the divergence from the teacher is what distill learns from; it needs "
        "kl.coef above 0, kl.in: reward, kl.estimator: k1 and kl.controller: fixed");
  if (o.name == "cispo" && o.dual_clip > 0) {
    return invalid_input(
        "algorithm.dual_clip: cispo's clipped ratio is a constant weight, whose loss has no bound "
        "to set; remove it, and set clip_high");
  }
  return {};
}

}  // namespace

Status validate(const AlgorithmOptions& options) {
  AlgorithmOptions copy = options;
  OptionChecker checker("algorithm");
  visit(checker, copy);
  BRAID_TRY(checker.status());
  BRAID_TRY(check_own_functions(options));
  return check_combinations(options);
}

}  // namespace braid::inline config
