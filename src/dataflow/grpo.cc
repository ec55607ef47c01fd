// GRPO: groups of samples of one prompt are each other's baseline (Shao et al., 2024, §4.1). DAPO,
// GSPO and Dr. GRPO are this graph with other options.
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {

Graph grpo_graph(const AlgorithmOptions& options) {
  return policy_graph(options, "grpo_advantages");
}

}  // namespace braid::inline dataflow
