// Algorithms on preferences. DPO: pairs of the data and a frozen reference, no generation (Rafailov
// et al., 2023, arXiv 2305.18290, eq. 7). ORPO: pairs without a reference (Hong et al., 2024, arXiv
// 2403.07691, eq. 6). Online DPO: the best and the worst response of a prompt, as rewards say, are
// the pair (Guo et al., 2024, arXiv 2402.04792, alg. 1).
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {
namespace {

// Its loss compares samples of a group, which are in one micro-batch.
Call update_on_pairs(const std::string& loss, std::vector<std::string> reads) {
  Call call{"update_actor", CallKind::kTrainStep, RoleId{"actor"}, loss, std::move(reads), {},
            "policy"};
  call.compares_samples = true;
  return call;
}

}  // namespace

Call fetch_pairs_call() {
  return {"fetch",
          CallKind::kFetch,
          {},
          "pairs",
          {},
          {{"prompt_ids", FieldType::kTokens, FieldShape::kPerSample},
           {"response_ids", FieldType::kTokens, FieldShape::kPerToken}}};
}

Graph dpo_graph(const AlgorithmOptions&) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{"dpo", {{actor, false, true}, {reference, false, false}}, {}};
  graph.calls = {fetch_pairs_call(), ref_logprob_call(),
                 update_on_pairs("preference", {"prompt_ids", "response_ids", "ref_logprobs"})};
  return graph;
}

Graph orpo_graph(const AlgorithmOptions&) {
  Graph graph{"orpo", {{RoleId{"actor"}, false, true}}, {}};
  graph.calls = {fetch_pairs_call(), update_on_pairs("odds_ratio", {"prompt_ids", "response_ids"})};
  return graph;
}

Graph online_dpo_graph(const AlgorithmOptions&) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{"online_dpo", {{actor, false, true}, {reference, false, false}}, {}};
  graph.calls = {fetch_prompts_call(), generate_call(), reward_call(), ref_logprob_call()};
  graph.calls.push_back({"preferences",
                         CallKind::kCompute,
                         {},
                         "best_and_worst",
                         {"rewards"},
                         {{"preferred", FieldType::kReal, FieldShape::kPerSample}}});
  graph.calls.push_back(
      update_on_pairs("preference", {"prompt_ids", "response_ids", "ref_logprobs", "preferred"}));
  return graph;
}

}  // namespace braid::inline dataflow
