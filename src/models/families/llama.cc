#include "models/families/families.h"

namespace braid::inline models {
namespace {

void read_llama(ConfigReader& config, ModelSpec& spec) {
  read_decoder_config(config, spec);
  const bool bias = config.flag_or("attention_bias", false);
  spec.qkv_bias = bias;
  spec.output_bias = bias;
  spec.mlp_bias = config.flag_or("mlp_bias", false);
}

}  // namespace

ModelFamily llama_family() {
  return {.name = "llama",
          .lm_architecture = "LlamaForCausalLM",
          .score_architecture = "LlamaForSequenceClassification",
          .windows = {.layers = WindowRule::Layers::kNone},
          .read = read_llama};
}

}  // namespace braid::inline models
