// From trained roles to Hugging Face folders. Not thread-safe.
#pragma once

#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "config/options.h"
#include "dataflow/graph.h"
#include "weights/load_models.h"

namespace braid::inline weights {

// Writes a trained role, which has all of its tensors, as a Hugging Face folder below `folder`.
Status export_role(const std::string& role, const ModelInstance& state, const Config& config,
                   const std::string& folder);

// The same of what a checkpoint holds of the role's weights: layer by layer, of which never more
// than one is in memory.
Status export_saved_role(const RoleSpec& spec, CheckpointReader& saved, const Config& config,
                         const std::string& folder);

}  // namespace braid::inline weights
