// The whole configuration of a training run as plain option structs, never modified after loading.
// visit() is the one list of keys, with meaning, unit, neutral value and the values allowed:
// reader, printer and documentation (docs/configuration.md) walk it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/algorithm_options.h"
#include "config/allowed.h"
#include "config/planning_options.h"

namespace braid::inline config {

// Bounds far above what can be meant, so that products of counts fit and nothing waits for ever.
inline constexpr double kMostCount = 16'777'216;     // samples, tokens of a sequence, ...
inline constexpr double kMostSteps = 1'000'000'000;  // steps, and tokens of a batch
// Below it a distribution is the most likely token, for which logits would be scaled out of range.
inline constexpr double kLeastTemperature = 0.01;

struct LoraConfig {
  int64_t rank = 0;
  double alpha = 16;
  double dropout = 0;
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  std::string export_as = "both";
};

struct ExportConfig {
  std::string dtype = "auto";
};

struct ModelConfig {
  std::string path;
  std::string config;
  std::string size;
  std::string dtype = "f32";
};

struct TokenizerConfig {
  std::string path;
};

struct RoleConfig {
  std::string path;
  std::string size;
};

struct CriticConfig : RoleConfig {
  std::string init_from;
  int64_t warmup_steps = 0;
};

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
  bool record = false;
  std::string replay;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 1e-6;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decay_norms = false;
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
  double min_lr_ratio = 0;
  double max_grad_norm = 1;
};

struct OptimConfig {
  OptimizerConfig actor;
  OptimizerConfig critic;
  OptimizerConfig reward;
};

struct TrainConfig {
  int64_t total_steps = 100;
  int64_t total_episodes = 0;
  int64_t epochs_per_rollout = 1;
  int64_t minibatches = 1;
  int64_t micro_tokens = 4096;
  int64_t seed = 0;
  int64_t threads = 0;
  std::string share_prompts = "auto";
  std::string reduction = "auto";
  bool recompute = false;
  double memory_limit_gib = 0;
  bool rehearse = true;
  std::string offload = "auto";
  std::string on_nonfinite = "stop";
  int64_t max_skipped_steps = 3;
  int64_t max_idle_steps = 20;
};

struct RewardTotalOptions {
  double clip = 0;
  double missing_eos_penalty = 0;
  int64_t overlong_buffer = 0;
  double overlong_penalty = 1;
};

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

struct CheckpointConfig {
  std::string dir;
  int64_t every_steps = 0;
  double every_minutes = 10;
  int64_t keep_last = 2;
  std::string keep_best;
  std::string resume = "none";
  std::vector<std::string> allow;
  int64_t hf_every_steps = 0;
};

struct EvalConfig {
  int64_t every_steps = 0;
  bool at_start = false;
  int64_t samples_per_prompt = 1;
  double temperature = 0;
  int64_t prompts = 0;
  double pass_threshold = 1;
};

struct LogConfig {
  bool console = true;
  bool jsonl = true;
  bool tensorboard = true;
  std::string wandb;
  std::string mlflow;
  std::vector<std::string> command;
  double command_timeout_s = 10;
  std::string command_on_error = "warn";
  int64_t samples_every = 10;
};

struct RuntimeConfig {
  double time_scale = 0;
  double jitter = 0;
  std::string fault = "none";
};

struct RunConfig {
  std::string name = "run";
  std::string dir = "runs";
  bool overwrite = false;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  TokenizerConfig tokenizer;
  std::string device = "cpu";
  RuntimeConfig runtime;
  LoraConfig lora;
  ExportConfig exports;
  RoleConfig reference;
  RoleConfig teacher;
  CriticConfig critic;
  DataConfig data;
  RolloutConfig rollout;
  AlgorithmOptions algorithm;
  OptimConfig optim;
  TrainConfig train;
  std::vector<RewardConfig> reward;
  RewardTotalOptions reward_total;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  LogConfig log;
  YamlNode cluster;
  WorkloadConfig workload;
  YamlNode placement;
  YamlNode parallel;
  PlanConfig plan;
};

template <class V>
void visit(V& v, LoraConfig& o) {
  v("rank", o.rank, "0 = train all weights", counted(0, kMostCount));
  v("alpha", o.alpha, "the update is scaled by alpha / rank", above(0));
  v("dropout", o.dropout,
    "share of the numbers that an adapter reads which are left out at random in training",
    from_to_below(0, 1));
  v("targets", o.targets,
    "names of the linear layers that get an adapter; all-linear: every one but lm_head");
  v("export_as", o.export_as,
    "merged: a whole model; adapters: PEFT's adapter_model.safetensors; both: the second in "
    "ROLE-adapter",
    one_of("merged | adapters | both"));
}

template <class V>
void visit(V& v, ExportConfig& o) {
  v("dtype", o.dtype,
    "of exported weights; auto: f32 where they were trained in f32, so that nothing is rounded, "
    "else as in the folder that they came from",
    one_of("auto | f32 | bf16 | f16"));
}

template <class V>
void visit(V& v, ModelConfig& o) {
  v("path", o.path, "Hugging Face folder; \"\" with `config` = random weights");
  v("config", o.config, "config.json alone: random initial weights");
  v("size", o.size, "planning without weights: catalogue name (llama2-7b) or config.json");
  v("dtype", o.dtype, "of weights in computation; bf16 keeps f32 master weights",
    one_of("f32 | bf16"));
}

template <class V>
void visit(V& v, TokenizerConfig& o) {
  v("path", o.path, "folder or tokenizer.json; \"\" = model.path");
}

template <class V>
void visit(V& v, RoleConfig& o) {
  v("path", o.path, "Hugging Face folder; \"\" = taken from model.path");
  v("size", o.size, "planning without weights, as model.size; \"\" = as its source");
}

template <class V>
void visit(V& v, CriticConfig& o) {
  visit(v, static_cast<RoleConfig&>(o));
  v("init_from", o.init_from, "where path is \"\": weights to start from; \"\" = policy",
    one_of("| policy | reward_model | random"));
  v("warmup_steps", o.warmup_steps, "steps at the start in which only the critic is trained",
    counted(0, kMostSteps));
}

template <class V>
void visit(V& v, DataConfig& o) {
  v("train", o.train,
    "file (JSON lines, .json, .csv, .tsv, also .gz, parquet, .arrow), folder (also of "
    "save_to_disk), "
    "pattern, data set of the Hugging Face cache, - (standard input), or task:NAME for a built-in "
    "generated task");
  v("eval", o.eval, "the same, for evaluation");
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
    one_of("assistant | last | all"));
  v("max_prompt_length", o.max_prompt_length, "tokens", counted(1, kMostCount));
  v("overlong", o.overlong, "what happens to a prompt of more tokens",
    one_of("error | drop | truncate_left"));
  v("shuffle", o.shuffle, "a new order in every epoch");
  v("seed", o.seed, "of the order and of generated tasks");
  v("check_s", o.check_s,
    "seconds that training waits for the check of all rows; the rest is checked while it runs; 0 = "
    "waits for all",
    at_least(0));
}

template <class V>
void visit(V& v, RolloutConfig& o) {
  v("prompts_per_step", o.prompts_per_step, "prompts (sft: samples, rm: pairs)",
    counted(1, kMostCount));
  v("samples_per_prompt", o.samples_per_prompt, "responses per prompt", counted(1, kMostCount));
  v("max_response_length", o.max_response_length, "tokens", counted(1, kMostCount));
  v("min_response_length", o.min_response_length, "tokens; no end of sequence before",
    counted(0, kMostCount));
  v("temperature", o.temperature, "of sampling; training scores with the same",
    at_least(kLeastTemperature));
  v("top_p", o.top_p, "training needs 1 (off): it scores the whole distribution", between(0, 1));
  v("top_k", o.top_k, "training needs 0 (off)", counted(0, kMostCount));
  v("min_p", o.min_p, "training needs 0 (off)", from_to_below(0, 1));
  v("repetition_penalty", o.repetition_penalty, "training needs 1 (off)", above(0));
  v("stop", o.stop, "strings that end a response");
  v("ignore_eos", o.ignore_eos, "responses go on after an end-of-sequence token");
  v("max_concurrent", o.max_concurrent, "sequences in flight; speed only", counted(1, kMostCount));
  v("kv_budget_tokens", o.kv_budget_tokens,
    "tokens of the KV cache; 0 = enough for max_concurrent; speed only", counted(0, 1e12));
  v("longest_first", o.longest_first, "admit the longest expected first; speed only");
  v("record", o.record, "write rollouts.jsonl");
  v("replay", o.replay, "train on a recorded file instead of generating");
}

template <class V>
void visit(V& v, OptimizerConfig& o) {
  v("name", o.name, "sgd: plain gradient descent, without moments", one_of("adamw | sgd"));
  v("lr", o.lr, "learning rate", above_to(0, 1));
  v("betas", o.betas, "adamw: two numbers", from_to_below(0, 1));
  v("eps", o.eps, "adamw: added to the denominator", above(0));
  v("weight_decay", o.weight_decay, "decoupled (Loshchilov & Hutter, 2019); 0 = off", at_least(0));
  v("decay_norms", o.decay_norms, "weight_decay also shrinks norms and biases");
  v("schedule", o.schedule, "of the learning rate after the warm-up",
    one_of("constant | linear | cosine"));
  v("warmup_steps", o.warmup_steps, "optimizer steps", counted(0, kMostSteps));
  v("min_lr_ratio", o.min_lr_ratio, "floor of the schedule as a share of lr", between(0, 1));
  v("max_grad_norm", o.max_grad_norm, "global norm; 0 = off", at_least(0));
}

template <class V>
void visit(V& v, OptimConfig& o) {
  v("actor", o.actor, "the policy (ppo, grpo, sft)");
  v("critic", o.critic, "the value model (ppo)");
  v("reward", o.reward, "the reward model (rm)");
}

template <class V>
void visit(V& v, TrainConfig& o) {
  v("total_steps", o.total_steps, "steps: one rollout each (sft, rm: one optimizer step each)",
    counted(1, kMostSteps));
  v("total_episodes", o.total_episodes,
    "sequences in all, instead of total_steps; 0 = total_steps counts", counted(0, 1e15));
  v("epochs_per_rollout", o.epochs_per_rollout, "passes over the sequences of one rollout",
    counted(1, 1e6));
  v("minibatches", o.minibatches,
    "optimizer steps per epoch over one rollout (a count, not a size)", counted(1, kMostCount));
  v("micro_tokens", o.micro_tokens,
    "tokens of one forward and backward; memory and speed (results to rounding)",
    counted(1, kMostSteps));
  v("seed", o.seed, "of sampling, initial weights and the order of mini-batches");
  v("threads", o.threads, "compute threads; 0 = all cores", between(0, 1024));
  v("share_prompts", o.share_prompts,
    "auto: the prompt of the samples that share it is computed once for those in one micro-batch, "
    "in scoring and training (rollout.samples_per_prompt above 1); never: once per sample; speed "
    "and memory (results to rounding)",
    one_of("auto | never"));
  v("reduction", o.reduction,
    "how tensor-parallel ranks sum. ordered: in the order of the ranks, so that a row has the same "
    "bits whatever is beside it; native: the backend's all-reduce and reduce-scatter, which send "
    "less; auto: ordered on the CPU, native on GPUs (gradients of data-parallel ranks are summed "
    "by "
    "the backend in both); results to rounding",
    one_of("auto | ordered | native"));
  v("recompute", o.recompute, "recompute layer activations in the backward; memory and speed only");
  v("memory_limit_gib", o.memory_limit_gib,
    "device: cpu: what tensors of each rank may hold; 0 = not limited", at_least(0));
  v("rehearse", o.rehearse,
    "run the longest micro-batch of each call and fill the KV cache once before the first step, "
    "where memory is limited; false: what does not fit is found when it comes");
  v("offload", o.offload,
    "auto: the weights of frozen roles leave memory while they rest, on the CPU to a file, else to "
    "host memory; off: they stay in memory; memory only",
    one_of("auto | off"));
  v("on_nonfinite", o.on_nonfinite, "what a gradient that is not finite does",
    one_of("stop | skip"));
  v("max_skipped_steps", o.max_skipped_steps, "skip: give up after this many in a row",
    counted(0, kMostSteps));
  v("max_idle_steps", o.max_idle_steps,
    "the run is saved and ends after this many steps in a row from which a trained role learns "
    "nothing; 0 = it goes on",
    counted(0, kMostSteps));
}

template <class V>
void visit(V& v, RewardTotalOptions& o) {
  v("clip", o.clip, "total reward is clipped to [-clip, clip]; 0 = off", at_least(0));
  v("missing_eos_penalty", o.missing_eos_penalty,
    "subtracted from the reward of a truncated response", at_least(0));
  v("overlong_buffer", o.overlong_buffer,
    "tokens before max_response_length over which overlong_penalty grows (Yu et al., DAPO, 2025, "
    "section 3.4); 0 = off",
    counted(0, kMostCount));
  v("overlong_penalty", o.overlong_penalty, "penalty at max_response_length", at_least(0));
}

template <class V>
void visit(V& v, RewardConfig& o) {
  v("name", o.name, "column of the metrics; \"\" = type");
  v("type", o.type, "rule | model | http | command | python");
  v("rule", o.rule,
    "rule: contains | regex | numeric | exact | length | lcs | digit_share (docs/rewards.md)");
  v("path", o.path, "model: folder; python: file");
  v("size", o.size, "model: for planning without weights, as model.size");
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
  v("url", o.url, "http: address of the service");
  v("auth_token", o.auth_token, "http: sent as Authorization: Bearer; \"\" = none");
  v("batch_samples", o.batch_samples, "http: samples of one request", counted(1, kMostCount));
  v("command", o.command, "command: program and arguments");
  v("pattern", o.pattern, "rule contains, regex: text or expression");
  v("target", o.target, "rule length: length aimed at, in `unit`", at_least(0));
  v("unit", o.unit, "rule length: tokens | chars");
  v("weight", o.weight, "factor in the total; 0 = only reported");
  v("timeout_s", o.timeout_s, "seconds for one sample (http: one request; python: one call)",
    above(0));
  v("workers", o.workers, "samples (http: requests) scored at once; speed only", between(1, 1024));
  v("memory_mb", o.memory_mb, "command, python: limit of each process; 0 = none", counted(0, 1e9));
  v("retries", o.retries, "on_error: retry: further tries of a failed sample", counted(1, 1e6));
  v("outage_s", o.outage_s,
    "http: seconds for which a request that found no server, or a busy one, is tried again",
    at_least(0));
  v("on_error", o.on_error, "what a failure does: stop | drop | retry | zero");
}

template <class V>
void visit(V& v, CheckpointConfig& o) {
  v("dir", o.dir, "\"\" = RUN/checkpoints");
  v("every_steps", o.every_steps, "steps; 0 = not by steps", counted(0, kMostSteps));
  v("every_minutes", o.every_minutes,
    "minutes since the last one, looked at after each step; 0 = not by time", at_least(0));
  v("keep_last", o.keep_last, "newest checkpoints that are kept", counted(1, kMostSteps));
  v("keep_best", o.keep_best, "metric name; \"\" = off");
  v("resume", o.resume, "auto | none | PATH");
  v("allow", o.allow,
    "keys that may differ from those of the checkpoint, [optim.actor.lr] for one");
  v("hf_every_steps", o.hf_every_steps,
    "steps between exports of a Hugging Face folder; 0 = only at the end", counted(0, kMostSteps));
}

template <class V>
void visit(V& v, EvalConfig& o) {
  v("every_steps", o.every_steps, "steps between evaluations on data.eval; 0 = off",
    counted(0, kMostSteps));
  v("at_start", o.at_start, "evaluate before the first step too");
  v("samples_per_prompt", o.samples_per_prompt, "responses per prompt; above 1 gives pass@k",
    counted(1, kMostCount));
  v("temperature", o.temperature, "0 = greedy", zero_or_at_least(kLeastTemperature));
  v("prompts", o.prompts, "first lines of data.eval that are used; 0 = all", at_least(0));
  v("pass_threshold", o.pass_threshold, "total reward from which a response counts as right");
}

template <class V>
void visit(V& v, LogConfig& o) {
  v("console", o.console, "a line per step on standard error");
  v("jsonl", o.jsonl, "metrics.jsonl in the run's folder");
  v("tensorboard", o.tensorboard, "event files in the run's folder");
  v("wandb", o.wandb, "project in Weights & Biases (Python package wandb); \"\" = off");
  v("mlflow", o.mlflow, "experiment in MLflow (Python package mlflow); \"\" = off");
  v("command", o.command,
    "program and arguments; each row of metrics is a JSON line on its standard input");
  v("command_timeout_s", o.command_timeout_s,
    "seconds in which it must take a row, and in which it must end after the last one", above(0));
  v("command_on_error", o.command_on_error,
    "what its failure does, also that of wandb and mlflow: warn (go on without it) | stop (the run "
    "ends)",
    one_of("warn | stop"));
  v("samples_every", o.samples_every, "steps between rows of samples.jsonl; 0 = off",
    counted(0, kMostSteps));
}

template <class V>
void visit(V& v, RunConfig& o) {
  v("name", o.name, "of the run");
  v("dir", o.dir, "the run's folder is DIR/NAME");
  v("overwrite", o.overwrite, "begin anew in the folder of an earlier run, which is lost");
}

template <class V>
void visit(V& v, RuntimeConfig& o) {
  v("time_scale", o.time_scale,
    "device emulated: seconds of this machine for a second of the model; 0 = as many as keep what "
    "the real communication takes small",
    at_least(0));
  v("jitter", o.jitter,
    "device emulated: largest share by which what computes takes more or less than its price",
    from_to_below(0, 1));
  v("fault", o.fault,
    "device emulated: the lists of instructions are made wrong in one place, to see that the step "
    "shows it",
    one_of("none | dropped_wait | swapped_messages"));
}

template <class V>
void visit(V& v, Config& o) {
  v("run", o.run, "where results go");
  v("model", o.model, "the policy, and what other roles start from");
  v("tokenizer", o.tokenizer, "");
  v("device", o.device, "cpu | cuda | cuda:N | emulated");
  v("runtime", o.runtime, "of emulated devices");
  v("lora", o.lora, "low-rank adapters (Hu et al., 2022)");
  v("export", o.exports, "models that a run writes");
  v("reference", o.reference, "");
  v("critic", o.critic, "");
  v("teacher", o.teacher, "distill: the model that the policy becomes like");
  v("data", o.data, "");
  v("rollout", o.rollout, "generation in training");
  v("algorithm", o.algorithm, "");
  v("optim", o.optim, "one optimizer per trained role");
  v("train", o.train, "");
  v("reward", o.reward, "list; the total is the sum of weight times value");
  v("reward_total", o.reward_total, "what happens to the total");
  v("checkpoint", o.checkpoint, "");
  v("eval", o.eval, "");
  v("log", o.log, "");
  v("cluster", o.cluster, "{gpu, nodes, gpus_per_node} or {nodes: [...]}; null = this machine");
  v("workload", o.workload, "");
  v("placement", o.placement,
    "auto | colocated | interleaved | disaggregated | split | standalone | {role: devices}");
  v("parallel", o.parallel, "auto | {dp, tp, pp, ...}, also by call");
  v("plan", o.plan, "");
}

}  // namespace braid::inline config
