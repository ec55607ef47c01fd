#include "config/algorithm_check.h"

#include <cmath>
#include <utility>

#include "base/text.h"
#include "config/algorithm_traits.h"

namespace braid::inline config {
namespace {

Status check_choice(const char* key, const std::string& value,
                    const std::vector<std::string>& allowed) {
  for (const auto& choice : allowed) {
    if (value == choice) return {};
  }
  return invalid_input(cat("algorithm.", key, ": unknown value \"", value, "\"",
                           did_you_mean(value, allowed), "; allowed: ", join(allowed, " | ")));
}

constexpr double kLargest = 1e30;  // any finite number a user may mean

Status check_range(const char* key, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  const std::string range = high < kLargest   ? cat(format_double(low), " to ", format_double(high))
                            : low > -kLargest ? cat("at least ", format_double(low))
                                              : "any number that is not beyond all measure";
  return invalid_input(
      cat("algorithm.", key, ": ", format_double(value), " is out of range; allowed: ", range));
}

Status check_choices(const AlgorithmOptions& o) {
  BRAID_TRY(
      check_choice("normalize_advantages", o.normalize_advantages, {"batch", "group", "none"}));
  BRAID_TRY(
      check_choice("loss_agg", o.loss_agg,
                   {"token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant_norm"}));
  BRAID_TRY(check_choice("ratio_level", o.ratio_level, {"token", "sequence"}));
  BRAID_TRY(check_choice("old_logprobs", o.old_logprobs, {"recompute", "sampler"}));
  BRAID_TRY(check_choice("kl.estimator", o.kl.estimator, {"k1", "k2", "k3"}));
  BRAID_TRY(check_choice("kl.in", o.kl.in, {"reward", "loss", "own"}));
  BRAID_TRY(
      check_choice("preference_loss", o.preference_loss, {"sigmoid", "ipo", "hinge", "robust"}));
  return check_choice("kl.controller", o.kl.controller, {"fixed", "adaptive"});
}

Status check_numbers(const AlgorithmOptions& o) {
  BRAID_TRY(check_range("gamma", o.gamma, 0, 1));
  BRAID_TRY(check_range("lam", o.lam, 0, 1));
  BRAID_TRY(check_range("kl.coef", o.kl.coef, 0, kLargest));
  BRAID_TRY(check_range("clip_low", o.clip_low, 0, 1));
  BRAID_TRY(check_range("clip_high", o.clip_high, 0, kLargest));
  BRAID_TRY(check_range("entropy_coef", o.entropy_coef, -kLargest, kLargest));
  BRAID_TRY(check_range("value_clip", o.value_clip, 0, kLargest));
  BRAID_TRY(check_range("critic_coef", o.critic_coef, 0, kLargest));
  BRAID_TRY(check_range("stop_kl", o.stop_kl, 0, kLargest));
  BRAID_TRY(check_range("tis_cap", o.tis_cap, 0, kLargest));
  BRAID_TRY(check_range("label_smoothing", o.label_smoothing, 0, 0.5));
  BRAID_TRY(check_range("wanted_weight", o.wanted_weight, 0, kLargest));
  BRAID_TRY(check_range("unwanted_weight", o.unwanted_weight, 0, kLargest));
  if (!(o.beta > 0 && o.beta <= kLargest))
    return invalid_input(cat("algorithm.beta: ", format_double(o.beta),
                             " is out of range; allowed: a number above 0"));
  if (o.dual_clip == 0 || (o.dual_clip > 1 && o.dual_clip <= kLargest)) return {};
  return invalid_input(cat("algorithm.dual_clip: ", format_double(o.dual_clip),
                           " is out of range; allowed: 0 (off) or a number above 1"));
}

Status check_own_functions(const AlgorithmOptions& o) {
  for (const auto& [key, value] :
       {std::pair("loss", o.loss), std::pair("advantages", o.advantages)})
    if (!value.empty() && !value.ends_with(".so"))
      return invalid_input(cat("algorithm.", key, ": ", value,
                               " is no library; 'braid build-loss FILE.cc' makes FILE.so, which "
                               "goes here"));
  if (o.kl.in == "own" && o.loss.empty())
    return invalid_input(
        "algorithm.kl.in: own leaves the penalty to algorithm.loss, which is not set; use reward "
        "or "
        "loss");
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
  if (o.preference_loss == "robust" && o.label_smoothing >= 0.5)
    return invalid_input("algorithm.label_smoothing: robust needs less than 0.5");
  const bool smooths = o.preference_loss == "sigmoid" || o.preference_loss == "robust";
  if (o.label_smoothing > 0 && !smooths)
    return invalid_input(cat("algorithm.label_smoothing: preference_loss ", o.preference_loss,
                             " has none; use sigmoid or robust, or 0"));
  const AlgorithmTraits traits = algorithm_traits(o.name);
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
  BRAID_TRY(check_choices(options));
  BRAID_TRY(check_numbers(options));
  BRAID_TRY(check_own_functions(options));
  return check_combinations(options);
}

}  // namespace braid::inline config
