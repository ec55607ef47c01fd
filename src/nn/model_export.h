// What save_model(), load_model() and the adapter files share. Not for callers outside nn.
#pragma once

#include <string>

#include "base/json.h"
#include "nn/decoder.h"

namespace braid::inline nn {

// The adapter_config.json that PEFT reads.
Json adapter_config(const Decoder& decoder, const std::string& base_folder);

// load_model() of a folder that holds adapters only.
Result<std::unique_ptr<Model>> load_adapted_model(const std::string& folder,
                                                  const LoadOptions& options);

// The name under which PEFT saves a trained score head (`modules_to_save`).
inline std::string adapter_score_name() { return cat("base_model.model.", kScoreName); }

}  // namespace braid::inline nn
