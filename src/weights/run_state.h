// The whole state of a run between two steps, for checkpoints: position, and weights and optimizer
// of each trained role. Not thread-safe.
#pragma once

#include "algo/run_position.h"
#include "checkpoint/checkpoint.h"
#include "config/options.h"
#include "weights/load_models.h"

namespace braid::inline weights {

inline constexpr const char* kWeightsGroup = ".weights";  // ends the names of such groups

// What a checkpoint keeps of a role that a run changes.
struct RoleTensors {
  // By parameter; by parameter and state of the optimizer, or of a role that follows another
  // without one its average.
  NamedTensors weights, moments;
  int64_t updates = 0, skipped = 0;
};
// As it is on this rank; the tensors alias the role's. Where ranks share its state or weights, all
// of them call it, and those that do not want the tensors get none of them.
Result<RoleTensors> role_tensors(const ModelInstance& role, bool wanted = true);

// Bytes of the tensors that a checkpoint keeps of a role that a run changes, in whole, whichever
// ranks have them. REQUIRES: as as_moved() gives it. Errors: its architecture cannot be read.
Result<int64_t> whole_bytes(const RoleSpec& role, const Config& config);

// Everything that continuing needs, of trained roles in whole. `identity` becomes part of the
// numbers. kStopped: the algorithm's state is not finite.
Result<CheckpointState> run_state(const Json& identity, const RunPosition& position,
                                  const std::map<std::string, RoleTensors>& roles);

// Takes over what a role's model has learnt, its part where it has one; the error names what does
// not fit.
Status load_role_weights(const std::string& name, const CheckpointState& state, Model& model);

// A role's model in whole with what it has learnt, from the tensors of all its parts.
Result<ModelInstance> whole_with(const RoleSpec& spec, const Config& config,
                                 const RoleTensors& learnt);

// Takes such a state over, bit for bit, each role its part; frozen roles that share changed weights
// get a copy first. After an error position and roles must not be used.
Status load_run_state(const CheckpointState& state, const Config& config, RunPosition& position,
                      Roles& roles);

}  // namespace braid::inline weights
