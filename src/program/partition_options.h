// How the samples of a call are partitioned: decided once, for runtime, simulator and search. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/graph.h"
#include "program/partition.h"

namespace braid::inline program {

// What a step says of all its partitions; the names are those of PartitionOptions.
struct PartitionedStep {
  uint64_t seed = 0;
  int64_t step = 0, epochs = 1, minibatches = 1;
  bool share_prompts = false;
  std::string train_engine = {};  // plan.train_engine; "": Braid
};

// Of a call of the graph in such a step.
PartitionOptions partition_options(const Graph& graph, const Call& call,
                                   const PartitionedStep& step);

}  // namespace braid::inline program
