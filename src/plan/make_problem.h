// From a configuration to what a plan is made for, and to what the configuration says about the
// plan itself. Pure apart from the reader that the caller passes in.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "config/options.h"
#include "models/names.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"

namespace braid::inline plan {

// The planning problem of a configuration. Sizes come from X.size, else from X.path/config.json,
// where X is model, critic, reference or a reward of type model; lengths from `workload`, else from
// data.max_prompt_length and rollout.max_response_length. Errors name the key and the remedy.
Result<PlanningProblem> make_problem(const Config& config, const ReadText& read);
// Whether one rank of several asks the list of rewards about all samples of a step.
bool asks_rewards_together(const Config& config);

// A workload length: a number, {mean, sigma, longest}, or {file, longest}; null gives `fallback`
// tokens, fixed.
Result<LengthDistribution> read_lengths(const YamlNode& node, const std::string& key,
                                        int64_t fallback, const ReadText& read);

// Refuses lengths that contradict the limit of their configuration: a mean, a stated longest or a
// measured length above it. Measured lengths are cut at a stated longest first.
Status check_length_limit(const LengthDistribution& lengths, const std::string& key, int64_t limit,
                          const std::string& limit_key);

// Refuses steps of so many sequences that drawing and pricing them would not end.
Status check_sequences(const Workload& workload);

// One length in tokens per line; errors name file:line.
Result<std::vector<int64_t>> parse_lengths(std::string_view text, const std::string& where);

// The roles of the rewards of type model, in the order of the list: "reward", "reward_2", ...
std::string reward_role(size_t number);
bool is_reward_role(const std::string& role);

// The reward of type model that a role means, or null, and its place in the list of rewards.
const RewardConfig* reward_model(const Config& config, const std::string& role = "reward");
std::optional<size_t> reward_model_index(const Config& config, const std::string& role = "reward");

// The graph with the model of a reward call as the role "reward".
Graph with_reward_model(Graph graph);
// The same of several models, of which each scores in a call of its own.
Graph with_reward_models(Graph graph, size_t models);
// Each of the models scores in a call of its own, score_1, score_2, ..., whose fields a reward call
// reads, also where there is one.
Graph with_score_calls(Graph graph, size_t models);

// The graph of the configuration's algorithm with the rewards of type model as roles.
Result<Graph> configured_graph(const Config& config);

// Whether the samples of a group that meet in a micro-batch have its prompt once.
bool shares_prompts(const Config& config, const Graph& graph);

// train.reduction where `auto` stands for what fits these devices.
Reduction reduction_of(const Config& config, const Cluster& cluster);

// What a configuration fixes of the plan; the search chooses the rest.
struct PlanConstraints {
  std::optional<ExecutionPlan> file;         // plan.file: everything
  std::map<std::string, DeviceMesh> meshes;  // placement, by call
  // parallel, by call and then by field ("tp"); only fields that mean something for the call
  std::map<std::string, std::map<std::string, int64_t>> strategies;
  bool empty() const { return !file && meshes.empty() && strategies.empty(); }
};

// Reads plan.file, placement and parallel. Errors: malformed sections, unknown calls, and two
// sections that disagree.
Result<PlanConstraints> plan_constraints(const Config& config, const PlanningProblem& problem,
                                         const ReadText& read);

// How many devices placement and parallel speak of where no cluster says it: as many as the largest
// sizes of a call take, and up to the highest device that is named; at least one. Errors: those of
// `parallel`.
Result<int> devices_stated(const Config& config, const Graph& graph);

// Whether a plan keeps the constraints; the error names the first that it breaks.
Status satisfies(const ExecutionPlan& plan, const PlanConstraints& constraints);

// The one plan that a configuration states without a search: plan.file, else placement (all
// devices when absent) with parallel (dp fills the mesh when absent). No value when it states
// neither. The plan is validated.
Result<std::optional<ExecutionPlan>> configured_plan(const Config& config,
                                                     const PlanningProblem& problem,
                                                     const ReadText& read);

}  // namespace braid::inline plan
