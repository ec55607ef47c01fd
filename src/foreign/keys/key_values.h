// Values of other frameworks' keys as values of ours: what key_table.cc names per key. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"

namespace braid::inline foreign_keys {

// What a conversion may look at beside the value.
struct ForeignContext {
  const std::string& path;                     // dotted, as it was written
  const YamlNode& root;                        // the whole configuration
  const std::vector<std::string>& algorithms;  // that algorithm.name may name
};

// What to write in place of a value.
struct ForeignAdvice {
  enum class Kind {
    kNone,     // nothing can be said of the value
    kValue,    // text: the value of our key
    kLines,    // text: whole "key: value" lines, several joined by "' and '"
    kRule,     // text: how the value is found, where that takes more than the configuration
    kNothing,  // text: why nothing takes the place of this value
    kNoKey,    // text: why nothing takes the place of the key in this configuration
  };
  Kind kind = Kind::kNone;
  std::string text;
  std::string remark = "";  // what else to know of a value
  std::string key = "";     // what the key is in this configuration; "" = what the table says
  std::vector<std::string> items = {};  // of a list: the key that each of its items comes from
};

// Our value for theirs.
using ConvertKey = ForeignAdvice (*)(const std::string& value, const ForeignContext& context);

namespace key_advice {

// Switches and names.
ForeignAdvice no_conversion(const std::string& value, const ForeignContext& context);
ForeignAdvice trackers(const std::string& value, const ForeignContext& context);
ForeignAdvice project_of_tracker(const std::string& value, const ForeignContext& context);
ForeignAdvice adapters(const std::string& value, const ForeignContext& context);
ForeignAdvice offloads(const std::string& value, const ForeignContext& context);
ForeignAdvice always_sampled(const std::string& value, const ForeignContext& context);
ForeignAdvice sampled_evaluation(const std::string& value, const ForeignContext& context);
ForeignAdvice temperature_of_evaluation(const std::string& value, const ForeignContext& context);
ForeignAdvice switched_on(const std::string& value, const ForeignContext& context);
ForeignAdvice as_boolean(const std::string& value, const ForeignContext& context);
ForeignAdvice negated(const std::string& value, const ForeignContext& context);
ForeignAdvice every_step(const std::string& value, const ForeignContext& context);
ForeignAdvice zero_is_off(const std::string& value, const ForeignContext& context);
ForeignAdvice one_file(const std::string& value, const ForeignContext& context);

// Batches, steps and tokens: whole numbers that divide where ours must, or a rule.
ForeignAdvice completions_to_prompts(const std::string& value, const ForeignContext& context);
ForeignAdvice micro_completions_to_prompts(const std::string& value, const ForeignContext& context);
ForeignAdvice prompts_to_minibatches(const std::string& value, const ForeignContext& context);
ForeignAdvice sequences_to_minibatches(const std::string& value, const ForeignContext& context);
ForeignAdvice sequences_to_tokens(const std::string& value, const ForeignContext& context);
ForeignAdvice completions_to_episodes(const std::string& value, const ForeignContext& context);
ForeignAdvice epochs_to_steps(const std::string& value, const ForeignContext& context);
ForeignAdvice ratio_to_warmup(const std::string& value, const ForeignContext& context);
ForeignAdvice steps_or_share(const std::string& value, const ForeignContext& context);
ForeignAdvice updates_or_share(const std::string& value, const ForeignContext& context);
ForeignAdvice updates_to_steps(const std::string& value, const ForeignContext& context);
ForeignAdvice eval_interval(const std::string& value, const ForeignContext& context);
ForeignAdvice eval_strategy(const std::string& value, const ForeignContext& context);
ForeignAdvice steps_of_run(const std::string& value, const ForeignContext& context);
ForeignAdvice rollouts_to_updates(const std::string& value, const ForeignContext& context);
ForeignAdvice steps_between_syncs(const std::string& value, const ForeignContext& context);
ForeignAdvice micro_batches_to_minibatches(const std::string& value, const ForeignContext& context);
ForeignAdvice accumulation_to_minibatches(const std::string& value, const ForeignContext& context);

// Algorithms, losses and optimizers.
ForeignAdvice both_clips(const std::string& value, const ForeignContext& context);
ForeignAdvice low_and_high_clip(const std::string& value, const ForeignContext& context);
ForeignAdvice clip_range(const std::string& value, const ForeignContext& context);
ForeignAdvice two_betas(const std::string& value, const ForeignContext& context);
ForeignAdvice list_of_two(const std::string& value, const ForeignContext& context);
ForeignAdvice floor_to_ratio(const std::string& value, const ForeignContext& context);
ForeignAdvice estimator_to_algorithm(const std::string& value, const ForeignContext& context);
ForeignAdvice loss_mode(const std::string& value, const ForeignContext& context);
ForeignAdvice algorithm_of_loss(const std::string& value, const ForeignContext& context);
ForeignAdvice distillation(const std::string& value, const ForeignContext& context);
ForeignAdvice loss_of_distillation(const std::string& value, const ForeignContext& context);
ForeignAdvice gradient_of_distillation(const std::string& value, const ForeignContext& context);
ForeignAdvice rewards_of_distillation(const std::string& value, const ForeignContext& context);
ForeignAdvice path_of_teacher(const std::string& value, const ForeignContext& context);
ForeignAdvice strength_of_reference(const std::string& value, const ForeignContext& context);
ForeignAdvice loss_aggregation(const std::string& value, const ForeignContext& context);
ForeignAdvice ratio_level(const std::string& value, const ForeignContext& context);
ForeignAdvice sync_of_reference(const std::string& value, const ForeignContext& context);
ForeignAdvice mix_of_reference(const std::string& value, const ForeignContext& context);
ForeignAdvice group_normalization(const std::string& value, const ForeignContext& context);
ForeignAdvice spread_of_grpo(const std::string& value, const ForeignContext& context);
ForeignAdvice whitened_advantages(const std::string& value, const ForeignContext& context);
ForeignAdvice without_spread(const std::string& value, const ForeignContext& context);
ForeignAdvice tis_switch(const std::string& value, const ForeignContext& context);
ForeignAdvice tis_bounds(const std::string& value, const ForeignContext& context);
ForeignAdvice kl_estimator(const std::string& value, const ForeignContext& context);
ForeignAdvice kl_in_loss(const std::string& value, const ForeignContext& context);
ForeignAdvice kl_in_reward(const std::string& value, const ForeignContext& context);
ForeignAdvice kl_of_openrlhf(const std::string& value, const ForeignContext& context);
ForeignAdvice coef_in_loss(const std::string& value, const ForeignContext& context);
ForeignAdvice coef_in_reward(const std::string& value, const ForeignContext& context);
ForeignAdvice kl_estimator_in_loss(const std::string& value, const ForeignContext& context);
ForeignAdvice kl_estimator_in_reward(const std::string& value, const ForeignContext& context);
ForeignAdvice kl_controller(const std::string& value, const ForeignContext& context);
ForeignAdvice adaptive_target(const std::string& value, const ForeignContext& context);
ForeignAdvice adaptive_only(const std::string& value, const ForeignContext& context);
ForeignAdvice schedule(const std::string& value, const ForeignContext& context);

// Models, data, rewards and the run.
ForeignAdvice dtype(const std::string& value, const ForeignContext& context);
ForeignAdvice kept_dtype(const std::string& value, const ForeignContext& context);
ForeignAdvice half_precision(const std::string& value, const ForeignContext& context);
ForeignAdvice truncation(const std::string& value, const ForeignContext& context);
ForeignAdvice truncation_of_sequence(const std::string& value, const ForeignContext& context);
ForeignAdvice sampling_strategy(const std::string& value, const ForeignContext& context);
ForeignAdvice to_chat(const std::string& value, const ForeignContext& context);
ForeignAdvice learned_turns(const std::string& value, const ForeignContext& context);
ForeignAdvice template_argument(const std::string& value, const ForeignContext& context);
ForeignAdvice reward_model_entry(const std::string& value, const ForeignContext& context);
ForeignAdvice reward_url(const std::string& value, const ForeignContext& context);
ForeignAdvice reward_functions(const std::string& value, const ForeignContext& context);
ForeignAdvice reward_function(const std::string& value, const ForeignContext& context);
ForeignAdvice function_of_entry(const std::string& value, const ForeignContext& context);
ForeignAdvice resume(const std::string& value, const ForeignContext& context);
ForeignAdvice save_strategy(const std::string& value, const ForeignContext& context);
ForeignAdvice buffer_switch(const std::string& value, const ForeignContext& context);
ForeignAdvice buffer_length(const std::string& value, const ForeignContext& context);
ForeignAdvice cpu_switch(const std::string& value, const ForeignContext& context);
ForeignAdvice device_name(const std::string& value, const ForeignContext& context);

// Devices and how calls share them.
ForeignAdvice devices_of_cluster(const std::string& value, const ForeignContext& context);
ForeignAdvice devices_of_role(const std::string& value, const ForeignContext& context);
ForeignAdvice engine_tp(const std::string& value, const ForeignContext& context);
ForeignAdvice engine_dp(const std::string& value, const ForeignContext& context);
ForeignAdvice update_tp(const std::string& value, const ForeignContext& context);
ForeignAdvice update_pp(const std::string& value, const ForeignContext& context);
ForeignAdvice zero_of_all(const std::string& value, const ForeignContext& context);
ForeignAdvice zero_group(const std::string& value, const ForeignContext& context);
ForeignAdvice sharded(const std::string& value, const ForeignContext& context);
ForeignAdvice colocated(const std::string& value, const ForeignContext& context);

}  // namespace key_advice

}  // namespace braid::inline foreign_keys
