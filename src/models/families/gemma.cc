#include "models/families/families.h"

namespace braid::inline models {

void read_gemma_base(ConfigReader& config, double rope_theta, ModelSpec& spec) {
  read_decoder_config(config, spec, rope_theta);
  spec.norm_unit_offset = true;
  spec.scale_embedding = true;
  const bool bias = config.flag_or("attention_bias", false);
  spec.qkv_bias = bias;
  spec.output_bias = bias;
  config.require_flag("use_bidirectional_attention", false);
}

namespace {

void read_gemma(ConfigReader& config, ModelSpec& spec) {
  read_gemma_base(config, 10000, spec);
  // The first releases say "gelu" and mean its tanh approximation; transformers corrects them too.
  spec.activation = Activation::kGeluTanh;
  const std::string act = config.text_or("hidden_act", "gelu_pytorch_tanh");
  if (act != "gelu" && act != "gelu_pytorch_tanh")
    config.fail(cat("key 'hidden_act' is '", act, "', which gemma does not use"));
}

}  // namespace

ModelFamily gemma_family() {
  return {.name = "gemma",
          .lm_architecture = "GemmaForCausalLM",
          .score_architecture = "GemmaForSequenceClassification",
          .tied_embeddings = true,
          .head_dim = 256,
          .windows = {.layers = WindowRule::Layers::kNone},
          .read = read_gemma};
}

}  // namespace braid::inline models
