// A reward model from preference pairs (Bradley-Terry; Ouyang et al., 2022, §3.5, eq. 1), or from
// single responses with a score or a label.
#include "dataflow/graph.h"

namespace braid::inline dataflow {
namespace {

Call fetch_rated_call(const char* function, const char* rating) {
  return {"fetch",
          CallKind::kFetch,
          {},
          function,
          {},
          {{"prompt_ids", FieldType::kTokens, FieldShape::kPerSample},
           {"response_ids", FieldType::kTokens, FieldShape::kPerToken},
           {rating, FieldType::kReal, FieldShape::kPerSample}}};
}

}  // namespace

Graph rm_graph(const AlgorithmOptions& options) {
  const RoleId reward{"reward"};
  Graph graph{"rm", {{reward, true, true}}, {}};
  Call update{"update_reward",     CallKind::kTrainStep,           reward,
              options.reward_loss, {"prompt_ids", "response_ids"}, {}};
  update.compares_samples = options.reward_loss == "pairwise";
  if (update.compares_samples) {
    graph.calls = {fetch_pairs_call(), update};
    return graph;
  }
  const bool scored = options.reward_loss == "squared_error";
  const char* rating = scored ? "score" : "wanted";
  update.reads.emplace_back(rating);
  graph.calls = {fetch_rated_call(scored ? "scored" : "labelled", rating), update};
  return graph;
}

}  // namespace braid::inline dataflow
