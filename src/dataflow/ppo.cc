// PPO with a critic (Ouyang et al., 2022, §3.5; Schulman et al., 2017).
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
  if (options.tis_cap != 0) policy.push_back("sampler_logprobs");
  graph.calls.push_back({"update_actor",
                         CallKind::kTrainStep,
                         actor,
                         options.loss.empty() ? "policy" : options.loss,
                         policy,
                         {},
                         "policy"});
  return graph;
}

}  // namespace braid::inline dataflow
