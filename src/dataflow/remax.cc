// ReMax: the baseline of a sample is the reward of its prompt's greedy response, which a second
// generation gives (Li et al., 2023, arXiv 2310.10505, §4.1).
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {
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
  AlgorithmOptions without = options;  // no library's advantages know of the greedy response
  without.advantages.clear();
  Graph graph = policy_graph(without, "remax_advantages");
  std::vector<Call>& calls = graph.calls;  // fetch, generate, reward, ...
  calls.insert(calls.begin() + 2, greedy_generate_call());
  calls.insert(calls.begin() + 4, greedy_reward_call());
  for (Call& call : calls)
    if (call.name == "advantages") call.reads.push_back("greedy_rewards");
  return graph;
}

}  // namespace braid::inline dataflow
