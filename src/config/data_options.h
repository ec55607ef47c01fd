// Options of what a run learns from: data, generation, rewards, evaluation.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/yaml.h"
#include "config/key_facts.h"

namespace braid::inline config {

// Below it a distribution is the most likely token, for which logits would be scaled out of range.
inline constexpr double kLeastTemperature = 0.01;

struct DataConfig {
  std::string train;
  std::string eval;
  std::string prompt_key = "prompt";
  std::string label_key = "label";
  std::vector<std::string> ignore_columns;
  std::string prompt_format = "text";
  std::string prompt_template;
  YamlNode template_arguments;
  std::string template_name;
  std::string template_date;
  std::string learn = "assistant";
  int64_t max_prompt_length = 512;
  std::string overlong = "error";
  bool shuffle = true;
  int64_t seed = 0;
  double check_s = 10;
};

template <class V>
void visit(V& v, DataConfig& o) {
  v("train", o.train,
    "file (JSON lines, .json, .csv, .tsv, also .gz, parquet, .arrow), folder (also of "
    "save_to_disk), "
    "pattern, data set of the Hugging Face cache, - (standard input), or task:NAME for a built-in "
    "generated task",
    key::file);
  v("eval", o.eval, "the same, for evaluation", key::read_if(ReadIf::kEvaluation),
    key::free_on_resume);
  v("prompt_key", o.prompt_key, "field of a line that holds the prompt");
  v("label_key", o.label_key, "field of a line that holds the right answer");
  v("ignore_columns", o.ignore_columns,
    "fields of a line that are left out, such as pictures beside a text");
  v("prompt_format", o.prompt_format,
    "chat: a prompt in text becomes the user's message in the tokenizer's chat template",
    one_of("text | chat"));
  v("prompt_template", o.prompt_template,
    "text around a prompt in text, such as \"Question: {prompt} Answer:\"; \"\" = the prompt "
    "alone");
  v("template", o.template_arguments,
    "arguments of the tokenizer's chat template, such as {enable_thinking: false}");
  v("template_name", o.template_name,
    "which of several chat templates; \"\" = default, or tool_use where a line has tools");
  v("template_date", o.template_date,
    "YYYY-MM-DD that chat templates see as today; \"\" = the day on which the run began, which its "
    "checkpoints keep");
  v("learn", o.learn,
    "what sft learns of a conversation in messages: every turn of the assistant, its last one, or "
    "all tokens",
    one_of("assistant | last | all"), key::read_if(ReadIf::kGivenSamples));
  v("max_prompt_length", o.max_prompt_length, "tokens", counted(1, kMostCount), key::priced);
  v("overlong", o.overlong, "what happens to a prompt of more tokens",
    one_of("error | drop | truncate_left"));
  v("shuffle", o.shuffle, "a new order in every epoch");
  v("seed", o.seed, "of the order and of generated tasks");
  v("check_s", o.check_s,
    "seconds that training waits for the check of all rows; the rest is checked while it runs; 0 = "
    "waits for all",
    at_least(0), key::free_on_resume);
}

struct RolloutConfig {
  int64_t prompts_per_step = 64;
  int64_t samples_per_prompt = 1;
  int64_t max_response_length = 128;
  int64_t min_response_length = 0;
  double temperature = 1;
  double top_p = 1;
  int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int64_t max_concurrent = 256;
  int64_t kv_budget_tokens = 0;
  bool longest_first = false;
  double in_flight = 1;
  int64_t carried_steps = 1;
  bool record = false;
  std::string replay;
};

template <class V>
void visit(V& v, RolloutConfig& o) {
  v("prompts_per_step", o.prompts_per_step, "prompts (sft: samples, rm: pairs)",
    counted(1, kMostCount), key::priced, key::read_always);
  v("samples_per_prompt", o.samples_per_prompt, "responses per prompt", counted(1, kMostCount),
    key::priced);
  v("max_response_length", o.max_response_length, "tokens", counted(1, kMostCount), key::priced);
  v("min_response_length", o.min_response_length, "tokens; no end of sequence before",
    counted(0, kMostCount), key::changes_lengths);
  v("temperature", o.temperature, "of sampling; training scores with the same",
    at_least(kLeastTemperature));
  v("top_p", o.top_p, "training needs 1 (off): it scores the whole distribution", between(0, 1));
  v("top_k", o.top_k, "training needs 0 (off)", counted(0, kMostCount));
  v("min_p", o.min_p, "training needs 0 (off)", from_to_below(0, 1));
  v("repetition_penalty", o.repetition_penalty, "training needs 1 (off)", above(0));
  v("stop", o.stop, "strings that end a response", key::changes_lengths);
  v("ignore_eos", o.ignore_eos, "responses go on after an end-of-sequence token",
    key::changes_lengths);
  v("max_concurrent", o.max_concurrent, "sequences in flight; speed only", counted(1, kMostCount),
    key::chosen_by_plan, key::free_on_resume);
  v("kv_budget_tokens", o.kv_budget_tokens,
    "tokens of the KV cache; 0 = enough for max_concurrent; speed only", counted(0, 1e12),
    key::chosen_by_plan, key::free_on_resume);
  v("longest_first", o.longest_first, "admit the longest expected first; speed only",
    key::not_priced(
        "responses are admitted in the order of the batch: their lengths are not known before"),
    key::free_on_resume);
  v("in_flight", o.in_flight,
    "prompts in flight, as a multiple of prompts_per_step: a step generates until that many of "
    "them have all their responses, and the next one goes on with the others (docs/staleness.md); "
    "1 = a step waits for all",
    between(1, 2), key::priced);
  v("carried_steps", o.carried_steps,
    "in_flight: steps that the oldest token of a response may be older than the weights that learn "
    "from it, beside those of plan.staleness; a step waits for what would become older",
    counted(1, kMostCount), key::priced, key::read_if(ReadIf::kCarried));
  v("record", o.record, "write rollouts.jsonl", key::beside_the_step, key::free_on_resume);
  v("replay", o.replay, "train on a recorded file instead of generating",
    key::not_priced("a step that generates is planned"), key::file);
}

// Prompts whose responses a step draws at a time.
inline int64_t prompts_in_flight(const RolloutConfig& o) {
  constexpr double kRounding = 1e-9;
  return static_cast<int64_t>(
      std::ceil(o.in_flight * static_cast<double>(o.prompts_per_step) - kRounding));
}

struct RewardTotalOptions {
  double clip = 0;
  double missing_eos_penalty = 0;
  int64_t overlong_buffer = 0;
  double overlong_penalty = 1;
};

template <class V>
void visit(V& v, RewardTotalOptions& o) {
  v("clip", o.clip, "total reward is clipped to [-clip, clip]; 0 = off", at_least(0));
  v("missing_eos_penalty", o.missing_eos_penalty,
    "subtracted from the reward of a truncated response", at_least(0));
  v("overlong_buffer", o.overlong_buffer,
    "tokens before max_response_length over which overlong_penalty grows (Yu et al., DAPO, 2025, "
    "section 3.4); 0 = off",
    counted(0, kMostCount));
  v("overlong_penalty", o.overlong_penalty, "penalty at max_response_length", at_least(0),
    key::read_if(ReadIf::kOverlong));
}

struct RewardConfig {
  std::string name;
  std::string type;
  std::string rule;
  std::string path;
  std::string size;
  std::string function;
  std::string signature = "auto";
  std::string batch = "auto";
  std::string completions = "auto";
  YamlNode kwargs;
  std::string url;
  std::string auth_token;
  int64_t batch_samples = 32;
  std::vector<std::string> command;
  std::string pattern;
  double target = 0;
  std::string unit = "tokens";
  double weight = 1;
  double timeout_s = 180;
  int64_t workers = 1;
  int64_t memory_mb = 0;
  int64_t retries = 5;
  double outage_s = 300;
  std::string on_error = "stop";
};

template <class V>
void visit(V& v, RewardConfig& o) {
  v("name", o.name, "column of the metrics; \"\" = type");
  v("type", o.type, "rule | model | http | command | python", key::priced);
  v("rule", o.rule,
    "rule: contains | regex | numeric | exact | length | lcs | digit_share (docs/rewards.md)");
  v("path", o.path, "model: folder; python: file", key::priced, key::file);
  v("size", o.size, "model: for planning without weights, as model.size", key::priced,
    key::read_by_planning);
  v("function", o.function, "python: function name");
  v("signature", o.signature,
    "python: how the function is called; verl_batch is that of verl's batch reward manager; auto: "
    "by "
    "the parameter names",
    one_of("auto | verl | verl_batch | trl"));
  v("batch", o.batch,
    "python: what one call scores, the samples of one prompt being a group; auto: step, or sample "
    "for signature verl",
    one_of("auto | sample | group | step"));
  v("completions", o.completions,
    "python, signature trl: prompts and completions as lists of messages or as texts; auto: as the "
    "data's prompts are",
    one_of("auto | messages | text"));
  v("kwargs", o.kwargs, "python: further keyword arguments of the function, {name: value}");
  v("url", o.url, "http: address of the service", key::free_on_resume);
  v("auth_token", o.auth_token, "http: sent as Authorization: Bearer; \"\" = none",
    key::free_on_resume, key::secret);
  v("batch_samples", o.batch_samples, "http: samples of one request", counted(1, kMostCount),
    key::not_priced("rewards other than models take no time in a plan"), key::free_on_resume);
  v("command", o.command, "command: program and arguments");
  v("pattern", o.pattern, "rule contains, regex: text or expression");
  v("target", o.target, "rule length: length aimed at, in `unit`", at_least(0));
  v("unit", o.unit, "rule length: tokens | chars");
  v("weight", o.weight, "factor in the total; 0 = only reported");
  v("timeout_s", o.timeout_s, "seconds for one sample (http: one request; python: one call)",
    above(0), key::no_cost("bounds a wait"), key::free_on_resume);
  v("workers", o.workers, "samples (http: requests) scored at once; speed only", between(1, 1024),
    key::not_priced("rewards other than models take no time in a plan"), key::free_on_resume);
  v("memory_mb", o.memory_mb, "command, python: limit of each process; 0 = none", counted(0, 1e9),
    key::free_on_resume);
  v("retries", o.retries, "on_error: retry: further tries of a failed sample", counted(1, 1e6),
    key::free_on_resume);
  v("outage_s", o.outage_s,
    "http: seconds for which a request that found no server, or a busy one, is tried again",
    at_least(0), key::free_on_resume);
  v("on_error", o.on_error, "what a failure does: stop | drop | retry | zero");
}

struct EvalConfig {
  int64_t every_steps = 0;
  bool at_start = false;
  int64_t samples_per_prompt = 1;
  double temperature = 0;
  int64_t prompts = 0;
  double pass_threshold = 1;
};

template <class V>
void visit(V& v, EvalConfig& o) {
  v("every_steps", o.every_steps, "steps between evaluations on data.eval; 0 = off",
    counted(0, kMostSteps), key::read_always);
  v("at_start", o.at_start, "evaluate before the first step too", key::read_always);
  v("samples_per_prompt", o.samples_per_prompt, "responses per prompt; above 1 gives pass@k",
    counted(1, kMostCount));
  v("temperature", o.temperature, "0 = greedy", zero_or_at_least(kLeastTemperature));
  v("prompts", o.prompts, "first lines of data.eval that are used; 0 = all", at_least(0));
  v("pass_threshold", o.pass_threshold, "total reward from which a response counts as right");
}

}  // namespace braid::inline config
