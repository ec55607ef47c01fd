// What a plan is made for: a graph, the size of each role's model, the workload and the cluster.
// Plain values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "dataflow/graph.h"
#include "models/size.h"
#include "models/spec.h"
#include "plan/execution_plan.h"

namespace braid::inline plan {

// Lengths in tokens: all equal, lognormal, or drawn from a list.
struct LengthDistribution {
  enum class Kind { kFixed, kLognormal, kEmpirical };
  Kind kind = Kind::kFixed;
  double mean = 0;
  double sigma = 0;              // lognormal: standard deviation of the logarithm
  int64_t longest = 0;           // lengths are cut here; 0 = not cut
  std::vector<int64_t> samples;  // empirical
  friend bool operator==(const LengthDistribution&, const LengthDistribution&) = default;
};

struct Workload {
  int64_t prompts = 0;             // per step
  int64_t samples_per_prompt = 1;  // responses
  int64_t minibatches = 1;         // optimizer steps per epoch over one rollout
  int64_t epochs = 1;
  LengthDistribution prompt, response;
  // The longest that a configuration allows, in tokens: no price depends on it, and what is
  // exported has it. 0 = the longest of those above.
  int64_t prompt_limit = 0, response_limit = 0;
  // Inference and training compute the prompt of a group once in a micro-batch, as Braid's runtime.
  bool share_prompts = false;
  // How often what stands between a fetch and the select that may draw again runs, in the mean.
  double draws = 1;
  // Prompts of which responses are drawn at a time (rollout.in_flight); 0: those of a step.
  int64_t prompts_in_flight = 0;
  friend bool operator==(const Workload&, const Workload&) = default;
};

struct RoleModel {
  // All that prices need is its size; what a program that moves weights needs of its tensors is
  // beside that, or not known (knows_tensors()).
  ModelSpec spec;
  Trainable trainable;
  Precision precision = Precision::kBf16;
  std::vector<std::string> lora_targets = {};  // beside its tensors: models/adapter_targets.h
  // Role whose frozen base weights these are: a reference that is the actor without its adapters.
  // The two share memory where their layouts coincide.
  std::string shares_weights_with = "";
  bool keeps_average = false;  // beside its weights, in f32: it follows another role

  bool knows_tensors() const { return !spec.family.empty(); }
  friend bool operator==(const RoleModel&, const RoleModel&) = default;
};

// How ranks sum what each has a part of: in the order of the ranks (equal bits whatever the rows
// beside), or by the backend's own all-reduce and reduce-scatter.
enum class Reduction { kOrdered, kNative };

struct PlanningProblem {
  Graph graph;
  std::map<std::string, RoleModel> models;  // by role
  Workload workload;
  Cluster cluster;
  double memory_limit_gib = 0;  // lowers what a device has, context included; 0 = the device's
  double host_memory_gib = 0;   // of a node, for state that waits there; 0 = not limited
  bool may_offload = true;      // state of roles may wait in host memory
  // Weights that are not trained are files that come into memory for their calls, as Braid's
  // runtime has them on processors.
  bool maps_frozen = false;
  // Generation engines take their whole KV budget when they wake and hold it until they sleep
  // (vLLM, SGLang); false: pages as sequences grow.
  bool reserves_cache = false;
  // Of a generation engine at a time, where a plan does not say.
  int64_t max_concurrent = 2048;
  // Something in the list of rewards looks at all samples of a step, so one rank asks it.
  bool rewards_together = false;
  // No update learns from responses that were cut (algorithm.mask_truncated): so which samples its
  // mini-batches have is known when all are generated.
  bool leaves_out_truncated = false;
  Reduction reduction = Reduction::kNative;  // of tensor-parallel ranks
  int64_t engine_batch_tokens = 0;  // most of one forward of the generation engine; 0 = its usual
  // Whose efficiencies the cost model takes, such as "megatron-core" and "vllm"; "" = its default.
  std::string train_engine, generate_engine;
  friend bool operator==(const PlanningProblem&, const PlanningProblem&) = default;
};

// Sequences that a call handles in one step: the workload's, or fewer where the call says so
// (ReMax's greedy responses).
int64_t call_samples(const PlanningProblem& problem, const Call& call);
// How often a call runs in a step, in the mean: workload.draws where a select may run it again.
double draws_of(const PlanningProblem& problem, const std::string& call);
// Bytes of a device that a plan may count on: what it has, or the problem's limit if that is lower.
// The driver's context is part of both.
double device_memory_bytes(const PlanningProblem& problem, const GpuSpec& gpu);
// Bytes of a field that one sequence has, with mean lengths: 4 for a number and a token id; tokens
// of a sequence as a whole are its prompt.
double field_bytes(const Workload& workload, const Field& field);
// Sequences of one optimizer step.
int64_t minibatch_samples(const PlanningProblem& problem);
// The longest length of a distribution in tokens: its cut, or its largest sample; a lognormal one
// without a cut gives its 99.9 % quantile.
int64_t longest_tokens(const LengthDistribution& lengths);
double mean_tokens(const LengthDistribution& lengths);
// What a configuration allows, or the longest that there is.
int64_t allowed_prompt_tokens(const Workload& workload);
int64_t allowed_response_tokens(const Workload& workload);
// What a call computes in: its strategy's precision, or the model's own.
Precision precision_of(const RoleModel& model, const Strategy& strategy);
// Most tokens of one forward of the generation engine: the problem's, or `usual`.
inline int64_t engine_batch_tokens(const PlanningProblem& problem, int64_t usual) {
  return problem.engine_batch_tokens > 0 ? problem.engine_batch_tokens : usual;
}
// The model of a role. REQUIRES: the problem has it.
const RoleModel& model_of(const PlanningProblem& problem, const RoleId& role);

}  // namespace braid::inline plan
