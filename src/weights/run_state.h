// The state of a run between two steps, for checkpoints: position, and weights and optimizer of
// each role that the run changes; on a rank the slices of these that it has. Not thread-safe.
#pragma once

#include "algo/run_position.h"
#include "checkpoint/checkpoint_reader.h"
#include "config/options.h"
#include "weights/held_slices.h"
#include "weights/load_models.h"

namespace braid::inline weights {

inline constexpr const char* kWeightsGroup = ".weights";      // ends the names of such groups
inline constexpr const char* kOptimizerGroup = ".optimizer";  // likewise

// Bytes of the tensors that a checkpoint keeps of a role that a run changes, in whole, whichever
// ranks have them. REQUIRES: as as_moved() gives it. Errors: its architecture cannot be read.
Result<int64_t> whole_bytes(const RoleSpec& role, const Config& config);
// Of its weights alone.
Result<int64_t> whole_weight_bytes(const RoleSpec& role, const Config& config);

// The numbers of a checkpoint that are the same on all ranks; `identity` becomes part of them.
// kStopped: the algorithm's state is not finite.
Result<Json> run_numbers(const Json& identity, const RunPosition& position);
// Adds a role's slices to what this rank writes, with its counters. A role without any is left out,
// unless this rank `leads` those that have it.
void add_role(const std::string& name, const ModelInstance& role, RoleSlices slices, bool leads,
              CheckpointState* share);

// Takes over what a role's model has learnt, the part that is here; the error names what does not
// fit, or the damaged file.
Status load_role_weights(const std::string& name, CheckpointReader& saved,
                         const ModelInstance& role);

// Takes a state over, of each role the slices that are here; frozen roles that share changed
// weights get a copy first. No rank waits for another. After an error position and roles must not
// be used. Then, ranks that share state together: take_over_state(), after which all is bit for bit
// as it was saved.
Status load_run_state(CheckpointReader& saved, const Config& config, RunPosition& position,
                      Roles& roles);
Status take_over_state(const Json& numbers, Roles& roles);

}  // namespace braid::inline weights
