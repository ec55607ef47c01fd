#include "models/size.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline models {
namespace {

int64_t mlp_matrices(const ModelSize& model) { return model.gated_mlp ? 3 : 2; }

int64_t embedding_width(const ModelSize& model) {
  return model.embed_dim > 0 ? model.embed_dim : model.hidden;
}

int64_t latent_attention_params(const ModelSize& model, const LatentAttention& mla) {
  const int64_t qk = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  const int64_t query = mla.q_lora_rank > 0
                            ? model.hidden * mla.q_lora_rank + mla.q_lora_rank * model.heads * qk
                            : model.hidden * model.heads * qk;
  const int64_t down = model.hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim);
  const int64_t up = mla.kv_lora_rank * model.heads * (mla.qk_nope_head_dim + mla.v_head_dim);
  return query + down + up + model.heads * mla.v_head_dim * model.hidden;
}

// Rows plus columns of every linear layer that one layer holds, times one: LoRA parameters at
// rank 1.
int64_t lora_rank1_params(const ModelSize& model) {
  const int64_t q = model.heads * model.head_dim, kv = model.kv_heads * model.head_dim;
  const int64_t attention = 2 * (model.hidden + q) + 2 * (model.hidden + kv);
  const int64_t dense = mlp_matrices(model) * (model.hidden + model.intermediate);
  const int64_t expert = mlp_matrices(model) * (model.hidden + model.expert_intermediate);
  const int64_t dense_layers = model.layers - moe_layers(model);
  return model.layers * attention + dense_layers * dense +
         moe_layers(model) * (model.experts + model.shared_experts) * expert;
}

// An extra prediction layer: a whole MoE layer and a projection of two hidden vectors (DeepSeek-V3,
// section 2.2).
int64_t mtp_params(const ModelSize& model, int64_t mlp) {
  return model.mtp_layers * (attention_params(model) + mlp + 2 * model.hidden * model.hidden);
}

// As total_params counts, in floating point: sizes may be so large that their products overflow.
double rough_params(const ModelSize& model) {
  const auto width = static_cast<double>(model.hidden);
  const double mlp = static_cast<double>(model.intermediate) +
                     static_cast<double>(model.experts + model.shared_experts) *
                         static_cast<double>(model.expert_intermediate);
  const double attention =
      static_cast<double>(model.heads + model.kv_heads) * static_cast<double>(model.head_dim);
  return width * (static_cast<double>(model.vocab) +
                  static_cast<double>(model.layers) * (3 * mlp + 2 * attention));
}

}  // namespace

Status validate_model_size(const ModelSize& model) {
  const std::pair<const char*, int64_t> positive[] = {
      {"layers", model.layers}, {"hidden", model.hidden},     {"intermediate", model.intermediate},
      {"heads", model.heads},   {"kv_heads", model.kv_heads}, {"head_dim", model.head_dim},
      {"vocab", model.vocab}};
  for (const auto& [name, value] : positive) {
    if (value <= 0)
      return invalid_input(
          cat("model '", model.name, "': ", name, " must be positive, is ", value));
    if (value > (int64_t{1} << 31))
      return invalid_input(cat("model '", model.name, "': ", name, " is absurdly large: ", value));
  }
  constexpr double kMostParams = 1e15;
  if (const double params = rough_params(model); params > kMostParams)
    return invalid_input(cat("model '", model.name, "': its sizes make about ", params,
                             " parameters; at most ", kMostParams, " are planned"));
  if (model.experts > 0 &&
      (model.top_k <= 0 || model.top_k > model.experts || model.expert_intermediate <= 0))
    return invalid_input(
        cat("model '", model.name, "': experts need top_k in 1..experts and expert_intermediate"));
  if (model.first_dense_layers < 0 || model.first_dense_layers > model.layers)
    return invalid_input(cat("model '", model.name, "': first_dense_layers must be in 0..layers"));
  if (model.sliding_window < 0)
    return invalid_input(cat("model '", model.name, "': sliding_window must be >= 0"));
  return ok_status();
}

std::ostream& operator<<(std::ostream& out, const ModelSize& model) {
  return out << model.name << " (" << model.layers << " layers of " << model.hidden << ")";
}

std::string assumption_note(const ModelSize& model) {
  if (model.unknown_architecture.empty()) return "";
  return cat(model.unknown_architecture,
             "; priced as Llama's: rotary positions, three matrices per MLP, no biases");
}

bool is_windowed(const ModelSize& model, int64_t layer) {
  if (model.sliding_window == 0) return false;
  return model.windowed.empty() ||
         model.windowed[static_cast<size_t>(layer) % model.windowed.size()];
}

bool has_mixed_layers(const ModelSize& model) {
  return model.sliding_window > 0 && !model.windowed.empty();
}

Result<ModelSize> find_model(const std::string& name) {
  std::vector<std::string> names, of_size;  // of_size: "13b" alone names no family
  for (const ModelSize& model : model_catalogue()) {
    if (model.name == name) return model;
    names.push_back(model.name);
    if (model.name.ends_with("-" + name)) of_size.push_back(model.name);
  }
  const std::string proposal = of_size.empty() ? did_you_mean(name, names)
                                               : cat("; with a family it is ", join(of_size, ", "));
  return not_found(cat("unknown model '", name, "'", proposal,
                       "; give the path of its config.json or one of the catalogue names"));
}

int64_t attention_params(const ModelSize& model) {
  if (model.mla) return latent_attention_params(model, *model.mla);
  return model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads);
}

int64_t dense_mlp_params(const ModelSize& model) {
  return mlp_matrices(model) * model.hidden * model.intermediate;
}

int64_t expert_params(const ModelSize& model) {
  return mlp_matrices(model) * model.hidden * model.expert_intermediate;
}

int64_t moe_layer_params(const ModelSize& model) {
  return (model.experts + model.shared_experts) * expert_params(model) +
         model.hidden * model.experts;
}

int64_t moe_layer_active_params(const ModelSize& model) {
  return (model.top_k + model.shared_experts) * expert_params(model) + model.hidden * model.experts;
}

int64_t moe_layers(const ModelSize& model) {
  return model.experts > 0 ? model.layers - model.first_dense_layers : 0;
}

int64_t embedding_params(const ModelSize& model) {
  const int64_t width = embedding_width(model);
  const int64_t projections = width == model.hidden ? 0 : 2 * width * model.hidden;
  return model.vocab * width + model.learned_positions * model.hidden + projections;
}

int64_t head_params(const ModelSize& model) { return model.vocab * embedding_width(model); }

int64_t total_params(const ModelSize& model) {
  const int64_t sparse = moe_layers(model), dense = model.layers - sparse;
  const int64_t norms = (model.layer_norms * model.layers + 1) * model.hidden;
  return embedding_params(model) + (model.tied_embeddings ? 0 : head_params(model)) + norms +
         model.layers * attention_params(model) + dense * dense_mlp_params(model) +
         sparse * moe_layer_params(model) + mtp_params(model, moe_layer_params(model));
}

int64_t active_params(const ModelSize& model) {
  if (model.experts == 0) return total_params(model);
  const int64_t idle_mlp = moe_layer_params(model) - moe_layer_active_params(model);
  return total_params(model) - (moe_layers(model) + model.mtp_layers) * idle_mlp;
}

int64_t routed_expert_params(const ModelSize& model) {
  return (moe_layers(model) + model.mtp_layers) * model.experts * expert_params(model);
}

int64_t trainable_params(const ModelSize& model, const Trainable& trainable) {
  return trainable.lora ? trainable.lora_rank * lora_rank1_params(model) : total_params(model);
}

double trainable_fraction(const ModelSize& model, const Trainable& trainable) {
  return static_cast<double>(trainable_params(model, trainable)) / total_params(model);
}

double attention_linear_flops(const ModelSize& model) { return 2.0 * attention_params(model); }
double dense_mlp_flops(const ModelSize& model) { return 2.0 * dense_mlp_params(model); }
double moe_mlp_flops(const ModelSize& model) { return 2.0 * moe_layer_active_params(model); }
double head_flops(const ModelSize& model) { return 2.0 * head_params(model); }

double attention_width(const ModelSize& model) {
  if (!model.mla) return static_cast<double>(model.heads * model.head_dim);
  const LatentAttention& mla = *model.mla;
  return 0.5 * model.heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim);
}

double attention_score_flops(const ModelSize& model, double context) {
  return 4.0 * attention_width(model) * context;
}

namespace {

// Of a model whose layers have a window, the share that does.
double windowed_share(const ModelSize& model) {
  if (model.windowed.empty()) return 1;
  int64_t count = 0;
  for (int64_t layer = 0; layer < model.layers; ++layer) count += is_windowed(model, layer) ? 1 : 0;
  return static_cast<double>(count) / static_cast<double>(model.layers);
}

}  // namespace

double mean_causal_context(const ModelSize& model, double length) {
  const double full = length / 2;
  const double window = static_cast<double>(model.sliding_window);
  if (window <= 0 || window >= length) return full;
  const double windowed = window - window * window / (2 * length);
  const double share = windowed_share(model);
  return share * windowed + (1 - share) * full;
}

double mean_decode_context(const ModelSize& model, double context) {
  const double window = static_cast<double>(model.sliding_window);
  if (window <= 0 || window >= context) return context;
  const double share = windowed_share(model);
  return share * window + (1 - share) * context;
}

double forward_flops_per_token(const ModelSize& model, double length) {
  const int64_t sparse = moe_layers(model);
  const double scores = attention_score_flops(model, mean_causal_context(model, length));
  return model.layers * (attention_linear_flops(model) + scores) +
         (model.layers - sparse) * dense_mlp_flops(model) + sparse * moe_mlp_flops(model) +
         head_flops(model);
}

int64_t kv_values_per_token_layer(const ModelSize& model) {
  if (model.mla) return model.mla->kv_lora_rank + model.mla->qk_rope_head_dim;
  return 2 * model.kv_heads * model.head_dim;
}

int64_t kv_cache_parts(const ModelSize& model, int64_t tp) {
  return model.mla ? 1 : std::min(tp, model.kv_heads);
}

double kv_bytes_per_token(const ModelSize& model, double bytes_per_value) {
  return bytes_per_value * static_cast<double>(model.layers * kv_values_per_token_layer(model));
}

}  // namespace braid::inline models
