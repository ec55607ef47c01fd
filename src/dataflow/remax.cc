// ReMax: the baseline of a sample is the reward of its prompt's greedy response, which a second
// generation gives (Li et al., 2023, arXiv 2310.10505, §4.1).
#include "dataflow/graph.h"

namespace braid {
namespace {

Call greedy_generate_call() {
  Call call = generate_call();
  call.name = "generate_greedy";
  call.function = "greedy";
  call.writes = {{"greedy_ids", FieldType::kTokens, FieldShape::kPerToken},
                 {"greedy_truncated", FieldType::kFlag, FieldShape::kPerSample}};
  call.samples_per_prompt = 1;
  return call;
}

Call greedy_reward_call() {
  Call call = reward_call();
  call.name = "reward_greedy";
  call.reads = {"prompt_ids", "greedy_ids", "greedy_truncated"};
  call.writes = {{"greedy_rewards", FieldType::kReal, FieldShape::kPerSample}};
  call.samples_per_prompt = 1;
  return call;
}

}  // namespace

Graph remax_graph(const AlgorithmOptions& options) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{"remax", {{actor, false, true}}, {}};
  graph.calls = {fetch_prompts_call(), generate_call(), greedy_generate_call(), reward_call(),
                 greedy_reward_call()};
  const std::vector<std::string> tokens = {"prompt_ids", "response_ids"};
  graph.calls.push_back(
      {"old_logprob", CallKind::kInfer, actor, "logprobs", tokens, {{"old_logprobs"}}});
  std::vector<std::string> inputs = {"rewards", "greedy_rewards", "response_ids", "old_logprobs"};
  if (options.kl.coef != 0) {
    graph.roles.push_back({reference, false, false});
    graph.calls.push_back(
        {"ref_logprob", CallKind::kInfer, reference, "logprobs", tokens, {{"ref_logprobs"}}});
    inputs.push_back("ref_logprobs");
  }
  graph.calls.push_back(
      {"advantages", CallKind::kCompute, {}, "remax_advantages", inputs, {{"advantages"}}});
  graph.calls.push_back({"update_actor",
                         CallKind::kTrainStep,
                         actor,
                         "policy",
                         {"prompt_ids", "response_ids", "old_logprobs", "advantages"},
                         {}});
  return graph;
}

}  // namespace braid
