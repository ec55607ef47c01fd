#include "models/families/families.h"

namespace braid::inline models {
namespace {

void read_qwen2(ConfigReader& config, ModelSpec& spec) {
  read_decoder_config(config, spec);
  spec.qkv_bias = true;
}

}  // namespace

ModelFamily qwen2_family() {
  return {.name = "qwen2",
          .lm_architecture = "Qwen2ForCausalLM",
          .score_architecture = "Qwen2ForSequenceClassification",
          .windows = {.layers = WindowRule::Layers::kUpper},
          .read = read_qwen2};
}

}  // namespace braid::inline models
