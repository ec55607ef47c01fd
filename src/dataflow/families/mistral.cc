#include "dataflow/families/families.h"

namespace braid::inline dataflow {
namespace {

void read_mistral(ConfigReader& config, ModelSpec& spec) {
  read_decoder_config(config, {}, spec);
  // transformers' default is 4096 when the key is absent; null means full attention.
  const bool absent = !config.object().contains("sliding_window");
  spec.sliding_window = absent ? 4096 : config.size_or("sliding_window", 0);
}

}  // namespace

ModelFamily mistral_family() {
  return {.name = "mistral",
          .lm_architecture = "MistralForCausalLM",
          .score_architecture = "MistralForSequenceClassification",
          .read = read_mistral,
          .names = {}};
}

}  // namespace braid::inline dataflow
