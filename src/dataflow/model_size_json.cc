// ModelSize from and to text: our own JSON form and the config.json of Hugging Face models.
#include <algorithm>
#include <initializer_list>

#include "dataflow/model_size.h"

namespace braid::inline dataflow {
namespace {

Json mla_json(const LatentAttention& mla) {
  return {{"q_lora_rank", mla.q_lora_rank},
          {"kv_lora_rank", mla.kv_lora_rank},
          {"qk_nope_head_dim", mla.qk_nope_head_dim},
          {"qk_rope_head_dim", mla.qk_rope_head_dim},
          {"v_head_dim", mla.v_head_dim}};
}

constexpr int64_t kMaxDimension = int64_t{1} << 28;

// The first of several spellings of one dimension; `fallback` < 0 makes it required. Only a
// dimension that may be absent may be 0.
Result<int64_t> dimension(const Json& json, std::initializer_list<const char*> keys,
                          int64_t fallback = -1) {
  const int64_t least = fallback == 0 ? 0 : 1;
  for (const char* key : keys) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_number_integer() || *found < least || *found > kMaxDimension)
      return invalid_input(cat("'", key, "' must be a whole number from ", least, " to ",
                               kMaxDimension, ", is ", found->dump()));
    return found->get<int64_t>();
  }
  if (fallback >= 0) return fallback;
  return invalid_input(cat("missing key '", *keys.begin(), "'"));
}

Result<LatentAttention> mla_from_json(const Json& json) {
  LatentAttention mla;
  BRAID_ASSIGN(mla.q_lora_rank, dimension(json, {"q_lora_rank"}, 0));
  BRAID_ASSIGN(mla.kv_lora_rank, dimension(json, {"kv_lora_rank"}));
  BRAID_ASSIGN(mla.qk_nope_head_dim, dimension(json, {"qk_nope_head_dim"}));
  BRAID_ASSIGN(mla.qk_rope_head_dim, dimension(json, {"qk_rope_head_dim"}));
  BRAID_ASSIGN(mla.v_head_dim, dimension(json, {"v_head_dim"}));
  return mla;
}

Status read_widths(const Json& json, ModelSize* model) {
  BRAID_ASSIGN(model->layers,
               dimension(json, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}));
  BRAID_ASSIGN(model->hidden, dimension(json, {"hidden_size", "n_embd", "d_model"}));
  BRAID_ASSIGN(model->heads, dimension(json, {"num_attention_heads", "n_head", "n_heads"}));
  BRAID_ASSIGN(model->vocab, dimension(json, {"vocab_size"}));
  BRAID_ASSIGN(model->kv_heads, dimension(json, {"num_key_value_heads"}, model->heads));
  if (model->heads % model->kv_heads != 0)
    return invalid_input(cat("'num_attention_heads' (", model->heads,
                             ") must be a multiple of 'num_key_value_heads' (", model->kv_heads,
                             ")"));
  const bool own_head_dim = json.contains("head_dim") || json.contains("kv_lora_rank");
  if (!own_head_dim && model->hidden % model->heads != 0)
    return invalid_input(cat("'hidden_size' (", model->hidden,
                             ") must be a multiple of 'num_attention_heads' (", model->heads,
                             ") where 'head_dim' is not given"));
  BRAID_ASSIGN(model->head_dim, dimension(json, {"head_dim"}, model->hidden / model->heads));
  BRAID_ASSIGN(model->intermediate,
               dimension(json, {"intermediate_size", "ffn_dim", "n_inner"}, 4 * model->hidden));
  return ok_status();
}

Status read_experts(const Json& json, ModelSize* model) {
  BRAID_ASSIGN(model->experts,
               dimension(json, {"num_experts", "num_local_experts", "n_routed_experts"}, 0));
  if (model->experts == 0) return ok_status();
  BRAID_ASSIGN(model->top_k, dimension(json, {"num_experts_per_tok", "experts_per_token"}));
  BRAID_ASSIGN(model->expert_intermediate,
               dimension(json, {"moe_intermediate_size"}, model->intermediate));
  BRAID_ASSIGN(model->shared_experts, dimension(json, {"n_shared_experts"}, 0));
  // Qwen's MoE models have one shared expert as wide as several routed ones.
  BRAID_ASSIGN(const int64_t shared_width, dimension(json, {"shared_expert_intermediate_size"}, 0));
  if (shared_width > 0) model->shared_experts = shared_width / model->expert_intermediate;
  BRAID_ASSIGN(model->first_dense_layers, dimension(json, {"first_k_dense_replace"}, 0));
  return ok_status();
}

Status read_attention(const Json& json, const std::string& type, ModelSize* model) {
  if (json.contains("kv_lora_rank") && !json.at("kv_lora_rank").is_null()) {
    BRAID_ASSIGN(model->mla, mla_from_json(json));
    model->head_dim = model->mla->qk_nope_head_dim + model->mla->qk_rope_head_dim;
  }
  BRAID_ASSIGN(const bool use_window, json_field_or<bool>(json, "use_sliding_window", true));
  if (!use_window) return ok_status();
  BRAID_ASSIGN(model->sliding_window, dimension(json, {"sliding_window"}, 0));
  const bool alternating = type == "gpt_oss" || type == "gemma2";
  model->sliding_window_every = alternating ? 2 : 1;
  return ok_status();
}

bool is_known(const std::string& type) {
  static const char* const kTypes[] = {
      "llama",   "mistral",  "mixtral",   "qwen",        "qwen2",       "qwen2_moe",
      "qwen3",   "gemma",    "qwen3_moe", "gemma2",      "phi",         "phi3",
      "opt",     "gpt2",     "gptj",      "gpt_neox",    "gpt_bigcode", "mpt",
      "gpt_oss", "nemotron", "deepseek",  "deepseek_v2", "deepseek_v3"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

// "architecture 'FooForCausalLM' (model_type 'foo') of FILE is not known".
std::string unknown_architecture(const Json& json, const std::string& type,
                                 const std::string& where) {
  if (is_known(type)) return "";
  const auto names = json.find("architectures");
  const bool named =
      names != json.end() && names->is_array() && !names->empty() && names->front().is_string();
  if (type.empty() && !named) return cat(where, " states no model_type");
  if (!named) return cat("model_type '", type, "' of ", where, " is not known");
  return cat("architecture '", names->front().get<std::string>(), "' (model_type '", type, "') of ",
             where, " is not known");
}

bool has_plain_mlp(const std::string& type) {
  static const char* const kPlain[] = {"opt", "gpt2", "gptj",     "gpt_neox",
                                       "mpt", "phi",  "nemotron", "gpt_bigcode"};
  return std::find(std::begin(kPlain), std::end(kPlain), type) != std::end(kPlain);
}

bool ties_by_default(const std::string& type) {
  return type == "opt" || type == "gpt2" || type == "mpt" || type == "gemma" || type == "gemma2";
}

}  // namespace

Result<ModelSize> parse_hf_config(std::string_view text, const std::string& where) {
  auto parsed = parse_json(text, where);
  if (!parsed.ok()) return parsed.status();
  const Json& json = *parsed;
  if (!json.is_object())
    return invalid_input(cat(where, ": a model configuration must be a JSON object"));
  ModelSize model;
  BRAID_ASSIGN(const std::string type,
               json_field_or<std::string>(json, "model_type", "").at(where));
  BRAID_ASSIGN(model.name, json_field_or<std::string>(json, "_name_or_path", type).at(where));
  BRAID_TRY(read_widths(json, &model).at(where));
  BRAID_TRY(read_experts(json, &model).at(where));
  BRAID_TRY(read_attention(json, type, &model).at(where));
  model.gated_mlp = !has_plain_mlp(type);
  if (type == "qwen") model.intermediate /= 2;  // Qwen 1 states the width of two matrices together
  model.unknown_architecture = unknown_architecture(json, type, where);
  BRAID_ASSIGN(model.tied_embeddings,
               json_field_or<bool>(json, "tie_word_embeddings", ties_by_default(type)).at(where));
  BRAID_ASSIGN(model.embed_dim, dimension(json, {"word_embed_proj_dim"}, 0).at(where));
  if (type == "opt" || type == "gpt2" || type == "mpt") {
    BRAID_ASSIGN(
        const int64_t rows,
        dimension(json, {"max_position_embeddings", "n_positions", "max_seq_len"}).at(where));
    model.learned_positions = type == "opt" ? rows + 2 : rows;  // OPT offsets positions by two
  }
  BRAID_TRY(validate_model_size(model).at(where));
  return model;
}

std::string assumption_note(const ModelSize& model) {
  if (model.unknown_architecture.empty()) return "";
  return cat(model.unknown_architecture,
             "; priced as Llama's: rotary positions, three matrices per MLP, no biases");
}

Json model_size_json(const ModelSize& model) {
  Json json = {{"name", model.name},
               {"layers", model.layers},
               {"hidden", model.hidden},
               {"intermediate", model.intermediate},
               {"heads", model.heads},
               {"kv_heads", model.kv_heads},
               {"head_dim", model.head_dim},
               {"vocab", model.vocab},
               {"tied_embeddings", model.tied_embeddings},
               {"gated_mlp", model.gated_mlp},
               {"learned_positions", model.learned_positions},
               {"embed_dim", model.embed_dim},
               {"experts", model.experts},
               {"top_k", model.top_k},
               {"expert_intermediate", model.expert_intermediate},
               {"shared_experts", model.shared_experts},
               {"first_dense_layers", model.first_dense_layers},
               {"mtp_layers", model.mtp_layers},
               {"sliding_window", model.sliding_window},
               {"sliding_window_every", model.sliding_window_every}};
  if (model.mla) json["mla"] = mla_json(*model.mla);
  return json;
}

Result<ModelSize> model_size_from_json(const Json& json) {
  if (!json.is_object()) return invalid_input("a model size must be a JSON object");
  ModelSize model;
  BRAID_ASSIGN(model.name, json_field_or<std::string>(json, "name", ""));
  const std::pair<const char*, int64_t*> fields[] = {
      {"layers", &model.layers},
      {"hidden", &model.hidden},
      {"intermediate", &model.intermediate},
      {"heads", &model.heads},
      {"kv_heads", &model.kv_heads},
      {"head_dim", &model.head_dim},
      {"vocab", &model.vocab},
      {"learned_positions", &model.learned_positions},
      {"embed_dim", &model.embed_dim},
      {"experts", &model.experts},
      {"top_k", &model.top_k},
      {"expert_intermediate", &model.expert_intermediate},
      {"shared_experts", &model.shared_experts},
      {"first_dense_layers", &model.first_dense_layers},
      {"mtp_layers", &model.mtp_layers},
      {"sliding_window", &model.sliding_window},
      {"sliding_window_every", &model.sliding_window_every}};
  for (const auto& [key, value] : fields) {
    BRAID_ASSIGN(*value, json_field_or<int64_t>(json, key, *value));
  }
  BRAID_ASSIGN(model.tied_embeddings, json_field_or<bool>(json, "tied_embeddings", false));
  BRAID_ASSIGN(model.gated_mlp, json_field_or<bool>(json, "gated_mlp", true));
  if (json.contains("mla") && !json.at("mla").is_null()) {
    BRAID_ASSIGN(model.mla, mla_from_json(json.at("mla")));
  }
  BRAID_TRY(validate_model_size(model));
  return model;
}

}  // namespace braid::inline dataflow
