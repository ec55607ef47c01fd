// RLOO: the baseline of a sample is the mean reward of the other samples of its prompt (Ahmadian et
// al., 2024, arXiv 2402.14740, §2.2).
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {

Graph rloo_graph(const AlgorithmOptions& options) {
  return policy_graph(options, "rloo_advantages");
}

}  // namespace braid::inline dataflow
