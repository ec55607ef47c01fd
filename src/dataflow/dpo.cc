// DPO: preference pairs and a frozen reference, no generation (Rafailov et al., 2023, arXiv
// 2305.18290, eq. 7).
#include "dataflow/graph.h"

namespace braid {

Graph dpo_graph(const AlgorithmOptions&) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{"dpo", {{actor, false, true}, {reference, false, false}}, {}};
  graph.calls.push_back({"fetch",
                         CallKind::kFetch,
                         {},
                         "pairs",
                         {},
                         {{"prompt_ids", FieldType::kTokens, FieldShape::kPerSample},
                          {"response_ids", FieldType::kTokens, FieldShape::kPerToken}}});
  graph.calls.push_back(ref_logprob_call());
  graph.calls.push_back({"update_actor",
                         CallKind::kTrainStep,
                         actor,
                         "dpo",
                         {"prompt_ids", "response_ids", "ref_logprobs"},
                         {}});
  return graph;
}

}  // namespace braid
