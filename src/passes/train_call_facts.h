// What training, metrics and their watch know alike about a graph's train calls. Pure functions.
#pragma once

#include <string>

#include "config/options.h"
#include "dataflow/graph.h"

namespace braid::inline passes {

// Steps at the start in which a role is not trained: all but the critic wait under
// critic.warmup_steps.
int64_t waiting_steps(const Config& config, const Graph& graph, const RoleId& role);

// What the names of a train call's metrics begin with: "policy/".
std::string metric_prefix(const Call& call);

}  // namespace braid::inline passes
