// The roles of a graph as models in memory: loading them, keeping frozen ones apart from trained
// ones. Not thread-safe.
#pragma once

#include <map>
#include <string>

#include "config/options.h"
#include "dataflow/graph.h"
#include "program/tensor_map.h"
#include "weights/load_models.h"

namespace braid::inline weights {

// Whether somebody asks the rewards of the list: a call of the graph, unless a replayed rollout
// brings their values, or an evaluation.
bool needs_rewards(const Config& config, const Graph& graph);

// Of a trained role.
const OptimizerConfig& optimizer_config(const Config& config, const std::string& role);
// The tensors of a role that its training changes: all, or with adapters those.
TensorMap changed_tensors(const ModelSpec& architecture, const Config& config);

// The role, with one that it follows only where a call of the graph moves it.
RoleSpec as_moved(const Graph& graph, RoleSpec spec);

// A model for each role of the graph, in its order, with an optimizer where it is trained. A reward
// model is among them where the graph has a role for it and its scores are needed. `parts` says
// which part of a role is wanted, all where it says nothing. Errors name the role.
Result<Roles> load_roles(const Config& config, const Graph& graph,
                         const std::map<std::string, ModelPart>& parts = {});

// One more copy of a role's weights, which is not trained. The part of a frozen role is loaded,
// that of one which the run changes is uninitialized, but for what `lender` (null: nobody) holds
// alike: that is its memory.
Result<ModelInstance> load_role_copy(const RoleSpec& spec, const Config& config,
                                     const ModelPart& part, const Decoder* lender);

// To be called before the weights of a trained role change: frozen roles that share them get a copy
// of their own.
Status keep_frozen_copies(Roles& roles, const std::string& changing, const Config& config);

// Bytes of the copies that this will make on this rank before the first update of every role.
int64_t frozen_copy_bytes(const Roles& roles, const Config& config);

}  // namespace braid::inline weights
