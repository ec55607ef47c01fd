// Pieces of the graphs of algorithms that have a policy and no critic, and the graphs that differ
// in them alone. Values.
#pragma once

#include <string>

#include "dataflow/graph.h"

namespace braid::inline dataflow {

// The train step of the policy on a loss of algo/: it reads what the KL term and the weights of
// truncated importance sampling need where the options switch them on.
Call update_policy_call(const AlgorithmOptions& options, const std::string& loss);

// Prompts, responses, rewards, log-probs of the old policy and, where the KL counts, of a
// reference; then the advantages by a function of algo/ and the policy's update on a loss.
Graph policy_graph(const AlgorithmOptions& options, const std::string& advantages,
                   const std::string& loss = "policy");

// GRPO's graph with another loss (CISPO).
Graph cispo_graph(const AlgorithmOptions& options);
// Returns without a baseline, and with the mean of the group as baseline.
Graph reinforce_graph(const AlgorithmOptions& options);
Graph reinforce_baseline_graph(const AlgorithmOptions& options);

}  // namespace braid::inline dataflow
