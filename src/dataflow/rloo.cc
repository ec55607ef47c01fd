// RLOO: the baseline of a sample is the mean reward of the other samples of its prompt (Ahmadian et
// al., 2024, arXiv 2402.14740, §2.2).
#include "dataflow/graph.h"

namespace braid {

Graph rloo_graph(const AlgorithmOptions& options) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{"rloo", {{actor, false, true}}, {}};
  graph.calls = {fetch_prompts_call(), generate_call(), reward_call()};
  const std::vector<std::string> tokens = {"prompt_ids", "response_ids"};
  graph.calls.push_back(
      {"old_logprob", CallKind::kInfer, actor, "logprobs", tokens, {{"old_logprobs"}}});
  std::vector<std::string> inputs = {"rewards", "response_ids", "old_logprobs"};
  if (options.kl.coef != 0) {
    graph.roles.push_back({reference, false, false});
    graph.calls.push_back(
        {"ref_logprob", CallKind::kInfer, reference, "logprobs", tokens, {{"ref_logprobs"}}});
    inputs.push_back("ref_logprobs");
  }
  graph.calls.push_back(
      {"advantages", CallKind::kCompute, {}, "rloo_advantages", inputs, {{"advantages"}}});
  graph.calls.push_back({"update_actor",
                         CallKind::kTrainStep,
                         actor,
                         "policy",
                         {"prompt_ids", "response_ids", "old_logprobs", "advantages"},
                         {}});
  return graph;
}

}  // namespace braid
