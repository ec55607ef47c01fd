// PPO with a critic (Ouyang et al., 2022, §3.5; Schulman et al., 2017).
#include <algorithm>

#include "base/text.h"
#include "dataflow/graph.h"

namespace braid::inline dataflow {

Graph ppo_graph(const AlgorithmOptions& options) {
  const RoleId actor{"actor"}, critic{"critic"}, reference{"reference"};
  Graph graph{"ppo", {{actor, false, true}, {critic, true, true}}, {}};
  graph.calls = {fetch_prompts_call(), generate_call(), reward_call()};
  std::vector<std::string> tokens = {"prompt_ids", "response_ids"};
  graph.calls.push_back(old_logprob_call(options));
  graph.calls.push_back({"values", CallKind::kInfer, critic, "values", tokens, {{"values"}}});
  std::vector<std::string> inputs = {"rewards", "old_logprobs", "values"};
  if (options.kl.coef != 0) {
    graph.roles.push_back({reference, false, false});
    graph.calls.push_back(ref_logprob_call());
    inputs.push_back("ref_logprobs");
  }
  graph.calls.push_back({"advantages",
                         CallKind::kCompute,
                         {},
                         "ppo_advantages",
                         inputs,
                         {{"advantages"}, {"returns"}}});
  graph.calls.push_back({"update_critic",
                         CallKind::kTrainStep,
                         critic,
                         "value",
                         {"prompt_ids", "response_ids", "values", "returns"},
                         {}});
  std::vector<std::string> policy = {"prompt_ids", "response_ids", "old_logprobs", "advantages"};
  if (options.kl.coef != 0) policy.push_back("ref_logprobs");
  if (weighs_sampled(options)) policy.push_back("sampler_logprobs");
  graph.calls.push_back({"update_actor",
                         CallKind::kTrainStep,
                         actor,
                         options.loss.empty() ? "policy" : options.loss,
                         policy,
                         {},
                         "policy"});
  return graph;
}

// Schulman et al., 2017, eq. 9: where policy and value function share parameters, the loss has both
// terms.
Result<Graph> with_shared_trunk(Graph graph) {
  const RoleId actor{"actor"}, critic{"critic"};
  const Call *value = find_call(graph, "update_critic"), *policy = find_call(graph, "update_actor");
  if (find_role(graph, critic) == nullptr || value == nullptr || policy == nullptr)
    return invalid_input(cat("critic.shared_trunk: ", graph.name,
                             " has no critic whose trunk the actor could be; remove it"));
  if (policy->function != "policy")
    return invalid_input(
        cat("critic.shared_trunk: one update has the losses of policy and values, ", "in which ",
            policy->function, " (algorithm.loss) has no place; ", "remove one of them"));
  const std::vector<std::string> reads = value->reads;
  std::erase_if(graph.roles, [&](const RoleSpec& role) { return role.role == critic; });
  std::erase_if(graph.calls, [](const Call& call) { return call.name == "update_critic"; });
  for (RoleSpec& role : graph.roles)
    if (role.role == actor) role.value_head = true;
  for (Call& call : graph.calls) {
    if (call.role == critic) call.role = actor;
    if (call.name != "update_actor") continue;
    call.function = "policy_and_value";
    for (const std::string& field : reads)
      if (std::find(call.reads.begin(), call.reads.end(), field) == call.reads.end())
        call.reads.push_back(field);
  }
  return graph;
}

}  // namespace braid::inline dataflow
