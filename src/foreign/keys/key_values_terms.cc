// Terms of a loss as the switches of other frameworks leave them: KL penalties, clips, corrections
// for a sampler that disagrees, and distillation.
#include "base/text.h"
#include "foreign/keys/names.h"
#include "foreign/keys/value_helpers.h"

namespace braid::inline foreign_keys {
namespace key_advice {
namespace {

constexpr const char* kNoPenalty = "algorithm.kl.coef: 0";

bool distils(const ForeignContext& context) {
  return says_on(context.root, "distillation.enabled");
}

// Its algorithm.kl.coef is the weight of the teacher.
ForeignAdvice beside_a_teacher() {
  return nothing_as("distill has one divergence, that to the teacher");
}

ForeignAdvice is_switched_off(const std::string& key) { return nothing_as(cat(key, " is off")); }

}  // namespace

// verl and OpenRLHF's older names. Neither in the loss nor in the reward: there is no penalty,
// where OpenRLHF's has its weight from another key.
ForeignAdvice kl_in_loss(const std::string& value, const ForeignContext& context) {
  if (distils(context)) return beside_a_teacher();
  if (is_true(value)) return value_of("loss");
  if (!is_false(value)) return {};
  if (says_on(context.root, "use_kl_in_reward")) return nothing_as("use_kl_in_reward says reward");
  return number_of(context.root, {"init_kl_coef"}) ? value_of("reward") : lines_of(kNoPenalty);
}

ForeignAdvice kl_in_reward(const std::string& value, const ForeignContext& context) {
  if (distils(context)) return beside_a_teacher();
  if (is_true(value)) return value_of("reward");
  if (!is_false(value)) return {};
  if (says_on(context.root, "use_kl_loss")) return nothing_as("use_kl_loss says loss");
  return lines_of(kNoPenalty);
}

ForeignAdvice kl_of_openrlhf(const std::string& value, const ForeignContext&) {
  if (is_true(value)) return value_of("loss");
  return is_false(value) ? value_of("reward") : ForeignAdvice();
}

ForeignAdvice coef_in_loss(const std::string& value, const ForeignContext& context) {
  if (distils(context)) return beside_a_teacher();
  return says_off(context.root, "use_kl_loss") ? is_switched_off("use_kl_loss") : value_of(value);
}

ForeignAdvice coef_in_reward(const std::string& value, const ForeignContext& context) {
  if (distils(context)) return beside_a_teacher();
  return says_off(context.root, "use_kl_in_reward") ? is_switched_off("use_kl_in_reward")
                                                    : value_of(value);
}

ForeignAdvice kl_estimator(const std::string& value, const ForeignContext&) {
  return choose(
      {{"kl", "k1"}, {"k1", "k1"}, {"mse", "k2"}, {"k2", "k2"}, {"low_var_kl", "k3"}, {"k3", "k3"}},
      value);
}

ForeignAdvice kl_estimator_in_loss(const std::string& value, const ForeignContext& context) {
  return says_off(context.root, "use_kl_loss") ? is_switched_off("use_kl_loss")
                                               : kl_estimator(value, context);
}

ForeignAdvice kl_estimator_in_reward(const std::string& value, const ForeignContext& context) {
  return says_off(context.root, "use_kl_in_reward") ? is_switched_off("use_kl_in_reward")
                                                    : kl_estimator(value, context);
}

ForeignAdvice kl_controller(const std::string& value, const ForeignContext& context) {
  return says_off(context.root, "use_kl_in_reward") ? is_switched_off("use_kl_in_reward")
                                                    : value_of(value);
}

// OpenRLHF has an adaptive controller where it has a target.
ForeignAdvice adaptive_target(const std::string& value, const ForeignContext&) {
  if (is_null(value)) return nothing_as("without a target the weight is fixed");
  return lines_of(cat("algorithm.kl.controller: adaptive' and 'algorithm.kl.target: ", value));
}

ForeignAdvice adaptive_only(const std::string& value, const ForeignContext& context) {
  const bool fixed = text_of(context.root, "kl_ctrl.type").value_or("") == "fixed" ||
                     is_null(text_of(context.root, "kl.target").value_or("1")) ||
                     is_null(text_of(context.root, "kl_target").value_or("1"));
  return fixed ? nothing_as("the weight is fixed") : value_of(value);
}

// verl takes the two that are said one by one, TRL the upper one.
ForeignAdvice both_clips(const std::string& value, const ForeignContext& context) {
  if (number_of(context.root, {"clip_ratio_low"}) && number_of(context.root, {"clip_ratio_high"}))
    return nothing_as("clip_ratio_low and clip_ratio_high are said, which count");
  if (text_of(context.root, "eps_clip_low_high") &&
      !numbers_in(*text_of(context.root, "eps_clip_low_high")).empty())
    return nothing_as("eps_clip_low_high is said, which counts");
  if (number_of(context.root, {"epsilon_high"}))
    return lines_of(cat("algorithm.clip_low: ", value));
  return lines_of(cat("algorithm.clip_low: ", value, "' and 'algorithm.clip_high: ", value));
}

ForeignAdvice low_and_high_clip(const std::string& value, const ForeignContext&) {
  if (is_null(value)) return nothing_as("eps_clip says both");
  const std::vector<double> bounds = numbers_in(value);
  if (bounds.size() != 2) return {};
  return lines_of(cat("algorithm.clip_low: ", format_double(bounds[0]),
                      "' and 'algorithm.clip_high: ", format_double(bounds[1])));
}

namespace {

// The upper bound, OpenRLHF's own where nothing is said.
std::string cap_of(const std::string& bounds) {
  const std::vector<double> numbers = numbers_in(bounds);
  return numbers.empty() ? "5" : format_double(numbers.back());
}

}  // namespace

ForeignAdvice tis_switch(const std::string& value, const ForeignContext& context) {
  if (is_false(value)) return value_of("0");
  if (!is_true(value)) return {};
  return value_of(cap_of(text_of(context.root, "is_correction_threshold").value_or("")));
}

ForeignAdvice tis_bounds(const std::string& value, const ForeignContext& context) {
  if (says_off(context.root, "is_correction_enable"))
    return is_switched_off("is_correction_enable");
  if (numbers_in(value).empty()) return {};
  ForeignAdvice out = value_of(cap_of(value));
  if (numbers_in(value).size() > 1) out.remark = "weights have no lower bound";
  return out;
}

namespace {

// Of a key that only a distillation reads.
ForeignAdvice of_distillation(const ForeignContext& context, const std::string& why) {
  if (says_off(context.root, "distillation.enabled"))
    return is_switched_off("distillation.enabled");
  return nothing_as(why);
}

}  // namespace

ForeignAdvice distillation(const std::string& value, const ForeignContext& context) {
  if (is_false(value)) return nothing_as("adv_estimator says what is trained");
  return is_true(value) ? algorithm_advice("distill", context.algorithms) : ForeignAdvice();
}

ForeignAdvice loss_of_distillation(const std::string& value, const ForeignContext& context) {
  if (value == "k1" || value == "kl")
    return of_distillation(context, "it is the divergence that distill has");
  return of_distillation(context,
                         "distill has the reverse KL of a token as it was sampled, which is k1");
}

ForeignAdvice gradient_of_distillation(const std::string& value, const ForeignContext& context) {
  if (is_true(value)) return of_distillation(context, "it is what distill does");
  return of_distillation(
      context, "distill has the divergence as a reward of tokens and not as a loss, which is True");
}

ForeignAdvice rewards_of_distillation(const std::string& value, const ForeignContext& context) {
  if (is_false(value)) return of_distillation(context, "it is what distill does");
  return of_distillation(context, "distill learns from the teacher alone, which is False");
}

ForeignAdvice path_of_teacher(const std::string& value, const ForeignContext& context) {
  if (is_null(value)) return nothing_as("there is no teacher");
  return says_off(context.root, "distillation.enabled") ? is_switched_off("distillation.enabled")
                                                        : value_of(value);
}

namespace {

// What is called an estimator or a loss there, where it is an algorithm here.
ForeignAdvice named_algorithm(const std::string& what, const std::string& value,
                              const ForeignContext& context) {
  ForeignAdvice advice = algorithm_advice(value, context.algorithms);
  if (advice.kind == Kind::kNone)
    advice = nothing_as(cat("there is no ", what, " '", value, "'; algorithm.name may be ",
                            join(context.algorithms, ", ")));
  advice.key = "algorithm.name";
  return advice;
}

bool is_clipped_loss(const std::string& name) { return name == "vanilla" || name == "ppo"; }

bool is_of_groups(const std::string& estimator) {
  return estimator.find("grpo") != std::string::npos || estimator == "group_norm";
}

std::string estimator_of(const YamlNode& root) {
  for (const char* key : {"adv_estimator", "advantage_estimator", "advantage.estimator"})
    if (const auto text = text_of(root, key)) return *text;
  return "";
}

std::string loss_of(const YamlNode& root) {
  for (const char* key : {"policy_loss.loss_mode", "policy_loss_type"})
    if (const auto text = text_of(root, key)) return *text;
  return "vanilla";
}

}  // namespace

ForeignAdvice algorithm_of_loss(const std::string& value, const ForeignContext& context) {
  return named_algorithm("loss", value, context);
}

ForeignAdvice estimator_to_algorithm(const std::string& value, const ForeignContext& context) {
  if (distils(context)) return nothing_as("distillation.enabled says algorithm.name: distill");
  const std::string loss = loss_of(context.root);
  if (is_of_groups(value) && !is_clipped_loss(loss) &&
      algorithm_advice(loss, context.algorithms).kind == Kind::kLines)
    return nothing_as(cat("the loss ", loss, " says algorithm.name, with advantages of groups"));
  // OpenRLHF's name of REINFORCE++
  for (const std::string& name : context.algorithms)
    if (value == "reinforce" && name == "reinforce_plus_plus")
      return named_algorithm("estimator", name, context);
  return named_algorithm("estimator", value, context);
}

// Of verl's actor.policy_loss and OpenRLHF's policy_loss_type.
ForeignAdvice loss_mode(const std::string& value, const ForeignContext& context) {
  if (is_clipped_loss(value)) return nothing_as("the clipped loss is the one that there is");
  const std::string estimator = estimator_of(context.root);
  const bool own = estimator.empty() || is_of_groups(estimator) || distils(context);
  if (!own && value == "gspo") return lines_of("algorithm.ratio_level: sequence");
  if (!own) return nothing_as(cat(value, " goes with advantages of groups, not with ", estimator));
  return named_algorithm("loss", value, context);
}

// verl's, which counts for its GRPO alone.
ForeignAdvice spread_of_grpo(const std::string& value, const ForeignContext& context) {
  const std::string estimator = estimator_of(context.root);
  if (!estimator.empty() && !is_of_groups(estimator))
    return nothing_as(cat("advantages of ", estimator, " are not divided by it"));
  return group_normalization(value, context);
}

// TRL's RLOO.
ForeignAdvice whitened_advantages(const std::string& value, const ForeignContext&) {
  return choose({{"true", "batch"}, {"True", "batch"}, {"false", "none"}, {"False", "none"}},
                value);
}

// OpenRLHF's.
ForeignAdvice without_spread(const std::string& value, const ForeignContext&) {
  if (is_false(value)) return nothing_as("algorithm.name says how advantages are divided");
  return is_true(value) ? value_of("none") : ForeignAdvice();
}

}  // namespace key_advice
}  // namespace braid::inline foreign_keys
