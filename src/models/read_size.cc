// Dimensions out of a config.json, by what its family says of the keys.
#include <algorithm>

#include "models/family.h"

namespace braid::inline models {
namespace {

// Which layers are windowed by `layer_types`.
std::vector<bool> read_layer_types(ConfigReader& config, int64_t layers) {
  const Json& kinds = config.object().at("layer_types");
  if (!kinds.is_array() || static_cast<int64_t>(kinds.size()) != layers)
    config.refuse(cat("key 'layer_types' must be a list of ", layers, " kinds"));
  if (!kinds.is_array()) return {};
  std::vector<bool> out;
  for (const Json& kind : kinds) {
    if (kind != kFullLayer && kind != kWindowedLayer)
      config.refuse(cat("key 'layer_types': ", kind.dump(), " is not supported; use \"", kFullLayer,
                        "\" or \"", kWindowedLayer, "\""));
    out.push_back(kind == kWindowedLayer);
  }
  return out;
}

// The same where that key is absent.
std::vector<bool> ruled_layers(ConfigReader& config, const WindowRule& rule, int64_t layers) {
  using Layers = WindowRule::Layers;
  const bool upper = rule.layers == Layers::kUpper;
  std::vector<bool> out(static_cast<size_t>(std::min(layers, kMaxLayers)), false);
  if (!config.flag_or("use_sliding_window", !upper)) return out;
  const int64_t first = upper ? config.count_or("max_window_layers", 28) : 0;
  const int64_t each =
      rule.each_key != nullptr ? config.size_or(rule.each_key, rule.each) : rule.each;
  for (int64_t layer = first; layer < static_cast<int64_t>(out.size()); ++layer)
    out[static_cast<size_t>(layer)] = rule.layers != Layers::kAllButEach || (layer + 1) % each != 0;
  return out;
}

void read_windows(ConfigReader& config, const WindowRule& rule, ModelSize* model) {
  if (rule.layers == WindowRule::Layers::kNone) return;
  const bool listed = config.has("layer_types");
  std::vector<bool> windowed =
      listed ? read_layer_types(config, model->layers) : ruled_layers(config, rule, model->layers);
  const auto count = std::count(windowed.begin(), windowed.end(), true);
  if (count == 0) return;
  const bool absent = !config.object().contains("sliding_window");
  model->sliding_window = absent ? rule.width : config.count_or("sliding_window", 0);
  if (model->sliding_window == 0) {
    if (listed || rule.layers == WindowRule::Layers::kAllButEach)
      config.refuse("some layers have a window, and 'sliding_window' says not how wide it is");
    return;
  }
  if (count < static_cast<int64_t>(windowed.size())) model->windowed = std::move(windowed);
}

void read_attention(ConfigReader& config, const ModelFamily& family, ModelSize* model) {
  const SizeKeys& keys = family.keys;
  model->heads = config.size({keys.heads, "num_attention_heads", "n_head", "n_heads"});
  model->kv_heads = config.size_or("num_key_value_heads", model->heads);
  if (model->heads % model->kv_heads != 0)
    config.fail(cat("'", keys.heads, "' (", model->heads,
                    ") must be a multiple of 'num_key_value_heads' (", model->kv_heads, ")"));
  const bool latent = config.has("kv_lora_rank");
  if (!latent && family.head_dim == 0 && !config.has("head_dim") &&
      model->hidden % model->heads != 0)
    config.fail(cat("'", keys.hidden, "' (", model->hidden, ") must be a multiple of '", keys.heads,
                    "' (", model->heads, ") where 'head_dim' is not given"));
  model->head_dim = config.size_or(
      "head_dim", family.head_dim > 0 ? family.head_dim : model->hidden / model->heads);
  if (!latent) return;
  LatentAttention mla;
  mla.q_lora_rank = config.count_or("q_lora_rank", 0);
  mla.kv_lora_rank = config.size("kv_lora_rank");
  mla.qk_nope_head_dim = config.size("qk_nope_head_dim");
  mla.qk_rope_head_dim = config.size("qk_rope_head_dim");
  mla.v_head_dim = config.size("v_head_dim");
  model->head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  model->mla = mla;
  config.refuse("key 'kv_lora_rank': latent attention can be planned, not run");
}

void read_mlp(ConfigReader& config, const ModelFamily& family, ModelSize* model) {
  const char* const key = family.keys.intermediate;
  model->gated_mlp = family.gated_mlp;
  model->intermediate =
      config.size_or({key, "intermediate_size", "ffn_dim", "n_inner"}, 4 * model->hidden) /
      family.stated_mlps;
  if (family.gated_mlp && !config.has(key)) config.refuse(cat("missing key '", key, "'"));
}

void read_experts(ConfigReader& config, ModelSize* model) {
  model->experts = config.count_or({"num_experts", "num_local_experts", "n_routed_experts"}, 0);
  if (model->experts == 0) return;
  model->top_k = config.size({"num_experts_per_tok", "experts_per_token"});
  model->expert_intermediate = config.size_or("moe_intermediate_size", model->intermediate);
  model->shared_experts = config.count_or("n_shared_experts", 0);
  // Qwen's MoE models have one shared expert as wide as several routed ones.
  const int64_t shared_width = config.count_or("shared_expert_intermediate_size", 0);
  if (shared_width > 0) model->shared_experts = shared_width / model->expert_intermediate;
  model->first_dense_layers = config.count_or("first_k_dense_replace", 0);
  config.refuse(cat("the model has ", model->experts,
                    " experts a layer; such models can be planned, not run"));
}

void read_embedding(ConfigReader& config, const ModelFamily& family, ModelSize* model) {
  model->vocab = config.size("vocab_size");
  model->tied_embeddings = config.flag_or("tie_word_embeddings", family.tied_embeddings);
  model->embed_dim = config.count_or("word_embed_proj_dim", 0);
  if (model->embed_dim > 0 && model->embed_dim != model->hidden)
    config.refuse("key 'word_embed_proj_dim': projected embeddings can be planned, not run");
  if (!family.learned_positions) return;
  const int64_t positions =
      config.size({family.keys.positions, "max_position_embeddings", "n_positions", "max_seq_len"});
  model->learned_positions = positions + family.rows_before;
}

// The first of `architectures`, "" where there is none.
std::string first_architecture(const Json& json) {
  const auto names = json.find("architectures");
  const bool named =
      names != json.end() && names->is_array() && !names->empty() && names->front().is_string();
  return named ? names->front().get<std::string>() : "";
}

// The family that a config.json names by its architecture or, where that is not one that is
// executed, by its type; null: neither is known.
const ModelFamily* find_family(const std::string& architecture, const std::string& type) {
  const ModelFamily* found = nullptr;
  for (const auto* families : {&model_families(), &priced_families()})
    for (const ModelFamily& family : *families) {
      if (!architecture.empty() &&
          (architecture == family.lm_architecture || architecture == family.score_architecture))
        return &family;
      if (type == family.model_type) found = &family;
    }
  return found;
}

// "architecture 'FooForCausalLM' (model_type 'foo') of FILE is not known".
std::string unknown_architecture(const std::string& architecture, const std::string& type,
                                 const std::string& where) {
  if (type.empty() && architecture.empty()) return cat(where, " states no model_type");
  if (architecture.empty()) return cat("model_type '", type, "' of ", where, " is not known");
  return cat("architecture '", architecture, "' (model_type '", type, "') of ", where,
             " is not known");
}

}  // namespace

ModelSize read_size(ConfigReader& config, const ModelFamily& family) {
  const SizeKeys& keys = family.keys;
  ModelSize model;
  model.name = config.text_or("_name_or_path", config.text_or("model_type", ""));
  model.layers =
      config.size({keys.layers, "num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  model.hidden = config.size({keys.hidden, "hidden_size", "n_embd", "d_model"});
  read_attention(config, family, &model);
  read_embedding(config, family, &model);
  read_mlp(config, family, &model);
  read_experts(config, &model);
  read_windows(config, family.windows, &model);
  model.layer_norms = norms_of_layer(family.names);
  if (!config.status().ok()) return model;
  if (const Status valid = validate_model_size(model); !valid.ok()) config.fail(valid.message());
  return model;
}

Result<ModelSize> parse_model_size(std::string_view config_json, const std::string& where) {
  BRAID_ASSIGN(const Json json, parse_json(config_json, where));
  if (!json.is_object())
    return invalid_input(cat(where, ": a model configuration must be a JSON object"));
  ConfigReader config(json);
  const std::string architecture = first_architecture(json),
                    type = config.text_or("model_type", "");
  static const ModelFamily likely_llama;
  const ModelFamily* const family = find_family(architecture, type);
  ModelSize model = read_size(config, family != nullptr ? *family : likely_llama);
  BRAID_TRY(config.status().at(where));
  if (family == nullptr)
    model.unknown_architecture = unknown_architecture(architecture, type, where);
  return model;
}

}  // namespace braid::inline models
