#include "dataflow/families/families.h"

namespace braid {
namespace {

void read_qwen2(ConfigReader& config, ModelSpec& spec) {
  read_decoder_config(config, {}, spec);
  spec.qkv_bias = true;
  spec.sliding_window = read_layered_window(config, spec.layers);
}

}  // namespace

ModelFamily qwen2_family() {
  return {"qwen2", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification", read_qwen2, {}};
}

}  // namespace braid
