// Supervised fine-tuning: the data's responses are the targets.
#include "dataflow/graph.h"

namespace braid::inline dataflow {

Graph sft_graph(const AlgorithmOptions&) {
  const RoleId actor{"actor"};
  Graph graph{"sft", {{actor, false, true}}, {}};
  graph.calls.push_back({"fetch",
                         CallKind::kFetch,
                         {},
                         "samples",
                         {},
                         {{"prompt_ids", FieldType::kTokens, FieldShape::kPerSample},
                          {"response_ids", FieldType::kTokens, FieldShape::kPerToken},
                          {"loss_mask", FieldType::kReal, FieldShape::kPerToken}}});
  graph.calls.push_back({"update_actor",
                         CallKind::kTrainStep,
                         actor,
                         "sft",
                         {"prompt_ids", "response_ids", "loss_mask"},
                         {},
                         "policy"});
  return graph;
}

}  // namespace braid::inline dataflow
