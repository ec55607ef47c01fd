// The families that model_families() lists, each defined in the file of its name.
#pragma once

#include "models/family.h"

namespace braid::inline models {

ModelFamily llama_family();
ModelFamily qwen2_family();
ModelFamily qwen3_family();
ModelFamily mistral_family();
ModelFamily gemma_family();
ModelFamily gpt2_family();

}  // namespace braid::inline models
