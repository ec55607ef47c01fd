#include "models/families/families.h"

namespace braid::inline models {
namespace {

void read_mistral(ConfigReader& config, ModelSpec& spec) { read_decoder_config(config, spec); }

}  // namespace

ModelFamily mistral_family() {
  return {.name = "mistral",
          .lm_architecture = "MistralForCausalLM",
          .score_architecture = "MistralForSequenceClassification",
          .windows = {.width = 4096},  // transformers' own
          .read = read_mistral};
}

}  // namespace braid::inline models
