#include "foreign/keys/key_values.h"

#include <set>

#include "base/text.h"
#include "foreign/keys/value_helpers.h"

namespace braid::inline foreign_keys {
namespace key_advice {
namespace {

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

// "[console, wandb]", "wandb" or "all"; what a project is called stands elsewhere.
ForeignAdvice trackers(const std::string& value, const ForeignContext& context) {
  std::vector<std::string> lines;
  const auto names = [&](const char* tracker) { return value.find(tracker) != std::string::npos; };
  std::string project = text_of(context.root, "project_name").value_or("");
  if (is_null(project)) project = text_of(context.root, "project").value_or("");
  for (const char* tracker : {"wandb", "mlflow"}) {
    if (!names(tracker)) continue;
    if (is_null(project)) return {Kind::kRule, "the name of a project", "", cat("log.", tracker)};
    lines.push_back(cat("log.", tracker, ": ", project));
  }
  if (names("tensorboard")) lines.emplace_back("log.tensorboard: true");
  if (!lines.empty()) return lines_of(join(lines, "' and '"));
  if (value == "all") return rule_of("log.tensorboard, and projects as log.wandb and log.mlflow");
  return nothing_as("the console line and metrics.jsonl are there without a key");
}

ForeignAdvice always_sampled(const std::string& value, const ForeignContext&) {
  return is_true(value) ? nothing_as("training always samples") : ForeignAdvice();
}

// verl's evaluation is greedy where this is off, whatever its temperature.
ForeignAdvice sampled_evaluation(const std::string& value, const ForeignContext&) {
  if (is_false(value)) return value_of("0");
  return is_true(value) ? nothing_as("val_kwargs.temperature says how") : ForeignAdvice();
}

ForeignAdvice temperature_of_evaluation(const std::string& value, const ForeignContext& context) {
  if (says_off(context.root, "val_kwargs.do_sample"))
    return nothing_as("val_kwargs.do_sample is off");
  return value_of(value);
}

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

// Of a list of one the one.
ForeignAdvice one_file(const std::string& value, const ForeignContext&) {
  if (is_off(value) || value == "[]") return nothing_as("no file is named");
  if (value.front() != '[') return value_of(value);
  if (value.find(',') != std::string::npos)
    return rule_of("one file, folder or pattern: put the files into one folder");
  std::string inside(trim(std::string_view(value).substr(1, value.size() - 2)));
  std::erase_if(inside, [](char letter) { return letter == '"' || letter == '\''; });
  return value_of(inside);
}

ForeignAdvice clip_range(const std::string& value, const ForeignContext&) {
  std::string last = split(value, value.find(',') == std::string::npos ? ' ' : ',').back();
  while (!last.empty() && (last.back() == ']' || last.back() == ')')) last.pop_back();
  return value_of(std::string(trim(last)));
}

// "0.9 0.95", as a command line has them, as a list.
ForeignAdvice list_of_two(const std::string& value, const ForeignContext&) {
  const std::vector<double> both = numbers_in(value);
  if (both.size() != 2) return value_of(value);
  return value_of(cat("[", format_double(both[0]), ", ", format_double(both[1]), "]"));
}

// A least learning rate as a share of the highest.
ForeignAdvice floor_to_ratio(const std::string& value, const ForeignContext& context) {
  double least = 0;
  const auto most = number_of(context.root, {"learning_rate", "lr"});
  if (!parse_double(value, &least)) return {};
  if (!most || *most <= 0) return rule_of(cat(value, " / the learning rate"));
  return value_of(format_double(least / *most));
}

ForeignAdvice two_betas(const std::string& value, const ForeignContext& context) {
  const auto first = number_of(context.root, {"adam_beta1"});
  const auto second = number_of(context.root, {"adam_beta2"});
  if (!first && !second) return value_of(value);
  ForeignAdvice out = value_of(cat("[", format_double(first.value_or(0.9)), ", ",
                                   format_double(second.value_or(0.999)), "]"));
  out.items = {first ? "adam_beta1" : "default of trl: adam_beta1",
               second ? "adam_beta2" : "default of trl: adam_beta2"};
  return out;
}

// TRL's beta: of DPO and its kin the loss's own number, of distillation how much of the other
// direction's divergence there is, else the weight of the KL penalty.
ForeignAdvice strength_of_reference(const std::string& value, const ForeignContext& context) {
  const std::string name = name_of_algorithm(context.root);
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
  return known.kind != Kind::kNone ? known : algorithm_of_loss(value, context);
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

ForeignAdvice schedule(const std::string& value, const ForeignContext&) {
  ForeignAdvice out = choose({{"constant", "constant"},
                              {"constant_with_warmup", "constant"},
                              {"linear", "linear"},
                              {"cosine", "cosine"},
                              {"cosine_with_min_lr", "cosine"}},
                             value);
  if (value == "cosine_with_min_lr") out.remark = "with its floor as min_lr_ratio beside it";
  return out;
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

ForeignAdvice kept_dtype(const std::string& value, const ForeignContext& context) {
  const ForeignAdvice known = dtype(value, context);
  return known.text != "f32" ? known
                             : nothing_as(
                                   "weights that train are always kept in f32; its dtype "
                                   "says in which numbers they are computed with");
}

ForeignAdvice half_precision(const std::string& value, const ForeignContext&) {
  if (is_true(value)) return nothing_as("there is no fp16; bf16 is (model.dtype)");
  return nothing_as("it is off, and there is no fp16");
}

// TRL cuts whole sequences; here a prompt may be cut, a response that is given never is.
ForeignAdvice truncation_of_sequence(const std::string& value, const ForeignContext&) {
  if (value == "keep_start")
    return nothing_as("nothing is cut at its end: a response is learned whole");
  ForeignAdvice out = choose({{"keep_end", "truncate_left"}}, value);
  if (out.kind == Kind::kValue) out.remark = "which cuts prompts alone";
  return out;
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

// transformers' and TRL's.
ForeignAdvice sampling_strategy(const std::string& value, const ForeignContext&) {
  if (value == "group_by_length") return nothing_as("sequences are not grouped by length");
  return choose({{"random", "true"}, {"sequential", "false"}}, value);
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

// Of the switch and of the path, which say the same entry.
ForeignAdvice reward_model_entry(const std::string& value, const ForeignContext& context) {
  if (is_false(value) || is_off(value))
    return nothing_as("a reward model is there where reward has an entry of type model");
  const bool has_path = context.path.find("enable") == std::string::npos;
  if (!is_true(value)) {
    if (has_path && says_off(context.root, "reward_model.enable"))
      return nothing_as("reward_model.enable is off");
    return lines_of(cat("reward: [{type: model, path: ", value, "}]"));
  }
  for (const char* key : {"reward_model.model_path", "reward_model.model.path"})
    if (!is_null(text_of(context.root, key).value_or("")))
      return nothing_as(cat("the entry has its path from ", key));
  return rule_of("reward: [{type: model, path: FOLDER}]");
}

ForeignAdvice reward_url(const std::string& value, const ForeignContext&) {
  if (is_null(value)) return nothing_as("there is no server");
  if (value.ends_with(".py"))  // OpenRLHF calls its reward_func, whose form is its own
    return rule_of(
        "an entry of type python, with a function in TRL's form around yours "
        "(docs/from_openrlhf.md)");
  return lines_of(cat("reward: [{type: http, url: \"", value, "\"}]"));
}

ForeignAdvice project_of_tracker(const std::string&, const ForeignContext& context) {
  const YamlNode* trackers = context.root.find("report_to");
  if (trackers != nullptr) return nothing_as("it is the name that report_to gives");
  return rule_of("the project's name, where the run is to go to wandb");
}

// Adapters as ModelConfig of TRL 1.9 has them, but for what other keys say of them.
ForeignAdvice adapters(const std::string& value, const ForeignContext& context) {
  if (!is_true(value)) return nothing_as("all weights train where lora.rank is not set");
  std::vector<std::string> lines;
  const auto usual = [&](const char* theirs, const char* line) {
    if (!number_of(context.root, {theirs})) lines.emplace_back(line);
  };
  usual("lora_r", "lora.rank: 16");
  usual("lora_alpha", "lora.alpha: 32");
  usual("lora_dropout", "lora.dropout: 0.05");
  if (lines.empty()) return nothing_as("lora_r, lora_alpha and lora_dropout say it");
  ForeignAdvice out = lines_of(join(lines, "' and '"));
  out.remark = "TRL's default";
  return out;
}

ForeignAdvice offloads(const std::string& value, const ForeignContext&) {
  return is_false(value)
             ? nothing_as("it is off here too; train.offload and plans say what leaves the device")
             : ForeignAdvice();
}

// TRL's functions; several, or one that is a name.
ForeignAdvice reward_functions(const std::string& value, const ForeignContext&) {
  if (is_null(value)) return nothing_as("there is no function of yours");
  return rule_of(
      "a list of entries such as {name: NAME, type: python, path: FILE.py, function: NAME}, one "
      "for each");
}

ForeignAdvice reward_function(const std::string& value, const ForeignContext& context) {
  if (is_null(value)) return nothing_as("there is no function of yours");
  if (value.front() == '[') return {};
  const std::string name = text_of(context.root, "custom_reward_function.name").value_or("");
  return lines_of(cat("reward: [{type: python, path: ", value,
                      ", function: ", name.empty() ? "compute_score" : name, "}]"));
}

ForeignAdvice function_of_entry(const std::string&, const ForeignContext& context) {
  if (!is_null(text_of(context.root, "custom_reward_function.path").value_or("")))
    return nothing_as("it is in the entry that custom_reward_function.path makes");
  return {};
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

ForeignAdvice save_strategy(const std::string& value, const ForeignContext& context) {
  if (value == "no") return lines_of("checkpoint.every_steps: 0' and 'checkpoint.every_minutes: 0");
  if (value == "best") return rule_of("checkpoint.keep_best with the name of a metric");
  if (value == "steps" && count_of(context.root, {"save_steps"}))
    return nothing_as("save_steps says how often");
  return rule_of("the number of steps itself (save_steps)");
}

ForeignAdvice buffer_switch(const std::string& value, const ForeignContext& context) {
  if (is_false(value)) return value_of("0");
  const auto tokens = count_of(context.root, {"len"});
  return tokens ? value_of(cat(*tokens)) : rule_of("a number of tokens above 0 (its len)");
}

ForeignAdvice buffer_length(const std::string& value, const ForeignContext& context) {
  if (says_off(context.root, "overlong_buffer.enable"))
    return nothing_as("overlong_buffer.enable is off");
  return value_of(value);
}

// Of torch: "cuda" and "cpu" alone are ours.
ForeignAdvice device_name(const std::string& value, const ForeignContext&) {
  if (value == "cpu" || value == "cuda") return value_of(value);
  return nothing_as("devices are cpu and cuda");
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

// Of OpenRLHF: the devices of a role that is not the actor.
ForeignAdvice devices_of_role(const std::string&, const ForeignContext& context) {
  for (const char* key : {"colocate_all_models", "colocate_all"})
    if (says_on(context.root, key))
      return nothing_as(cat(key, " gives all roles the same devices (placement: colocated)"));
  return {};
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

}  // namespace key_advice
}  // namespace braid::inline foreign_keys
