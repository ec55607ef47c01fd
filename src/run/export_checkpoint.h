// From a checkpoint to Hugging Face folders. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace braid::inline run {

// Writes what each role of the checkpoint at `path` has learnt as a folder OUT/ROLE, as the run
// itself exports at its end. The options are those of the checkpoint, changed by `overrides`
// ("lora.export_as=both"). A checkpoint within a step gives the weights of that moment, with a
// warning. Errors: a damaged checkpoint, an option that the checkpoint does not
// have, a base model that is gone or (under LoRA) not the one that the adapters were trained on.
Status export_checkpoint(const std::string& path, const std::string& out,
                         const std::vector<std::string>& overrides);

}  // namespace braid::inline run
