#include "models/families/families.h"

namespace braid::inline models {
namespace {

void read_gemma3(ConfigReader& config, ModelSpec& spec) {
  read_gemma_base(config, 1000000, spec);
  read_gemma_scores(config, {}, spec);
  spec.qk_norm = true;
  if (spec.window_rope) return;
  // Before rotary settings by kind of layer those of windowed ones had a key of their own.
  RopeSpec windowed;
  windowed.theta = config.number_or("rope_local_base_freq", 10000);
  windowed.original_max_positions = spec.max_positions;
  if (!(windowed.theta > 0)) config.fail("'rope_local_base_freq' must be positive");
  spec.window_rope = windowed;
}

}  // namespace

ModelFamily gemma3_family() {
  TensorNames names = gemma_names_of_four_norms();
  names.query_norm = "self_attn.q_norm";
  names.key_norm = "self_attn.k_norm";
  return {.name = "gemma3",
          .model_type = "gemma3_text",
          .lm_architecture = "Gemma3ForCausalLM",
          .score_architecture = "Gemma3TextForSequenceClassification",
          .tied_embeddings = true,
          .head_dim = 256,
          .windows = {.layers = WindowRule::Layers::kAllButEach,
                      .each = 6,
                      .each_key = "sliding_window_pattern",
                      .width = 4096},
          .read = read_gemma3,
          .names = names};
}

}  // namespace braid::inline models
