#include "foreign/keys/key_values.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/contains.h"
#include "base/text.h"
#include "foreign/keys/names.h"

namespace braid::inline foreign_keys {
namespace foreign {
namespace {

using Kind = ForeignAdvice::Kind;
using Choices = std::map<std::string, std::string>;

ForeignAdvice value_of(const std::string& text) { return {Kind::kValue, text}; }
ForeignAdvice lines_of(const std::string& text) { return {Kind::kLines, text}; }
ForeignAdvice rule_of(const std::string& text) { return {Kind::kRule, text}; }
ForeignAdvice nothing_as(const std::string& why) { return {Kind::kNothing, why}; }

// The first number in the tree whose key has one of the names, wherever it stands.
std::optional<double> number_of(const YamlNode& node, const std::vector<std::string>& names) {
  for (const auto& [key, value] : node.map) {
    double number = 0;
    std::string name = key;
    std::replace(name.begin(), name.end(), '-', '_');
    for (const std::string& wanted : names)
      if (name == wanted && parse_double(value.scalar, &number)) return number;
    if (const auto below = number_of(value, names)) return below;
  }
  return std::nullopt;
}

// The same where the number is a count.
std::optional<int64_t> count_of(const YamlNode& root, const std::vector<std::string>& names) {
  const auto number = number_of(root, names);
  if (!number || *number < 1 || *number > 1e9 || *number != std::floor(*number))
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<int64_t> parse_count(const std::string& text) {
  int64_t count = 0;
  if (!parse_int(text, &count) || count < 1 || count > 1'000'000'000) return std::nullopt;
  return count;
}

std::optional<int64_t> group_size(const YamlNode& root) {
  return count_of(root, {"num_generations", "n_samples_per_prompt", "samples_per_prompt", "n",
                         "num_generations_per_prompt", "group_size"});
}

std::optional<int64_t> longest_response(const YamlNode& root) {
  return count_of(root, {"max_response_length", "max_completion_length", "generate_max_len",
                         "max_new_tokens", "response_length"});
}

bool is_true(const std::string& value) { return value == "true" || value == "True"; }
bool is_false(const std::string& value) { return value == "false" || value == "False"; }

bool is_off(const std::string& value) {
  return value == "-1" || value == "null" || value == "None" || value == "none" || value.empty();
}

ForeignAdvice choose(const Choices& choices, const std::string& value) {
  const auto found = choices.find(value);
  return found == choices.end() ? ForeignAdvice() : value_of(found->second);
}

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

ForeignAdvice prompts_for(int64_t completions, const ForeignContext& context) {
  const auto group = group_size(context.root);
  if (!group) return rule_of(cat(completions, " / rollout.samples_per_prompt"));
  const int64_t prompts = std::max<int64_t>(1, (completions + *group / 2) / *group);
  ForeignAdvice out = value_of(cat(prompts));
  if (prompts * *group != completions)
    out.remark = cat("each with ", *group, " responses, so ", prompts * *group, " in all");
  return out;
}

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

// The last but one name of a path: "actor" of "actor_rollout_ref.actor.megatron.NAME" is two up.
std::string name_above(const std::string& path, size_t levels) {
  const std::vector<std::string> names = split(path, '.');
  return names.size() > levels ? names[names.size() - 1 - levels] : "";
}

ForeignAdvice layout_of(const std::string& call, const std::string& field,
                        const std::string& value) {
  const auto count = parse_count(value);
  if (!count) return {};
  if (*count == 1) return nothing_as("1 is what a call has where nothing is said");
  const std::string sizes = cat("{", field, ": ", *count, "}");
  return lines_of(cat("parallel: ", call.empty() ? sizes : cat("{", call, ": ", sizes, "}")));
}

std::string updating_call(const ForeignContext& context) {
  const std::string role = name_above(context.path, 2);
  if (role == "ref") return "ref_logprob";
  return role == "critic" ? "update_critic" : "update_actor";
}

}  // namespace

ForeignAdvice no_conversion(const std::string&, const ForeignContext&) { return {}; }
ForeignAdvice switched_on(const std::string&, const ForeignContext&) { return value_of("true"); }

ForeignAdvice as_boolean(const std::string& value, const ForeignContext&) {
  if (is_true(value)) return value_of("true");
  return is_false(value) ? value_of("false") : ForeignAdvice();
}

ForeignAdvice negated(const std::string& value, const ForeignContext&) {
  if (is_true(value)) return value_of("false");
  return is_false(value) ? value_of("true") : ForeignAdvice();
}

ForeignAdvice every_step(const std::string& value, const ForeignContext&) {
  return value_of(is_false(value) ? "0" : "1");
}

// -1, null and None switch things off there, 0 does here.
ForeignAdvice zero_is_off(const std::string& value, const ForeignContext&) {
  return value_of(is_off(value) ? "0" : value);
}

ForeignAdvice one_file(const std::string& value, const ForeignContext&) {
  const bool list = !value.empty() && value.front() == '[';
  return list || is_off(value) ? ForeignAdvice() : value_of(value);
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
  const int64_t batches = count_of(context.root, {"gradient_accumulation_steps"}).value_or(1);
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
  if (!sequences) return {};
  if (prompt && response) return value_of(cat(*sequences * (*prompt + *response)));
  return rule_of(cat(value, " x (data.max_prompt_length + rollout.max_response_length)"));
}

ForeignAdvice completions_to_episodes(const std::string& value, const ForeignContext&) {
  return parse_count(value) ? lines_of("train.total_episodes: " + value) : ForeignAdvice();
}

ForeignAdvice epochs_to_steps(const std::string& value, const ForeignContext&) {
  return rule_of(cat(value, " x lines of data.train / rollout.prompts_per_step"));
}

ForeignAdvice ratio_to_warmup(const std::string& value, const ForeignContext& context) {
  double ratio = 0;
  const auto steps = count_of(context.root, {"total_steps", "max_steps", "total_training_steps"});
  if (!parse_double(value, &ratio) || ratio < 0 || ratio > 1) return {};
  return steps ? value_of(cat(static_cast<int64_t>(ratio * static_cast<double>(*steps))))
               : rule_of(cat(value, " x the optimizer steps of the run"));
}

// TRL moves the reference every 512 steps where nothing else is said.
std::string steps_of_reference(const ForeignContext& context) {
  const auto steps = count_of(context.root, {"ref_model_sync_steps"});
  return cat(steps ? *steps : 512);
}

ForeignAdvice sync_of_reference(const std::string& value, const ForeignContext& context) {
  if (is_false(value)) return value_of("0");
  return is_true(value) ? value_of(steps_of_reference(context)) : ForeignAdvice();
}

// What its share leaves to the reference.
ForeignAdvice mix_of_reference(const std::string& value, const ForeignContext& context) {
  double share = 0;
  if (!parse_double(value, &share) || share <= 0 || share > 1) return {};
  return lines_of(cat("reference.ema: ", format_double(1 - share),
                      "' and 'reference.sync_every: ", steps_of_reference(context)));
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

ForeignAdvice both_clips(const std::string& value, const ForeignContext&) {
  return lines_of(cat("algorithm.clip_low: ", value, "' and 'algorithm.clip_high: ", value));
}

ForeignAdvice clip_range(const std::string& value, const ForeignContext&) {
  std::string last = split(value, value.find(',') == std::string::npos ? ' ' : ',').back();
  while (!last.empty() && (last.back() == ']' || last.back() == ')')) last.pop_back();
  return value_of(std::string(trim(last)));
}

ForeignAdvice two_betas(const std::string& value, const ForeignContext& context) {
  const auto first = number_of(context.root, {"adam_beta1"});
  const auto second = number_of(context.root, {"adam_beta2"});
  if (!first && !second) return value_of(value);
  return value_of(cat("[", format_double(first.value_or(0.9)), ", ",
                      format_double(second.value_or(0.999)), "]"));
}

ForeignAdvice estimator_to_algorithm(const std::string& value, const ForeignContext& context) {
  // OpenRLHF's name of REINFORCE++
  const bool whitened = value == "reinforce" && contains(context.algorithms, "reinforce_plus_plus");
  return named_algorithm("estimator", whitened ? "reinforce_plus_plus" : value, context);
}

// Of verl's actor.policy_loss and OpenRLHF's policy_loss_type.
ForeignAdvice loss_mode(const std::string& value, const ForeignContext& context) {
  if (value == "vanilla" || value == "ppo")
    return nothing_as("the clipped loss is the one that there is");
  return named_algorithm("loss", value, context);
}

// TRL's beta: of DPO and its kin the loss's own number, of distillation how much of the other
// direction's divergence there is, else the weight of the KL penalty.
ForeignAdvice strength_of_reference(const std::string& value, const ForeignContext& context) {
  const YamlNode* algorithm = context.root.find("algorithm");
  const YamlNode* node = algorithm == nullptr ? nullptr : algorithm->find("name");
  const std::string name = node == nullptr ? "" : node->scalar;
  if (name == "distill")
    return {Kind::kNoKey, "distill learns from the reverse KL alone, which is TRL's beta of 1"};
  const bool pairs = name == "dpo" || name == "orpo" || name == "online_dpo" || name == "kto";
  if (!pairs) return value_of(value);
  return {Kind::kValue, value, "", "algorithm.beta"};
}

namespace {

// TRL's names of losses of preferences.
bool is_preference_loss(const std::string& name) {
  static const std::set<std::string> names = {
      "sigmoid",  "hinge",     "ipo",          "robust",           "exo_pair", "nca_pair",
      "bco_pair", "sppo_hard", "aot",          "aot_unpaired",     "apo_zero", "apo_down",
      "discopop", "sft",       "sigmoid_norm", "apo_zero_unpaired"};
  return names.count(name) > 0;
}

ForeignAdvice preference_loss(const std::string& value) {
  for (const char* ours : {"sigmoid", "ipo", "hinge", "robust"})
    if (value == ours) return {Kind::kValue, value, "", "algorithm.preference_loss"};
  return {Kind::kNothing, "it may be sigmoid, ipo, hinge or robust, and a run has one of them", "",
          "algorithm.preference_loss"};
}

}  // namespace

ForeignAdvice loss_aggregation(const std::string& value, const ForeignContext& context) {
  std::string one = value;  // of a list of one
  if (value.size() > 2 && value.front() == '[' && value.find(',') == std::string::npos)
    one = std::string(trim(value.substr(1, value.size() - 2)));
  if (is_preference_loss(one) || one.rfind('[', 0) == 0) return preference_loss(one);
  if (value == "nll" || value == "chunked_nll" || value == "dft")
    return nothing_as("sft learns the log-likelihood of tokens as it is, which is nll");
  const bool by_length = value == "dr_grpo" || value == "seq-mean-token-sum-norm";
  if (by_length) {
    const std::string mean = "algorithm.loss_agg: constant_norm' and 'algorithm.loss_norm_tokens: ";
    if (const auto longest = longest_response(context.root)) return lines_of(cat(mean, *longest));
    return rule_of(
        "algorithm.loss_agg: constant_norm, with the longest response as "
        "algorithm.loss_norm_tokens");
  }
  const ForeignAdvice known = choose({{"token-mean", "token_mean"},
                                      {"dapo", "token_mean"},
                                      {"bnpo", "token_mean"},
                                      {"seq-mean-token-mean", "seq_mean_token_mean"},
                                      {"grpo", "seq_mean_token_mean"},
                                      {"seq-mean-token-sum", "seq_mean_token_sum"}},
                                     value);
  return known.kind != Kind::kNone ? known : named_algorithm("loss", value, context);
}

ForeignAdvice ratio_level(const std::string& value, const ForeignContext&) {
  if (value == "sequence_token")
    return nothing_as("a ratio is that of a token or of its sequence (algorithm.ratio_level)");
  return choose({{"token", "token"}, {"sequence", "sequence"}}, value);
}

ForeignAdvice group_normalization(const std::string& value, const ForeignContext&) {
  return choose({{"true", "group"},
                 {"True", "group"},
                 {"group", "group"},
                 {"batch", "batch"},
                 {"false", "none"},
                 {"False", "none"},
                 {"none", "none"}},
                value);
}

ForeignAdvice kl_estimator(const std::string& value, const ForeignContext&) {
  return choose(
      {{"kl", "k1"}, {"k1", "k1"}, {"mse", "k2"}, {"k2", "k2"}, {"low_var_kl", "k3"}, {"k3", "k3"}},
      value);
}

ForeignAdvice kl_in_loss(const std::string& value, const ForeignContext&) {
  return value_of(is_true(value) ? "loss" : "reward");
}

ForeignAdvice kl_in_reward(const std::string& value, const ForeignContext&) {
  return value_of(is_true(value) ? "reward" : "loss");
}

ForeignAdvice schedule(const std::string& value, const ForeignContext&) {
  return choose({{"constant", "constant"},
                 {"constant_with_warmup", "constant"},
                 {"linear", "linear"},
                 {"cosine", "cosine"},
                 {"cosine_with_min_lr", "cosine"}},
                value);
}

ForeignAdvice dtype(const std::string& value, const ForeignContext&) {
  if (value == "float16" || value == "fp16" || value == "half")
    return nothing_as("16-bit floats with 5 bits of exponent are not computed in; bf16 is");
  return choose({{"true", "bf16"},
                 {"True", "bf16"},
                 {"false", "f32"},
                 {"False", "f32"},
                 {"bfloat16", "bf16"},
                 {"float32", "f32"},
                 {"bf16", "bf16"},
                 {"fp32", "f32"}},
                value);
}

ForeignAdvice half_precision(const std::string& value, const ForeignContext&) {
  if (is_true(value)) return nothing_as("there is no fp16; bf16 is (model.dtype)");
  return nothing_as("it is off, and there is no fp16");
}

ForeignAdvice truncation(const std::string& value, const ForeignContext&) {
  if (value == "right" || value == "middle")
    return nothing_as("a prompt is cut at its begin (truncate_left), left out (drop) or an error");
  return choose({{"error", "error"},
                 {"left", "truncate_left"},
                 {"true", "drop"},
                 {"True", "drop"},
                 {"false", "error"},
                 {"False", "error"}},
                value);
}

ForeignAdvice to_chat(const std::string& value, const ForeignContext&) {
  return value_of(is_false(value) ? "text" : "chat");
}

ForeignAdvice learned_turns(const std::string& value, const ForeignContext&) {
  return value_of(is_false(value) ? "all" : "assistant");
}

ForeignAdvice template_argument(const std::string& value, const ForeignContext& context) {
  const std::string name = name_above(context.path, 0);
  if (name.find("kwargs") != std::string::npos) return {};
  return lines_of(cat("data.template: {", name, ": ", value, "}"));
}

ForeignAdvice reward_model_entry(const std::string& value, const ForeignContext&) {
  if (is_false(value) || is_off(value))
    return nothing_as("a reward model is there where reward has an entry of type model");
  if (is_true(value)) return rule_of("reward: [{type: model, path: FOLDER}]");
  return lines_of(cat("reward: [{type: model, path: ", value, "}]"));
}

ForeignAdvice reward_url(const std::string& value, const ForeignContext&) {
  return lines_of(cat("reward: [{type: http, url: \"", value, "\"}]"));
}

ForeignAdvice reward_function(const std::string& value, const ForeignContext& context) {
  const auto find = [&](const auto& self, const YamlNode& node) -> std::string {
    for (const auto& [key, child] : node.map) {
      if (key == "custom_reward_function")
        if (const YamlNode* name = child.find("name")) return name->scalar;
      if (std::string below = self(self, child); !below.empty()) return below;
    }
    return "";
  };
  const std::string name = find(find, context.root);
  return lines_of(cat("reward: [{type: python, path: ", value,
                      ", function: ", name.empty() ? "compute_score" : name, "}]"));
}

ForeignAdvice resume(const std::string& value, const ForeignContext&) {
  if (value == "resume_path") return rule_of("the path itself (trainer.resume_from_path)");
  const ForeignAdvice known = choose({{"disable", "none"},
                                      {"auto", "auto"},
                                      {"true", "auto"},
                                      {"True", "auto"},
                                      {"false", "none"},
                                      {"False", "none"}},
                                     value);
  if (known.kind != Kind::kNone) return known;
  return value_of(is_off(value) ? "none" : value);
}

ForeignAdvice save_strategy(const std::string& value, const ForeignContext&) {
  if (value == "no") return lines_of("checkpoint.every_steps: 0' and 'checkpoint.every_minutes: 0");
  if (value == "best") return rule_of("checkpoint.keep_best with the name of a metric");
  return rule_of("the number of steps itself (save_steps)");
}

ForeignAdvice eval_strategy(const std::string& value, const ForeignContext&) {
  return value == "no" ? value_of("0") : rule_of("the number of steps itself (eval_steps)");
}

ForeignAdvice buffer_switch(const std::string& value, const ForeignContext&) {
  return is_false(value) ? value_of("0") : rule_of("a number of tokens above 0 (its len)");
}

ForeignAdvice cpu_switch(const std::string& value, const ForeignContext&) {
  return value_of(is_true(value) ? "cpu" : "cuda");
}

ForeignAdvice devices_of_cluster(const std::string& value, const ForeignContext& context) {
  const auto own = parse_count(value);
  if (!own) return {};
  const std::string name = name_above(context.path, 0);
  const bool nodes = name.find("nodes") != std::string::npos;
  const auto other = nodes ? count_of(context.root, {"n_gpus_per_node", "num_gpus_per_node",
                                                     "actor_num_gpus_per_node", "gpus_per_node"})
                           : count_of(context.root, {"nnodes", "num_nodes", "actor_num_nodes"});
  const int64_t each = nodes ? other.value_or(8) : *own, count = nodes ? *own : other.value_or(1);
  if (each * count == 1) return nothing_as("a run is one process unless a plan is stated");
  return rule_of(cat("cluster={gpu: h100-80g, nodes: ", count, ", gpus_per_node: ", each,
                     "}, with the name of your device, and parallel={dp: ", each * count,
                     "} or plan.auto=true to use them"));
}

ForeignAdvice engine_tp(const std::string& value, const ForeignContext&) {
  return layout_of("generate", "tp", value);
}
ForeignAdvice engine_dp(const std::string& value, const ForeignContext&) {
  return layout_of("generate", "dp", value);
}
ForeignAdvice update_tp(const std::string& value, const ForeignContext& context) {
  return layout_of(updating_call(context), "tp", value);
}
ForeignAdvice update_pp(const std::string& value, const ForeignContext& context) {
  return layout_of(updating_call(context), "pp", value);
}

ForeignAdvice zero_of_all(const std::string& value, const ForeignContext&) {
  if (value == "0") return nothing_as("nothing is sharded where nothing is said");
  return value == "1" || value == "2" || value == "3"
             ? lines_of(cat("parallel: {zero: ", value, "}"))
             : ForeignAdvice();
}

ForeignAdvice zero_group(const std::string& value, const ForeignContext&) {
  if (is_off(value)) return nothing_as("all data-parallel ranks share where nothing is said");
  return parse_count(value) ? lines_of(cat("parallel: {zero: 3, zero_ranks: ", value, "}"))
                            : ForeignAdvice();
}

ForeignAdvice sharded(const std::string& value, const ForeignContext&) {
  if (is_off(value) || is_false(value))
    return nothing_as("nothing is sharded where nothing is said");
  return lines_of("parallel: {zero: 3}");
}

ForeignAdvice colocated(const std::string& value, const ForeignContext&) {
  if (is_false(value)) return rule_of("split, disaggregated or standalone (docs/plans.md)");
  return value_of("colocated");
}

}  // namespace foreign
}  // namespace braid::inline foreign_keys
