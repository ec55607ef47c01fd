// Options that decide where a run executes: cluster, workload lengths, placement, parallel sizes
// and the plan. Sections with several forms (a name or a map) stay YAML trees here; plan/ reads
// them, because config knows neither clusters nor models. None of them changes results.
#pragma once

#include <string>

#include "base/yaml.h"
#include "config/key_facts.h"

namespace braid::inline config {

struct WorkloadConfig {
  YamlNode prompt_length;
  YamlNode response_length;
  double draws = 1;
};

template <class V>
void visit(V& v, WorkloadConfig& o) {
  v("prompt_length", o.prompt_length,
    "tokens: a number, {mean, sigma} (lognormal) or {file}; null = data.max_prompt_length");
  v("response_length", o.response_length,
    "tokens: a number, {mean, sigma} (lognormal) or {file}; null = rollout.max_response_length");
  v("draws", o.draws,
    "draws of prompts that a step takes under algorithm.dynamic_sampling, in the mean "
    "(sampling/draws of a run); 1 = every group has a signal",
    counted(1, kMostCount));
}

inline constexpr int64_t kMostStaleness = 64;

struct PlanConfig {
  std::string file;
  bool automatic = false;
  std::string graph;
  int64_t staleness = 0;
  double memory_limit_gib = 0;
  double host_memory_gib = 0;
  std::string offload = "auto";
  std::string train_engine;
  std::string generate_engine;
};

template <class V>
void visit(V& v, PlanConfig& o) {
  v("file", o.file, "execution plan to use; \"\" = search, or placement and parallel");
  v("auto", o.automatic,
    "train: search the plan among those that training executes, as 'braid plan' would",
    key::no_cost("of 'braid train': 'braid plan' always searches"));
  v("graph", o.graph, "YAML file of an own dataflow graph; \"\" = the algorithm's");
  v("staleness", o.staleness,
    "steps that rollouts may be older than the weights that learn from them: those of a plan that "
    "placement and parallel state, the most of one that is searched; a plan file has its own "
    "(docs/plans.md)",
    counted(0, kMostStaleness), key::priced, key::read_if(ReadIf::kPlan));
  v("memory_limit_gib", o.memory_limit_gib, "per device; 0 = the device's", at_least(0),
    key::read_if(ReadIf::kPlanMemory));
  v("host_memory_gib", o.host_memory_gib,
    "per node, for weights and optimizer states that wait there; 0 = not limited", at_least(0),
    key::read_if(ReadIf::kPlanMemory));
  v("offload", o.offload,
    "auto: the plan says which weights and optimizer states wait in host memory; never: none do",
    one_of("auto | never"), key::read_if(ReadIf::kPlan));
  v("train_engine", o.train_engine,
    "whose measured speed training is priced with, such as megatron-lm, deepspeed, torchtitan "
    "(names: docs/planner.md); \"\" = the average engine",
    key::read_by_planning);
  v("generate_engine", o.generate_engine,
    "the same of generation: vllm, sglang, trtllm; \"\" = the average engine",
    key::read_by_planning);
}

}  // namespace braid::inline config
