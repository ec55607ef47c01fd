// The whole configuration of a training run as plain option structs, never modified after loading.
// The line of visit() declares a key: name, field, meaning, unit, neutral value, the values allowed
// and what it is to plans, runs and their continuation (key_facts.h). Reader, printer,
// documentation (docs/configuration.md), planner, runs and checkpoints walk it.
#pragma once

#include <string>
#include <vector>

#include "config/algorithm_options.h"
#include "config/data_options.h"
#include "config/model_options.h"
#include "config/planning_options.h"
#include "config/run_options.h"
#include "config/train_options.h"

namespace braid::inline config {

struct Config {
  RunConfig run;
  ModelConfig model;
  TokenizerConfig tokenizer;
  std::string device = "cpu";
  RuntimeConfig runtime;
  LoraConfig lora;
  ExportConfig exports;
  ReferenceConfig reference;
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
  ReportConfig report;
  YamlNode cluster;
  WorkloadConfig workload;
  YamlNode placement;
  YamlNode parallel;
  PlanConfig plan;
};

template <class V>
void visit(V& v, Config& o) {
  v("run", o.run, "where results go", key::of_the_files, key::read_always, key::free_on_resume);
  v("model", o.model, "the policy, and what other roles start from", key::priced, key::read_always);
  v("tokenizer", o.tokenizer, "", key::of_the_files, key::read_always);
  v("device", o.device, "cpu | cuda | cuda:N | emulated", key::priced, key::read_always,
    key::free_on_resume);
  v("runtime", o.runtime, "of the ranks of a job, and of emulated devices",
    key::no_cost("of 'braid train' with device=emulated"), key::read_always, key::free_on_resume);
  v("lora", o.lora, "low-rank adapters (Hu et al., 2022)", key::of_the_result,
    key::read_if(ReadIf::kAdapters));
  v("export", o.exports, "models that a run writes", key::of_the_files, key::read_always,
    key::free_on_resume);
  v("reference", o.reference, "", key::priced, key::read_if(ReadIf::kReference));
  v("critic", o.critic, "", key::of_the_result, key::read_if(ReadIf::kCritic));
  v("teacher", o.teacher, "distill: the model that the policy becomes like", key::priced,
    key::read_if(ReadIf::kTeacher));
  v("data", o.data, "", key::of_the_data, key::read_always);
  v("rollout", o.rollout, "generation in training", key::of_the_result,
    key::read_if(ReadIf::kGeneration));
  v("algorithm", o.algorithm, "", key::of_the_result, key::read_if(ReadIf::kGeneration));
  v("optim", o.optim, "one optimizer per trained role", key::of_the_result,
    key::read_if(ReadIf::kOptimizer));
  v("train", o.train, "", key::of_the_result, key::read_always);
  v("reward", o.reward, "list; the total is the sum of weight times value", key::of_the_result,
    key::read_if(ReadIf::kGeneration));
  v("reward_total", o.reward_total, "what happens to the total", key::of_the_result,
    key::read_if(ReadIf::kGeneration));
  v("checkpoint", o.checkpoint, "", key::of_the_files, key::read_always, key::free_on_resume);
  v("eval", o.eval, "", key::beside_the_step, key::read_if(ReadIf::kEvaluation),
    key::free_on_resume);
  v("log", o.log, "", key::no_cost("says what is printed"), key::read_always, key::free_on_resume);
  v("report", o.report, "the page of a run", key::no_cost("says what is written at the end"),
    key::read_always, key::free_on_resume);
  v("cluster", o.cluster, "{gpu, nodes, gpus_per_node} or {nodes: [...]}; null = this machine",
    key::priced, key::read_if(ReadIf::kPlan), key::free_on_resume);
  v("workload", o.workload, "", key::priced, key::read_if(ReadIf::kPrices), key::free_on_resume);
  v("placement", o.placement,
    "auto | colocated | interleaved | disaggregated | split | standalone | {role: devices, or a "
    "share such as 0.25}",
    key::priced, key::read_always, key::free_on_resume);
  v("parallel", o.parallel, "auto | {dp, tp, pp, ...}, also by call", key::priced, key::read_always,
    key::free_on_resume);
  v("plan", o.plan, "", key::priced, key::read_always, key::free_on_resume);
}

}  // namespace braid::inline config
