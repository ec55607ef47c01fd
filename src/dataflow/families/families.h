// The families that model_families() lists, each defined in the file of its name.
#pragma once

#include "dataflow/model_family.h"

namespace braid::inline dataflow {

ModelFamily llama_family();
ModelFamily qwen2_family();
ModelFamily qwen3_family();
ModelFamily mistral_family();
ModelFamily gemma_family();
ModelFamily gpt2_family();

}  // namespace braid::inline dataflow
