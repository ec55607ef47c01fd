// The whole state of a run between two steps, for checkpoints: position, and weights and optimizer
// of each trained role. Not thread-safe.
#pragma once

#include "checkpoint/checkpoint.h"
#include "config/options.h"
#include "runtime/load_models.h"
#include "runtime/run_position.h"

namespace braid {

inline constexpr const char* kWeightsGroup = ".weights";  // ends the names of such groups

// Everything that continuing needs; the tensors alias the roles' own. `identity` becomes part of
// the numbers. kStopped: the algorithm's state is not finite.
Result<CheckpointState> run_state(const Json& identity, const RunPosition& position,
                                  const Roles& roles);

// Takes over what a role's model has learnt; the error names what does not fit.
Status load_role_weights(const std::string& name, const CheckpointState& state, Model& model);

// Takes such a state over, bit for bit; frozen roles that share changed weights get a copy first.
// After an error position and roles must not be used.
Status load_run_state(const CheckpointState& state, const Config& config, RunPosition& position,
                      Roles& roles);

}  // namespace braid
