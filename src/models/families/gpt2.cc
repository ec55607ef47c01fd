#include "models/families/families.h"

namespace braid::inline models {
namespace {

void read_gpt2(ConfigReader& config, ModelSpec& spec) {
  spec.max_positions = spec.learned_positions;
  spec.norm = NormKind::kLayer;
  spec.norm_eps = config.number_or("layer_norm_epsilon", 1e-5);
  spec.activation = read_activation(config, "activation_function", "gelu_new");
  spec.qkv_bias = true;
  spec.output_bias = true;
  spec.mlp_bias = true;
  spec.rope.kind = RopeSpec::Kind::kNone;
  config.require_flag("scale_attn_weights", true);
  config.require_flag("scale_attn_by_inverse_layer_idx", false);
  config.require_flag("add_cross_attention", false);
}

}  // namespace

ModelFamily gpt2_family() {
  TensorNames names;
  names.prefix = "transformer.";
  names.embedding = "wte.weight";
  names.positions = "wpe.weight";
  names.layer = "h.";
  names.attention_norm = "ln_1";
  names.qkv = {"attn.c_attn"};
  names.output = "attn.c_proj";
  names.mlp_norm = "ln_2";
  names.up = {"mlp.c_fc"};
  names.down = "mlp.c_proj";
  names.final_norm = "ln_f";
  names.transposed = true;
  names.ignored = {".attn.bias", ".attn.masked_bias"};
  return {.name = "gpt2",
          .lm_architecture = "GPT2LMHeadModel",
          .score_architecture = "GPT2ForSequenceClassification",
          .keys = kGpt2Keys,
          .tied_embeddings = true,
          .gated_mlp = false,
          .learned_positions = true,
          .windows = {.layers = WindowRule::Layers::kNone},
          .read = read_gpt2,
          .names = names};
}

}  // namespace braid::inline models
