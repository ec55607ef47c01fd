#include "models/families/families.h"

namespace braid::inline models {
namespace {

void read_qwen3(ConfigReader& config, ModelSpec& spec) {
  read_decoder_config(config, spec);
  const bool bias = config.flag_or("attention_bias", false);
  spec.qkv_bias = bias;
  spec.output_bias = bias;
  spec.qk_norm = true;
}

}  // namespace

ModelFamily qwen3_family() {
  TensorNames names;
  names.query_norm = "self_attn.q_norm";
  names.key_norm = "self_attn.k_norm";
  return {.name = "qwen3",
          .lm_architecture = "Qwen3ForCausalLM",
          .score_architecture = "Qwen3ForSequenceClassification",
          .head_dim = 128,
          .windows = {.layers = WindowRule::Layers::kUpper},
          .read = read_qwen3,
          .names = names};
}

}  // namespace braid::inline models
