// REINFORCE (Williams, 1992), REINFORCE++ and REINFORCE++-baseline (Hu, 2025, arXiv 2501.03262):
// returns of the tokens' rewards, without a critic. The first two differ in options alone.
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {

Graph reinforce_graph(const AlgorithmOptions& options) {
  return policy_graph(options, "reinforce_advantages");
}

Graph reinforce_baseline_graph(const AlgorithmOptions& options) {
  return policy_graph(options, "reinforce_baseline_advantages");
}

}  // namespace braid::inline dataflow
