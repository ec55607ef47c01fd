// CISPO: GRPO's advantages; the clipped ratio is a constant weight of the log-prob (MiniMax, 2025,
// arXiv 2506.13585, §3.1).
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {

Graph cispo_graph(const AlgorithmOptions& options) {
  return policy_graph(options, "grpo_advantages", "cispo");
}

}  // namespace braid::inline dataflow
