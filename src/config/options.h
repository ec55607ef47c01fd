// The whole configuration of a training run as plain option structs, never modified after loading.
// Field comments: meaning, unit, neutral value. visit() is the one list of keys: reader, printer
// and documentation walk it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/algorithm_options.h"
#include "config/planning_options.h"

namespace braid {

struct LoraConfig {
  int64_t rank = 0;   // 0 = train all weights
  double alpha = 16;  // the update is scaled by alpha / rank
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
};

struct ModelConfig {
  std::string path;           // Hugging Face folder; "" with `config` = random weights
  std::string config;         // config.json alone: random initial weights
  std::string size;           // planning without weights: catalogue name or config.json
  std::string dtype = "f32";  // f32 | bf16 (f32 master weights)
};

struct TokenizerConfig {
  std::string path;  // "" = model.path
};

struct RoleConfig {
  std::string path;       // Hugging Face folder; "" = taken from model.path
  std::string init_from;  // critic: policy | reward_model | random; "" = policy
  std::string size;       // planning without weights, as model.size; "" = as its source
};

struct DataConfig {
  std::string train;  // JSONL file, or "task:NAME" for a built-in generated task
  std::string eval;   // the same, for evaluation
  std::string prompt_key = "prompt";
  std::string label_key = "label";
  int64_t max_prompt_length = 512;  // tokens
  std::string overlong = "error";   // error | drop | truncate_left
  bool shuffle = true;
  int64_t seed = 0;
};

struct RolloutConfig {
  int64_t prompts_per_step = 64;      // prompts
  int64_t samples_per_prompt = 1;     // responses per prompt
  int64_t max_response_length = 128;  // tokens
  int64_t min_response_length = 0;    // tokens
  double temperature = 1;
  double top_p = 1;
  int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop;  // strings that end a response
  bool ignore_eos = false;
  int64_t max_concurrent = 256;  // sequences in flight
  int64_t kv_budget_tokens = 0;  // 0 = enough for max_concurrent
  bool longest_first = false;
  bool record = false;  // write rollouts.jsonl
  std::string replay;   // train on a recorded file instead of generating
};

struct OptimizerConfig {
  double lr = 1e-6;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  std::string schedule = "constant";  // constant | linear | cosine
  int64_t warmup_steps = 0;           // optimizer steps
  double min_lr_ratio = 0;            // floor as a share of lr
  double max_grad_norm = 1;           // global norm; 0 = off
};

struct OptimConfig {
  OptimizerConfig actor;
  OptimizerConfig critic;
  OptimizerConfig reward;
};

struct TrainConfig {
  int64_t total_steps = 100;  // steps: one rollout each (sft, rm: one optimizer step each)
  int64_t epochs_per_rollout = 1;
  int64_t minibatches = 1;      // optimizer steps per epoch over one rollout
  int64_t micro_tokens = 4096;  // tokens of one forward and backward
  int64_t seed = 0;
  int64_t threads = 0;                // compute threads; 0 = all cores
  bool recompute = false;             // recompute layer activations in the backward
  std::string on_nonfinite = "stop";  // stop | skip
  int64_t max_skipped_steps = 3;      // skip: give up after this many in a row
};

struct RewardTotalOptions {
  double clip = 0;                 // total reward is clipped to [-clip, clip]; 0 = off
  double missing_eos_penalty = 0;  // subtracted from the reward of a truncated response
};

struct RewardConfig {
  std::string name;  // column of the metrics; "" = type
  std::string type;  // rule | model | http | command | python
  std::string rule;  // rule: contains | regex | numeric | exact | length | lcs | digit_share | ...
  std::string path;  // model: folder; python: file
  std::string size;  // model: for planning without weights, as model.size
  std::string function;              // python: function name
  std::string signature = "auto";    // python: verl | trl; auto = by the parameter names
  std::string url;                   // http
  std::string auth_token;            // http: sent as "Authorization: Bearer"; "" = none
  int64_t batch_samples = 32;        // http: samples of one request
  std::vector<std::string> command;  // command: program and arguments
  std::string pattern;               // rule contains/regex: text or expression
  double target = 0;                 // rule length: length aimed at, in `unit`
  std::string unit = "tokens";       // rule length: tokens | chars
  double weight = 1;
  double timeout_s = 180;
  int64_t workers = 1;
  int64_t memory_mb = 0;  // command, python: limit; 0 = none
  int64_t retries = 5;
  std::string on_error = "stop";  // stop | drop | retry | zero
};

struct CheckpointConfig {
  std::string dir;          // "" = RUN/checkpoints
  int64_t every_steps = 0;  // 0 = only at the end
  int64_t keep_last = 2;
  std::string keep_best;        // metric name; "" = off
  std::string resume = "none";  // auto | none | PATH
  int64_t hf_every_steps = 0;   // export a Hugging Face folder; 0 = only at the end
};

struct EvalConfig {
  int64_t every_steps = 0;  // 0 = off
  bool at_start = false;
  int64_t samples_per_prompt = 1;  // pass@k
  double temperature = 0;
  int64_t prompts = 0;  // 0 = the whole file
};

struct LogConfig {
  bool console = true;
  bool jsonl = true;
  bool tensorboard = true;
  std::vector<std::string> command;  // each metrics row on this child's standard input
  int64_t samples_every = 10;        // steps between rows of samples.jsonl; 0 = off
};

struct RunConfig {
  std::string name = "run";
  std::string dir = "runs";  // the run's folder is DIR/NAME
};

struct Config {
  RunConfig run;
  ModelConfig model;
  TokenizerConfig tokenizer;
  std::string device = "cpu";  // cpu | cuda | cuda:N
  LoraConfig lora;
  RoleConfig reference;
  RoleConfig critic;
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
  YamlNode cluster;  // {gpu, nodes, gpus_per_node}, or {nodes: [...]}; null = this machine
  WorkloadConfig workload;
  YamlNode placement;  // colocated | split | ... | {role: devices}; null = auto
  YamlNode parallel;   // {dp, tp, pp, ...}, also by call; null = auto
  PlanConfig plan;
};

template <class V>
void visit(V& v, LoraConfig& o) {
  v("rank", o.rank, "0 = train all weights");
  v("alpha", o.alpha, "the update is scaled by alpha / rank");
  v("targets", o.targets, "");
}

template <class V>
void visit(V& v, ModelConfig& o) {
  v("path", o.path, "Hugging Face folder; \"\" with `config` = random weights");
  v("config", o.config, "config.json alone: random initial weights");
  v("size", o.size, "planning without weights: catalogue name (llama2-7b) or config.json");
  v("dtype", o.dtype, "f32 | bf16 (f32 master weights)");
}

template <class V>
void visit(V& v, TokenizerConfig& o) {
  v("path", o.path, "folder or tokenizer.json; \"\" = model.path");
}

template <class V>
void visit(V& v, RoleConfig& o) {
  v("path", o.path, "Hugging Face folder; \"\" = taken from model.path");
  v("init_from", o.init_from, "critic: policy | reward_model | random; \"\" = policy");
  v("size", o.size, "planning without weights, as model.size; \"\" = as its source");
}

template <class V>
void visit(V& v, DataConfig& o) {
  v("train", o.train, "JSONL file, or \"task:NAME\" for a built-in generated task");
  v("eval", o.eval, "the same, for evaluation");
  v("prompt_key", o.prompt_key, "");
  v("label_key", o.label_key, "");
  v("max_prompt_length", o.max_prompt_length, "tokens");
  v("overlong", o.overlong, "error | drop | truncate_left");
  v("shuffle", o.shuffle, "");
  v("seed", o.seed, "");
}

template <class V>
void visit(V& v, RolloutConfig& o) {
  v("prompts_per_step", o.prompts_per_step, "prompts");
  v("samples_per_prompt", o.samples_per_prompt, "responses per prompt");
  v("max_response_length", o.max_response_length, "tokens");
  v("min_response_length", o.min_response_length, "tokens");
  v("temperature", o.temperature, "");
  v("top_p", o.top_p, "");
  v("top_k", o.top_k, "");
  v("min_p", o.min_p, "");
  v("repetition_penalty", o.repetition_penalty, "");
  v("stop", o.stop, "strings that end a response");
  v("ignore_eos", o.ignore_eos, "");
  v("max_concurrent", o.max_concurrent, "sequences in flight");
  v("kv_budget_tokens", o.kv_budget_tokens, "0 = enough for max_concurrent");
  v("longest_first", o.longest_first, "");
  v("record", o.record, "write rollouts.jsonl");
  v("replay", o.replay, "train on a recorded file instead of generating");
}

template <class V>
void visit(V& v, OptimizerConfig& o) {
  v("lr", o.lr, "");
  v("betas", o.betas, "");
  v("eps", o.eps, "");
  v("weight_decay", o.weight_decay, "");
  v("schedule", o.schedule, "constant | linear | cosine");
  v("warmup_steps", o.warmup_steps, "optimizer steps");
  v("min_lr_ratio", o.min_lr_ratio, "floor as a share of lr");
  v("max_grad_norm", o.max_grad_norm, "global norm; 0 = off");
}

template <class V>
void visit(V& v, OptimConfig& o) {
  v("actor", o.actor, "");
  v("critic", o.critic, "");
  v("reward", o.reward, "");
}

template <class V>
void visit(V& v, TrainConfig& o) {
  v("total_steps", o.total_steps, "steps: one rollout each (sft, rm: one optimizer step each)");
  v("epochs_per_rollout", o.epochs_per_rollout, "");
  v("minibatches", o.minibatches, "optimizer steps per epoch over one rollout");
  v("micro_tokens", o.micro_tokens, "tokens of one forward and backward");
  v("seed", o.seed, "");
  v("threads", o.threads, "compute threads; 0 = all cores");
  v("recompute", o.recompute, "recompute layer activations in the backward");
  v("on_nonfinite", o.on_nonfinite, "stop | skip");
  v("max_skipped_steps", o.max_skipped_steps, "skip: give up after this many in a row");
}

template <class V>
void visit(V& v, RewardTotalOptions& o) {
  v("clip", o.clip, "total reward is clipped to [-clip, clip]; 0 = off");
  v("missing_eos_penalty", o.missing_eos_penalty,
    "subtracted from the reward of a truncated response");
}

template <class V>
void visit(V& v, RewardConfig& o) {
  v("name", o.name, "column of the metrics; \"\" = type");
  v("type", o.type, "rule | model | http | command | python");
  v("rule", o.rule, "rule: contains | regex | numeric | exact | length | lcs | digit_share | ...");
  v("path", o.path, "model: folder; python: file");
  v("size", o.size, "model: for planning without weights, as model.size");
  v("function", o.function, "python: function name");
  v("signature", o.signature, "python: verl | trl; auto = by the parameter names");
  v("url", o.url, "http");
  v("auth_token", o.auth_token, "http: sent as Authorization: Bearer; \"\" = none");
  v("batch_samples", o.batch_samples, "http: samples of one request");
  v("command", o.command, "command: program and arguments");
  v("pattern", o.pattern, "rule contains/regex: text or expression");
  v("target", o.target, "rule length: length aimed at, in `unit`");
  v("unit", o.unit, "rule length: tokens | chars");
  v("weight", o.weight, "");
  v("timeout_s", o.timeout_s, "");
  v("workers", o.workers, "");
  v("memory_mb", o.memory_mb, "command, python: limit; 0 = none");
  v("retries", o.retries, "");
  v("on_error", o.on_error, "stop | drop | retry | zero");
}

template <class V>
void visit(V& v, CheckpointConfig& o) {
  v("dir", o.dir, "\"\" = RUN/checkpoints");
  v("every_steps", o.every_steps, "0 = only at the end");
  v("keep_last", o.keep_last, "");
  v("keep_best", o.keep_best, "metric name; \"\" = off");
  v("resume", o.resume, "auto | none | PATH");
  v("hf_every_steps", o.hf_every_steps, "export a Hugging Face folder; 0 = only at the end");
}

template <class V>
void visit(V& v, EvalConfig& o) {
  v("every_steps", o.every_steps, "0 = off");
  v("at_start", o.at_start, "");
  v("samples_per_prompt", o.samples_per_prompt, "pass@k");
  v("temperature", o.temperature, "");
  v("prompts", o.prompts, "0 = the whole file");
}

template <class V>
void visit(V& v, LogConfig& o) {
  v("console", o.console, "");
  v("jsonl", o.jsonl, "");
  v("tensorboard", o.tensorboard, "");
  v("command", o.command, "each metrics row on this child's standard input");
  v("samples_every", o.samples_every, "steps between rows of samples.jsonl; 0 = off");
}

template <class V>
void visit(V& v, RunConfig& o) {
  v("name", o.name, "");
  v("dir", o.dir, "the run's folder is DIR/NAME");
}

template <class V>
void visit(V& v, Config& o) {
  v("run", o.run, "");
  v("model", o.model, "");
  v("tokenizer", o.tokenizer, "");
  v("device", o.device, "cpu | cuda | cuda:N");
  v("lora", o.lora, "");
  v("reference", o.reference, "");
  v("critic", o.critic, "");
  v("data", o.data, "");
  v("rollout", o.rollout, "");
  v("algorithm", o.algorithm, "");
  v("optim", o.optim, "");
  v("train", o.train, "");
  v("reward", o.reward, "");
  v("reward_total", o.reward_total, "");
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

}  // namespace braid
