// Sizes of transformer models: dimensions read from a Hugging Face config.json or a catalogue, and
// the counts derived from them (parameters, floating-point operations, bytes of KV cache). They are
// all that a price depends on; ModelSpec (models/spec.h) adds what running the model needs. Pure
// values; all functions are thread-safe. Invariant of every ModelSize that is read or found:
// validate_model_size() accepts it.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline models {

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): ranks and head widths.
struct LatentAttention {
  int64_t q_lora_rank = 0;  // 0: queries are projected directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

struct ModelSize {
  std::string name;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;  // width of the dense MLP
  int64_t heads = 0;
  int64_t kv_heads = 0;  // without meaning under latent attention
  int64_t head_dim = 0;
  int64_t vocab = 0;
  bool tied_embeddings = false;   // input and output share one matrix
  bool gated_mlp = true;          // three MLP matrices instead of two
  int64_t learned_positions = 0;  // rows of a position table
  int64_t embed_dim = 0;          // 0: as hidden; else projected to hidden and back

  int64_t experts = 0;  // routed experts per MoE layer; 0: dense
  int64_t top_k = 0;
  int64_t expert_intermediate = 0;
  int64_t shared_experts = 0;
  int64_t first_dense_layers = 0;  // leading layers that keep the dense MLP
  int64_t mtp_layers = 0;          // multi-token-prediction layers trained beside the model

  std::optional<LatentAttention> mla = std::nullopt;
  int64_t sliding_window = 0;  // 0: full attention
  // Which layers have the window, repeated over all layers; empty: all have.
  std::vector<bool> windowed = {};
  int64_t layer_norms = 2;  // as wide as the hidden state, in each layer
  // What is unknown about a config.json that was read as if it were Llama's; "" = nothing.
  std::string unknown_architecture = "";

  friend bool operator==(const ModelSize&, const ModelSize&) = default;
};
// "llama2-7b (32 layers of 4096)".
std::ostream& operator<<(std::ostream& out, const ModelSize& model);

// Which parameters a training step updates.
struct Trainable {
  bool lora = false;
  int64_t lora_rank = 0;  // adapters on every linear layer; used only when lora
  friend bool operator==(const Trainable&, const Trainable&) = default;
};

// An error names the first dimension that is missing, negative or inconsistent.
Status validate_model_size(const ModelSize& model);

// Every catalogue model, in name order.
const std::vector<ModelSize>& model_catalogue();
// The catalogue entry; an unknown name is kNotFound with the nearest name.
Result<ModelSize> find_model(const std::string& name);
// Reads the dimensions that a config.json states, of every family in models/family.h, also where
// parse_model_spec() refuses to run the model. An architecture that is none of theirs is read as
// Llama's, and unknown_architecture says so. Errors name `where` and the key that is missing, no
// whole number, out of range or does not divide.
Result<ModelSize> parse_model_size(std::string_view config_json, const std::string& where);
// "architecture 'X' is not known; priced as ...", or "" where nothing had to be assumed.
std::string assumption_note(const ModelSize& model);

// Whether a layer sees a window of the keys, and whether some layers do and others do not.
bool is_windowed(const ModelSize& model, int64_t layer);
bool has_mixed_layers(const ModelSize& model);

// Parameters of one layer, without its norms. `dense` layers carry the dense MLP, the others the
// experts.
int64_t attention_params(const ModelSize& model);
int64_t dense_mlp_params(const ModelSize& model);
int64_t expert_params(const ModelSize& model);            // one routed or shared expert
int64_t moe_layer_params(const ModelSize& model);         // all experts and the router
int64_t moe_layer_active_params(const ModelSize& model);  // those that one token meets
int64_t moe_layers(const ModelSize& model);  // layers with experts (without prediction layers)

int64_t embedding_params(
    const ModelSize& model);  // input table, positions and projections, without the output head
int64_t head_params(
    const ModelSize& model);  // output matrix, also when tied (it is multiplied all the same)

// Everything stored once; a tied matrix counts once. Biases and query/key norms are left out (below
// 0.1 %).
int64_t total_params(const ModelSize& model);
// Parameters that one token meets, input embedding included.
int64_t active_params(const ModelSize& model);
// Parameters of the routed experts alone: what expert parallelism divides.
int64_t routed_expert_params(const ModelSize& model);
// Parameters that receive gradients: all, or the adapters r * (rows + columns) of each linear layer
// (LoRA, arXiv 2106.09685, section 4.1).
int64_t trainable_params(const ModelSize& model, const Trainable& trainable);
// Trainable share of all parameters in (0, 1].
double trainable_fraction(const ModelSize& model, const Trainable& trainable);

// Matrix-multiplication operations per token of one forward pass through one layer, 2 per
// parameter; attention scores excluded. A backward pass costs twice that (Megatron-LM SC'21, arXiv
// 2104.04473, section 5.1).
double attention_linear_flops(const ModelSize& model);
double dense_mlp_flops(const ModelSize& model);
double moe_mlp_flops(const ModelSize& model);
double head_flops(const ModelSize& model);
// Score and value operations per token, mean over layers, where a token sees `context` tokens on
// average.
double attention_score_flops(const ModelSize& model, double context);
// The mean number of tokens that a token of a causal sequence of `length` attends to, mean over
// full and windowed layers.
double mean_causal_context(const ModelSize& model, double length);
// The same for a token at the end of `context` tokens (decoding).
double mean_decode_context(const ModelSize& model, double context);
// Forward operations per token of a causal sequence, whole model with head.
double forward_flops_per_token(const ModelSize& model, double length);

// Width of the score GEMMs: heads x (query/key width + value width) / 2.
double attention_width(const ModelSize& model);
// Numbers kept in the KV cache per token and layer.
int64_t kv_values_per_token_layer(const ModelSize& model);
// Parts that tensor parallelism over `tp` ranks cuts the cache into: at most the key-value heads;
// latent attention keeps it whole on every rank.
int64_t kv_cache_parts(const ModelSize& model, int64_t tp);
// Bytes of KV cache of one token over all layers with `bytes_per_value`.
double kv_bytes_per_token(const ModelSize& model, double bytes_per_value);

}  // namespace braid::inline models
