// Families whose models can be planned and not run: what their dimensions have beside llama's.
#include "models/families/families.h"

namespace braid::inline models {

const std::vector<ModelFamily>& priced_families() {
  static const std::vector<ModelFamily> families = {
      {.name = "deepseek"},
      {.name = "deepseek_v2"},
      {.name = "deepseek_v3"},
      {.name = "gpt_bigcode", .keys = kGpt2Keys, .gated_mlp = false},
      {.name = "gpt_neox", .gated_mlp = false},
      {.name = "gpt_oss", .windows = {.layers = WindowRule::Layers::kAllButEach, .each = 2}},
      {.name = "gptj", .keys = kGpt2Keys, .gated_mlp = false},
      {.name = "mixtral"},
      {.name = "mpt",
       .keys = {.layers = "n_layers",
                .hidden = "d_model",
                .heads = "n_heads",
                .positions = "max_seq_len"},
       .tied_embeddings = true,
       .gated_mlp = false,
       .learned_positions = true},
      {.name = "nemotron", .gated_mlp = false},
      {.name = "opt",
       .keys = {.intermediate = "ffn_dim"},
       .tied_embeddings = true,
       .gated_mlp = false,
       .learned_positions = true,
       .rows_before = 2},
      {.name = "phi", .gated_mlp = false},
      {.name = "qwen", .stated_mlps = 2},
      {.name = "qwen2_moe"},
      {.name = "qwen3_moe"},
  };
  return families;
}

}  // namespace braid::inline models
