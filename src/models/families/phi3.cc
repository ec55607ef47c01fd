#include "models/families/families.h"

namespace braid::inline models {
namespace {

void read_phi3(ConfigReader& config, ModelSpec& spec) { read_decoder_config(config, spec); }

}  // namespace

ModelFamily phi3_family() {
  TensorNames names;
  names.qkv = {"self_attn.qkv_proj"};
  names.up = {"mlp.gate_up_proj"};
  return {.name = "phi3",
          .lm_architecture = "Phi3ForCausalLM",
          .score_architecture = "Phi3ForSequenceClassification",
          .read = read_phi3,
          .names = names};
}

}  // namespace braid::inline models
