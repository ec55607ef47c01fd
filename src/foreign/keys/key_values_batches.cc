// Batches, steps and tokens of other frameworks as ours.
#include <algorithm>
#include <cmath>

#include "base/contains.h"
#include "base/text.h"
#include "foreign/keys/value_helpers.h"

namespace braid::inline foreign_keys {
namespace key_advice {
namespace {

// So many mini-batches of a rollout, or the nearest number of them that there can be.
ForeignAdvice minibatches(int64_t sequences, double wanted) {
  int64_t best = 1;
  for (int64_t parts = 1; parts <= sequences && parts <= 4 * std::max(wanted, 1.0); ++parts)
    if (sequences % parts == 0 && std::abs(parts - wanted) < std::abs(best - wanted)) best = parts;
  ForeignAdvice out = value_of(cat(best));
  if (best != wanted)
    out.remark = cat("the nearest number that divides the ", sequences, " sequences of a rollout");
  return out;
}

// Algorithms that learn from samples that the data give: a prompt is a sample.
bool learns_from_data(const ForeignContext& context) {
  static const std::vector<std::string> names = {"dpo", "kto", "orpo", "sft", "rm"};
  return contains(names, name_of_algorithm(context.root));
}

ForeignAdvice prompts_for(int64_t completions, const ForeignContext& context) {
  if (learns_from_data(context)) return value_of(cat(completions));
  const auto group = group_size(context.root);
  if (!group) return rule_of(cat(completions, " / rollout.samples_per_prompt"));
  const int64_t prompts = std::max<int64_t>(1, (completions + *group / 2) / *group);
  ForeignAdvice out = value_of(cat(prompts));
  if (prompts * *group != completions)
    out.remark = cat("each with ", *group, " responses, so ", prompts * *group, " in all");
  return out;
}

// Of TRL: a rollout is steps_per_generation micro-batches, an optimizer step
// gradient_accumulation_steps of them (GRPOConfig.__post_init__ and GRPOTrainer._prepare_inputs of
// TRL 1.9).
struct TrlSteps {
  int64_t of_rollout = 1, of_update = 1;  // micro-batches
};

TrlSteps trl_steps(const YamlNode& root) {
  TrlSteps out;
  out.of_update = count_of(root, {"gradient_accumulation_steps"}).value_or(1);
  out.of_rollout = count_of(root, {"steps_per_generation"}).value_or(out.of_update);
  const auto whole = count_of(root, {"generation_batch_size"});
  const auto each = count_of(root, {"per_device_train_batch_size"});
  if (whole && each && *whole % *each == 0) out.of_rollout = *whole / *each;
  return out;
}

ForeignAdvice trl_minibatches(const TrlSteps& steps) {
  if (steps.of_rollout % steps.of_update == 0)
    return value_of(cat(steps.of_rollout / steps.of_update));
  if (steps.of_update % steps.of_rollout == 0) {
    ForeignAdvice one = value_of("1");
    one.remark = "with the completions of one optimizer step as a rollout";
    return one;
  }
  return nothing_as(cat("of ", steps.of_rollout,
                        " micro-batches of a rollout an optimizer step takes ", steps.of_update,
                        ", and one would be of two rollouts"));
}

}  // namespace

ForeignAdvice micro_batches_to_minibatches(const std::string& value,
                                           const ForeignContext& context) {
  if (is_null(value)) return nothing_as("it is gradient_accumulation_steps, one optimizer step");
  return parse_count(value) ? trl_minibatches(trl_steps(context.root)) : ForeignAdvice();
}

// Where nothing says how many micro-batches a rollout has, it is those of one optimizer step.
ForeignAdvice accumulation_to_minibatches(const std::string& value, const ForeignContext& context) {
  const bool one = !count_of(context.root, {"steps_per_generation"}) &&
                   !count_of(context.root, {"generation_batch_size"});
  if (one)
    return nothing_as(
        "micro-batches are cut by tokens and change no result; per_device_train_batch_size counts "
        "with it");
  if (!parse_count(value)) return {};
  ForeignAdvice out = trl_minibatches(trl_steps(context.root));
  out.key = "train.minibatches";
  return out;
}

ForeignAdvice completions_to_prompts(const std::string& value, const ForeignContext& context) {
  const auto completions = parse_count(value);
  return completions ? prompts_for(*completions, context) : ForeignAdvice();
}

// Of one device and micro-batch (TRL).
ForeignAdvice micro_completions_to_prompts(const std::string& value,
                                           const ForeignContext& context) {
  const auto completions = parse_count(value);
  if (!completions) return {};
  const TrlSteps steps = trl_steps(context.root);
  const int64_t batches =
      learns_from_data(context) ? steps.of_update : std::max(steps.of_rollout, steps.of_update);
  return prompts_for(*completions * batches, context);
}

// A mini-batch's size in prompts (verl) to the number of mini-batches.
ForeignAdvice prompts_to_minibatches(const std::string& value, const ForeignContext& context) {
  const auto size = parse_count(value);
  const auto prompts = count_of(context.root, {"rollout_batch_size", "prompts_per_step",
                                               "num_prompts_per_step", "train_batch_size"});
  if (!size) return {};
  if (!prompts) return rule_of(cat("rollout.prompts_per_step / ", value));
  return minibatches(*prompts * group_size(context.root).value_or(1),
                     static_cast<double>(*prompts) / static_cast<double>(*size));
}

// A mini-batch's size in sequences to the number of mini-batches.
ForeignAdvice sequences_to_minibatches(const std::string& value, const ForeignContext& context) {
  const auto size = parse_count(value);
  if (!size) return {};
  auto prompts =
      count_of(context.root, {"rollout_batch_size", "prompts_per_step", "num_prompts_per_step"});
  if (const YamlNode* rollout = context.root.find("rollout"); !prompts && rollout != nullptr)
    prompts = count_of(*rollout, {"batch_size"});
  if (!prompts)
    return rule_of(cat("rollout.prompts_per_step x rollout.samples_per_prompt / ", value));
  const int64_t sequences = *prompts * group_size(context.root).value_or(1);
  return minibatches(sequences, static_cast<double>(sequences) / static_cast<double>(*size));
}

ForeignAdvice sequences_to_tokens(const std::string& value, const ForeignContext& context) {
  const auto sequences = parse_count(value);
  const auto prompt =
      count_of(context.root, {"max_prompt_length", "prompt_max_len", "prompt_length"});
  const auto response = longest_response(context.root);
  if (is_null(value)) return nothing_as("no number of sequences is said");
  if (!sequences) return {};
  if (prompt && response) return value_of(cat(*sequences * (*prompt + *response)));
  return rule_of(cat(value, " x (data.max_prompt_length + rollout.max_response_length)"));
}

ForeignAdvice completions_to_episodes(const std::string& value, const ForeignContext&) {
  return parse_count(value) ? lines_of("train.total_episodes: " + value) : ForeignAdvice();
}

ForeignAdvice epochs_to_steps(const std::string& value, const ForeignContext& context) {
  if (count_of(context.root, {"max_steps", "total_training_steps"}))
    return nothing_as("the number of steps is said, which counts");
  return rule_of(cat(value, " x lines of data.train / rollout.prompts_per_step"));
}

// verl's; null leaves it to the epochs.
ForeignAdvice steps_of_run(const std::string& value, const ForeignContext&) {
  if (is_off(value)) return nothing_as("it is left to the epochs over the data (total_epochs)");
  return value_of(value);
}

namespace {

// Optimizer steps in rollouts, so many of them each.
ForeignAdvice in_rollouts(int64_t updates, int64_t of_rollout) {
  ForeignAdvice out = value_of(cat((updates + of_rollout - 1) / of_rollout));
  if (of_rollout > 1) out.remark = cat("of ", of_rollout, " optimizer steps each");
  return out;
}

}  // namespace

// TRL counts optimizer steps, and where it is -1 epochs.
ForeignAdvice updates_to_steps(const std::string& value, const ForeignContext& context) {
  if (is_off(value)) return nothing_as("it is left to the epochs over the data (num_train_epochs)");
  const auto updates = parse_count(value);
  return updates ? in_rollouts(*updates, updates_of_rollout(context.root)) : ForeignAdvice();
}

// verl moves its learning rate once a rollout.
ForeignAdvice rollouts_to_updates(const std::string& value, const ForeignContext& context) {
  if (is_off(value)) return value_of("0");
  const auto rollouts = parse_count(value);
  if (!rollouts) return value == "0" ? value_of("0") : ForeignAdvice();
  return value_of(cat(*rollouts * updates_of_rollout(context.root)));
}

ForeignAdvice ratio_to_warmup(const std::string& value, const ForeignContext& context) {
  double ratio = 0;
  if (!parse_double(value, &ratio) || ratio < 0 || ratio > 1) return {};
  if (ratio == 0) return nothing_as("0 is no warm-up, as where nothing is said");
  auto updates = count_of(context.root, {"max_steps"});
  if (const auto steps = count_of(context.root, {"total_steps", "total_training_steps"}))
    updates = *steps * updates_of_rollout(context.root);
  return updates ? value_of(cat(static_cast<int64_t>(ratio * static_cast<double>(*updates))))
                 : rule_of(cat(value, " x the optimizer steps of the run"));
}

// TRL moves the reference every 512 steps where nothing else is said.
static std::string steps_of_reference(const ForeignContext& context) {
  const int64_t updates = count_of(context.root, {"ref_model_sync_steps"}).value_or(512);
  return in_rollouts(updates, updates_of_rollout(context.root)).text;
}

ForeignAdvice sync_of_reference(const std::string& value, const ForeignContext& context) {
  if (is_false(value)) return value_of("0");
  return is_true(value) ? value_of(steps_of_reference(context)) : ForeignAdvice();
}

// What its share leaves to the reference.
ForeignAdvice mix_of_reference(const std::string& value, const ForeignContext& context) {
  double share = 0;
  if (says_off(context.root, "sync_ref_model")) return nothing_as("sync_ref_model is off");
  if (!parse_double(value, &share) || share <= 0 || share > 1) return {};
  return lines_of(cat("reference.ema: ", format_double(1 - share),
                      "' and 'reference.sync_every: ", steps_of_reference(context)));
}

ForeignAdvice steps_between_syncs(const std::string& value, const ForeignContext& context) {
  if (says_off(context.root, "sync_ref_model")) return nothing_as("sync_ref_model is off");
  return updates_to_steps(value, context);
}

// A number of steps, or below 1 a share of all (transformers).
ForeignAdvice steps_or_share(const std::string& value, const ForeignContext& context) {
  double number = 0;
  if (is_off(value)) return value_of("0");
  if (!parse_double(value, &number) || number < 0) return {};
  if (number == 0 || number >= 1)
    return number == std::floor(number) ? value_of(value) : ForeignAdvice();
  const auto steps = count_of(context.root, {"total_steps", "max_steps", "total_training_steps"});
  if (!steps) return rule_of(cat(value, " x train.total_steps"));
  return value_of(cat(
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(number * static_cast<double>(*steps))))));
}

// The same where steps are optimizer steps (TRL).
ForeignAdvice updates_or_share(const std::string& value, const ForeignContext& context) {
  const bool trl = count_of(context.root, {"steps_per_generation", "generation_batch_size",
                                           "num_iterations", "num_ppo_epochs", "num_mini_batches"})
                       .has_value();
  const ForeignAdvice counted = steps_or_share(value, context);
  const auto updates = counted.kind == Kind::kValue ? parse_count(counted.text) : std::nullopt;
  if (!trl || !updates) return counted;
  return in_rollouts(*updates, updates_of_rollout(context.root));
}

// Trainers of samples that the data give evaluate by their loss on other such samples.
static ForeignAdvice without_eval_loss(const std::string& steps) {
  return rule_of(cat(steps,
                     ", where data.eval has prompts and reward has entries: an evaluation scores "
                     "responses, and there is none by a loss on held-out data"));
}

ForeignAdvice eval_interval(const std::string& value, const ForeignContext& context) {
  for (const char* key : {"eval_strategy", "evaluation_strategy"})
    if (text_of(context.root, key) == "no") return nothing_as(cat(key, " is no"));
  const ForeignAdvice counted = updates_or_share(value, context);
  const bool off = counted.kind == Kind::kValue && counted.text == "0";
  if (!learns_from_data(context) || off) return counted;
  return without_eval_loss(counted.text.empty() ? value : counted.text);
}

ForeignAdvice eval_strategy(const std::string& value, const ForeignContext& context) {
  const char* steps = "the number of steps itself (eval_steps)";
  if (value == "no") return value_of("0");
  if (value == "steps" && count_of(context.root, {"eval_steps"}))
    return nothing_as("eval_steps says how often");
  return learns_from_data(context) ? without_eval_loss(steps) : rule_of(steps);
}

}  // namespace key_advice
}  // namespace braid::inline foreign_keys
