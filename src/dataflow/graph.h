// The dataflow graph of an algorithm: function calls over named sample fields. A value: what runs
// is decided by whoever compiles it. Field shapes: per token means one number per response token of
// each sample.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "config/algorithm_options.h"

namespace braid::inline dataflow {

enum class CallKind {
  kFetch,      // prompts (or whole samples) from the data set
  kGenerate,   // responses, sampled by the role's model
  kInfer,      // one forward of the role's model: logprobs, values or scores
  kReward,     // rewards from rules, services and reward models
  kCompute,    // an algorithm's function over the whole rollout
  kTrainStep,  // optimizer steps of the role's model on a loss
  kFollow,     // the weights of the role that `function` names move towards those it follows
  kSelect,     // leaves out groups without a signal; where too few are left, its fetch and all
               // calls since then run again with further prompts
};
const char* call_kind_name(CallKind kind);

enum class FieldType {
  kTokens,
  kReal,
  kFlag,
  kCount,  // whole numbers that say how large other fields are, and which samples there are
};
enum class FieldShape { kPerSample, kPerToken };

struct Field {
  std::string name;
  FieldType type = FieldType::kReal;
  FieldShape shape = FieldShape::kPerToken;
  // The field of counts that says how many numbers a sample has; "": one. Whoever gets samples of
  // this field has those of that one before.
  std::string sizes = {};
  friend bool operator==(const Field&, const Field&) = default;
};

struct Call {
  std::string name;  // unique in the graph; also the phase name of metrics ("time/NAME")
  CallKind kind = CallKind::kCompute;
  RoleId role;  // the model it uses; empty for fetch, reward and compute
  // infer: logprobs | values | scores; compute, train step: name in algo/; follow: a role
  std::string function;
  std::vector<std::string> reads;
  std::vector<Field> writes;
  std::string metrics =
      {};  // train step: group of its update's metrics ("policy/lr"); "" = the role
  int64_t samples_per_prompt = 0;  // 0 = the workload's; ReMax's greedy responses: 1
  // Train step: its loss compares the samples of a group, which meet in a micro-batch.
  bool compares_samples = false;
  // Compute (note_what_it_looks_at()): what its function gives a sample depends on the sample's
  // group, of the others on rewards alone, and, where it `sums_step`, on sums over all samples that
  // ranks tell each other.
  bool by_groups = false;
  bool by_samples = false;  // with groups: beside rewards it looks at the sample alone
  bool sums_step = false;
  bool groups_alone = false;  // with groups: of other samples not even rewards
  int64_t every_steps = 1;    // follow: in the last of every so many steps of a run
  // It works on the samples of so many steps later (generated_ahead()).
  int64_t steps_ahead = 0;
  // Generate: it ends when enough groups have finished, and what it leaves is carried to the next
  // step, whose weights may be so many steps newer than those that drew its first token
  // (carried_over()). 0: it finishes all.
  int64_t carried_steps = 0;
  friend bool operator==(const Call&, const Call&) = default;
};

// What a role's model must have.
struct RoleSpec {
  RoleId role;
  bool scalar_head = false;
  bool trained = false;
  RoleId weights_from = {};  // trained role whose weights this one follows: EMA reference, shadow
  bool value_head = false;   // a scalar head beside that of a language model: shared trunk
  friend bool operator==(const RoleSpec&, const RoleSpec&) = default;
};

struct Graph {
  std::string name;
  std::vector<RoleSpec> roles;
  std::vector<Call> calls;  // in a valid order
  friend bool operator==(const Graph&, const Graph&) = default;
};

// Whether a call runs a model and hence needs devices in a plan.
bool uses_model(const Call& call);
// The call of a name, or null.
const Call* find_call(const Graph& graph, const std::string& name);
const RoleSpec* find_role(const Graph& graph, const RoleId& role);

// Roles whose weights a call uses: its own; of a follow call the one that it reads, then the one
// that moves.
std::vector<RoleId> used_roles(const Graph& graph, const Call& call);
// Whether a call changes a role's weights, and whether any call of the graph does.
bool changes(const Call& call, const RoleId& role);
bool changes(const Graph& graph, const RoleId& role);
// Whether the step has a select call.
bool draws_again(const Graph& graph);
// The fetch whose prompts a select call decides on: the last one before it. REQUIRES: there is one.
CallId fetch_of(const Graph& graph, CallId select);
// The select call that may run a call again; -1: none.
CallId select_around(const Graph& graph, CallId call);

// Whether the step generates text (an RL algorithm) or trains on the data as it is.
bool generates(const Graph& graph);

// Notes which compute calls look at each group, or sample, alone. Options decide it, so that no
// text of a graph says it.
void note_what_it_looks_at(const AlgorithmOptions& options, Graph* graph);

// Adds the fields that say how large the others are, where they are missing: the calls that write
// tokens write their lengths, a fetch the groups, a reward call the kept mask; and whoever reads a
// field, or partitions samples, reads them too. No call comes to wait for one that it does not wait
// for already.
void declare_sizes(Graph* graph);

// Every field read is written before, or in an earlier step by a call that works ahead, and its
// sizes are read too; every field and call name is unique, every role is declared.
Status verify(const Graph& graph);

// The field that a generation writes which works ahead, or carries samples: the steps that the
// weights had learnt from which drew a sample's response, the oldest of them where several did.
inline constexpr const char* kWeightsVersion = "weights_version";

// Whether a call runs on other devices than those that generate.
using RunsApart = std::function<bool(const Call&)>;
// The graph in which rollouts are made `steps` steps before they are learnt from: calls that
// generate, and the data that these read, work on samples of a later step. All else reads what they
// made in an earlier one. In the order of the calls: the data, what all ranks hear of before
// training or what runs on devices that generate (none said: any), generation, all else. As it is
// for 0 steps. Errors name the key and what does not allow it.
Result<Graph> generated_ahead(Graph graph, int64_t steps, const RunsApart& apart = {});
// The same graph with its calls in the one order that what they wait for and their names give.
Graph ordered_by_name(const Graph& graph);
// How many steps its generation works ahead.
int64_t steps_ahead(const Graph& graph);
// The graph whose generation leaves samples that newer weights go on with (rollout.in_flight), for
// `steps` steps at most. Errors name the key and what of the graph does not allow it.
Result<Graph> carried_over(Graph graph, int64_t steps);
// For how many steps its generation carries samples.
int64_t carried_steps(const Graph& graph);
// Whether two calls work on the samples of different steps, so that one reads what the other made
// in an earlier step.
bool of_other_steps(const Graph& graph, CallId a, CallId b);

// Indices of the calls that each call waits for: the producers of what it reads, of its own
// samples' step, and earlier calls of the same weights (its role's, or those that its role follows)
// when either of them trains.
std::vector<std::vector<CallId>> dependencies(const Graph& graph);

// Which weights a call computes with: those that `trained` leaves, `lag_steps` iterations earlier.
struct VersionEdge {
  CallId trained;  // a train step
  CallId used_by;
  int64_t lag_steps = 0;  // 1: the train step comes later in the iteration
  friend bool operator==(const VersionEdge&, const VersionEdge&) = default;
};
// One edge per call and train step of the weights that it computes with, in order of the calls.
std::vector<VersionEdge> version_edges(const Graph& graph);

// `steps` iterations as one graph: calls and fields of iteration i end in "@i". dependencies() of
// the result orders calls across iterations by the weights that they share. REQUIRES: steps >= 1.
Graph unroll(const Graph& graph, int steps);

// The graph of options.name; an unknown name is an error that lists the known ones.
Result<Graph> make_graph(const AlgorithmOptions& options);

// The graph with a reference that follows the actor: at the end of every so many steps its weights
// move towards the actor's. As it is where it has no reference, or for 0 steps.
Graph with_moving_reference(Graph graph, int64_t every_steps);

// A graph with a critic as one in which the actor is the critic too: its values are of a second
// head over the last hidden states, and one update has both losses. An error where the graph has no
// critic, or another policy loss than its own.
Result<Graph> with_shared_trunk(Graph graph);
// Whether a call of the graph gives values of tokens.
bool has_values(const Graph& graph);

// The names that make_graph() knows.
std::vector<std::string> algorithm_names();

// The algorithms' graphs, one file each.
Graph ppo_graph(const AlgorithmOptions& options);
Graph grpo_graph(const AlgorithmOptions& options);
Graph sft_graph(const AlgorithmOptions& options);
Graph rm_graph(const AlgorithmOptions& options);
Graph rloo_graph(const AlgorithmOptions& options);
Graph remax_graph(const AlgorithmOptions& options);
Graph dpo_graph(const AlgorithmOptions& options);
Graph orpo_graph(const AlgorithmOptions& options);
Graph online_dpo_graph(const AlgorithmOptions& options);
Graph kto_graph(const AlgorithmOptions& options);
Graph distill_graph(const AlgorithmOptions& options);

// Pieces that several algorithms share.
Call fetch_prompts_call();
// Preference pairs: the chosen response of each, then the rejected one.
Call fetch_pairs_call();
Call generate_call();
Call reward_call();
// Log-probs of the policy that generated, by algorithm.old_logprobs: a pass of the trainer, or the
// sampler's own.
Call old_logprob_call(const AlgorithmOptions& options);
// Log-probs of given responses under the reference.
Call ref_logprob_call();

}  // namespace braid::inline dataflow
