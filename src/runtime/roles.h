// The roles of a graph as models in memory: loading them, keeping frozen ones apart from trained
// ones, exporting what was trained. Not thread-safe.
#pragma once

#include <string>

#include "config/options.h"
#include "dataflow/graph.h"
#include "runtime/load_models.h"

namespace braid {

// A model for each role of the graph, in its order, with an optimizer where it is trained. Reward
// models that the list of rewards brings are not among them. Errors name the role.
Result<Roles> load_roles(const Config& config, const Graph& graph);

// To be called before the weights of a trained role change: frozen roles that share them get a copy
// of their own.
Status keep_frozen_copies(Roles& roles, const std::string& changing, const Config& config);

// Writes each trained role as a Hugging Face folder below `folder`.
Status export_roles(const Roles& roles, const Config& config, const std::string& folder);

}  // namespace braid
