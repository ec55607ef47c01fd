// The families that model_families() lists, each defined in the file of its name.
#pragma once

#include "models/family.h"

namespace braid::inline models {

ModelFamily llama_family();
ModelFamily qwen2_family();
ModelFamily qwen3_family();
ModelFamily mistral_family();
ModelFamily gemma_family();
ModelFamily gemma2_family();
ModelFamily gemma3_family();
ModelFamily phi3_family();
ModelFamily gpt2_family();

// How gpt2 and those that descend from it call dimensions.
inline constexpr SizeKeys kGpt2Keys = {.layers = "n_layer",
                                       .hidden = "n_embd",
                                       .heads = "n_head",
                                       .intermediate = "n_inner",
                                       .positions = "n_positions"};

// What all versions of gemma have: (1 + w) norms, scaled embeddings, biases by `attention_bias`.
void read_gemma_base(ConfigReader& config, double rope_theta, ModelSpec& spec);
// What versions 2 and 3 have: names of four norms a layer, the width that scores are divided by,
// soft caps (0 where the key is null, as given where it is absent).
TensorNames gemma_names_of_four_norms();
struct SoftCaps {
  double attention = 0, logits = 0;
};
void read_gemma_scores(ConfigReader& config, const SoftCaps& otherwise, ModelSpec& spec);

}  // namespace braid::inline models
