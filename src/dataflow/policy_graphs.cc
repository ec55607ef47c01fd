#include "dataflow/policy_graphs.h"

#include "config/algorithm_traits.h"

namespace braid::inline dataflow {
namespace {

// Else the penalty is a term of the loss.
bool penalizes_rewards(const AlgorithmOptions& options) {
  return options.kl.in == "reward" && algorithm_traits(options.name).rewards_tokens;
}

}  // namespace

Call update_policy_call(const AlgorithmOptions& options, const std::string& loss) {
  Call call{"update_actor",
            CallKind::kTrainStep,
            RoleId{"actor"},
            options.loss.empty() ? loss : options.loss,
            {"prompt_ids", "response_ids", "old_logprobs", "advantages"},
            {},
            "policy"};
  // A loss of the user's may read the reference, wherever the penalty is.
  if (options.kl.coef != 0 && (!penalizes_rewards(options) || !options.loss.empty()))
    call.reads.push_back("ref_logprobs");
  if (weighs_sampled(options)) call.reads.push_back("sampler_logprobs");
  return call;
}

Graph policy_graph(const AlgorithmOptions& options, const std::string& advantages,
                   const std::string& loss) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{options.name, {{actor, false, true}}, {}};
  graph.calls = {fetch_prompts_call(), generate_call(), reward_call()};
  graph.calls.push_back(old_logprob_call(options));
  std::vector<std::string> inputs = {"rewards", "response_ids"};
  if (options.kl.coef != 0) {
    graph.roles.push_back({reference, false, false});
    graph.calls.push_back(ref_logprob_call());
    if (penalizes_rewards(options)) inputs.insert(inputs.end(), {"old_logprobs", "ref_logprobs"});
  }
  const bool own = !options.advantages.empty();
  if (own) {
    inputs = {"rewards", "response_ids", "old_logprobs"};
    if (options.kl.coef != 0) inputs.push_back("ref_logprobs");
  }
  graph.calls.push_back({"advantages",
                         CallKind::kCompute,
                         {},
                         own ? options.advantages : advantages,
                         inputs,
                         {{"advantages"}}});
  graph.calls.push_back(update_policy_call(options, loss));
  return graph;
}

}  // namespace braid::inline dataflow
