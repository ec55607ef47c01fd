// GRPO: groups of samples of one prompt are each other's baseline (Shao et al., 2024, §4.1).
#include "dataflow/graph.h"

namespace braid {

Graph grpo_graph(const AlgorithmOptions& options) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{"grpo", {{actor, false, true}}, {}};
  graph.calls = {fetch_prompts_call(), generate_call(), reward_call()};
  const std::vector<std::string> tokens = {"prompt_ids", "response_ids"};
  graph.calls.push_back(old_logprob_call(options));
  std::vector<std::string> policy = {"prompt_ids", "response_ids", "old_logprobs", "advantages"};
  if (options.kl.coef != 0) {
    graph.roles.push_back({reference, false, false});
    graph.calls.push_back(
        {"ref_logprob", CallKind::kInfer, reference, "logprobs", tokens, {{"ref_logprobs"}}});
    policy.push_back("ref_logprobs");
  }
  if (options.tis_cap != 0) policy.push_back("sampler_logprobs");
  graph.calls.push_back({"advantages",
                         CallKind::kCompute,
                         {},
                         "grpo_advantages",
                         {"rewards", "response_ids"},
                         {{"advantages"}}});
  graph.calls.push_back(
      {"update_actor", CallKind::kTrainStep, actor, "policy", policy, {}, "policy"});
  return graph;
}

}  // namespace braid
