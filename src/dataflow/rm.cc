// A reward model from preference pairs (Bradley-Terry; Ouyang et al., 2022, §3.5, eq. 1).
#include "dataflow/graph.h"

namespace braid::inline dataflow {

Graph rm_graph(const AlgorithmOptions&) {
  const RoleId reward{"reward"};
  Graph graph{"rm", {{reward, true, true}}, {}};
  Call update{"update_reward", CallKind::kTrainStep,           reward,
              "pairwise",      {"prompt_ids", "response_ids"}, {}};
  update.compares_samples = true;
  graph.calls = {fetch_pairs_call(), update};
  return graph;
}

}  // namespace braid::inline dataflow
