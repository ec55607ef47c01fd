#include "dataflow/families/families.h"

namespace braid::inline dataflow {
namespace {

void read_qwen2(ConfigReader& config, ModelSpec& spec) {
  read_decoder_config(config, {}, spec);
  spec.qkv_bias = true;
  spec.sliding_window = read_layered_window(config, spec.layers);
}

}  // namespace

ModelFamily qwen2_family() {
  return {.name = "qwen2",
          .lm_architecture = "Qwen2ForCausalLM",
          .score_architecture = "Qwen2ForSequenceClassification",
          .read = read_qwen2,
          .names = {}};
}

}  // namespace braid::inline dataflow
