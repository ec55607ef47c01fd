// What a configuration says that a run will not do, or will hardly be meant to do.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"
#include "dataflow/graph.h"

namespace braid {

// Keys that were written but are not read with this graph, and values that are seldom meant; each
// begins with its place. Nothing of it is an error.
std::vector<std::string> config_notes(const LoadedConfig& loaded, const Graph& graph,
                                      const BatchArithmetic& arithmetic);

}  // namespace braid
