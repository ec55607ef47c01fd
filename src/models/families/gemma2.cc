#include "models/families/families.h"

namespace braid::inline models {

TensorNames gemma_names_of_four_norms() {
  TensorNames names;
  names.attention_post_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.mlp_post_norm = "post_feedforward_layernorm";
  return names;
}

void read_gemma_scores(ConfigReader& config, const SoftCaps& otherwise, ModelSpec& spec) {
  spec.activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  spec.score_width = static_cast<double>(config.size_or("query_pre_attn_scalar", 256));
  const auto cap = [&](const char* key, double absent) {
    if (!config.object().contains(key)) return absent;
    const double value = config.number_or(key, 0);
    if (config.has(key) && !(value > 0))
      config.fail(cat("key '", key, "' must be positive or null"));
    return value;
  };
  spec.attention_soft_cap = cap("attn_logit_softcapping", otherwise.attention);
  spec.logit_soft_cap = cap("final_logit_softcapping", otherwise.logits);
}

namespace {

void read_gemma2(ConfigReader& config, ModelSpec& spec) {
  read_gemma_base(config, 10000, spec);
  read_gemma_scores(config, {.attention = 50, .logits = 30}, spec);
}

}  // namespace

ModelFamily gemma2_family() {
  return {.name = "gemma2",
          .lm_architecture = "Gemma2ForCausalLM",
          .score_architecture = "Gemma2ForSequenceClassification",
          .tied_embeddings = true,
          .head_dim = 256,
          .windows = {.layers = WindowRule::Layers::kAllButEach, .each = 2, .width = 4096},
          .read = read_gemma2,
          .names = gemma_names_of_four_norms()};
}

}  // namespace braid::inline models
