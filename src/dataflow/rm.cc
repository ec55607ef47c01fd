// A reward model from preference pairs (Bradley-Terry; Ouyang et al., 2022, §3.5, eq. 1).
#include "dataflow/graph.h"

namespace braid {

Graph rm_graph(const AlgorithmOptions&) {
  const RoleId reward{"reward"};
  Graph graph{"rm", {{reward, true, true}}, {}};
  graph.calls.push_back({"fetch",
                         CallKind::kFetch,
                         {},
                         "pairs",
                         {},
                         {{"prompt_ids", FieldType::kTokens, FieldShape::kPerSample},
                          {"response_ids", FieldType::kTokens, FieldShape::kPerToken}}});
  graph.calls.push_back({"update_reward",
                         CallKind::kTrainStep,
                         reward,
                         "pairwise",
                         {"prompt_ids", "response_ids"},
                         {}});
  return graph;
}

}  // namespace braid
