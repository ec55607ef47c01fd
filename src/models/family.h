// What one Hugging Face model family is: how its config.json is read and how its checkpoints name
// and orient their tensors. One file per family that is executed under families/, from whose values
// nn builds every family with the same layers; those that are priced alone are one table. Pure
// values, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/config_reader.h"
#include "models/spec.h"

namespace braid::inline models {

// Module names in a checkpoint; those of a layer are relative to "<prefix><layer><index>.".
// An empty name means that the family has no such module.
struct TensorNames {
  std::string prefix = "model.";
  std::string embedding = "embed_tokens.weight";
  std::string positions;
  std::string layer = "layers.";
  std::string attention_norm = "input_layernorm";
  std::vector<std::string> qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::string query_norm;
  std::string key_norm;
  std::string output = "self_attn.o_proj";
  std::string attention_post_norm;  // of what attention adds to the residual stream
  std::string mlp_norm = "post_attention_layernorm";
  std::vector<std::string> up = {"mlp.gate_proj", "mlp.up_proj"};
  std::string down = "mlp.down_proj";
  std::string mlp_post_norm;  // of what the MLP adds
  std::string final_norm = "norm";
  bool transposed = false;  // layer matrices are stored [in, out]
  // Ends of the names of constant buffers that old checkpoints contain; not read.
  std::vector<std::string> ignored = {".rotary_emb.inv_freq"};
};

// How config.json calls dimensions. Other usual spellings are read too; these are asked for.
struct SizeKeys {
  const char* layers = "num_hidden_layers";
  const char* hidden = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* intermediate = "intermediate_size";
  const char* positions = "max_position_embeddings";
};

// Kinds of layers in config.json.
inline constexpr const char *kFullLayer = "full_attention", *kWindowedLayer = "sliding_attention";

// Which layers see a window of the keys where `layer_types` does not say.
struct WindowRule {
  enum class Layers {
    kNone,        // whatever config.json says
    kAll,         // where it states a width, and `use_sliding_window` is not false
    kUpper,       // from `max_window_layers` on, where `use_sliding_window` is true
    kAllButEach,  // but each n-th
  };
  Layers layers = Layers::kAll;
  int64_t each = 0;
  const char* each_key = nullptr;  // that states another `each`
  int64_t width = 0;               // where `sliding_window` is absent; null means none
};

struct ModelFamily {
  std::string name;                     // short, for messages
  std::string model_type = name;        // in config.json
  std::string lm_architecture = "";     // "LlamaForCausalLM"; "": priced, not executed
  std::string score_architecture = "";  // with `score.weight` instead of the language-model head
  SizeKeys keys = {};
  bool tied_embeddings = false;  // where config.json does not say
  int64_t head_dim = 0;          // where it does not say; 0 = hidden / heads
  bool gated_mlp = true;
  int64_t stated_mlps = 1;         // `intermediate` is the width of so many matrices together
  bool learned_positions = false;  // a table with a row for each position
  int64_t rows_before = 0;         // of that table, in front of the first position
  WindowRule windows = {};
  // What running the model needs beside its dimensions, which are read before.
  void (*read)(ConfigReader& config, ModelSpec& spec) = nullptr;
  TensorNames names = {};
};

// Every family that is executed, in the order in which messages list them.
const std::vector<ModelFamily>& model_families();
// The families that are priced and not executed.
const std::vector<ModelFamily>& priced_families();

// The family of a spec that parse_model_spec returned.
const ModelFamily& family_of(const ModelSpec& spec);

// Whether one matrix of the checkpoint has the rows of gate and, below them, those of up.
bool joins_gate(const ModelSpec& spec);

// The dimensions that config.json states of a model of the family, whose failures and refusals are
// the reader's.
ModelSize read_size(ConfigReader& config, const ModelFamily& family);

// The keys beside dimensions that all families but gpt2 spell alike: positions, norm, activation,
// rotary embedding.
void read_decoder_config(ConfigReader& config, ModelSpec& spec, double rope_theta = 10000);

// Rotary settings in the spellings `rope_theta` + `rope_scaling` (4.x) and `rope_parameters` (5.x),
// where these may be by kind of layer (`full_attention`, `sliding_attention`): then window_rope is
// set. Dynamic and yarn scaling are errors. Of LongRoPE, whose frequencies change where a sequence
// outgrows the original positions, the positions below are read and max_positions is lowered to
// them. REQUIRES: spec.max_positions is read.
void read_ropes(ConfigReader& config, double theta, ModelSpec& spec);

// The activation named by the key; an unknown one is an error.
Activation read_activation(ConfigReader& config, const char* key, const char* fallback);

struct TensorSpec {
  enum class Init { kNormal, kResidualNormal, kZero, kOne };  // residual: std over sqrt(2 layers)

  std::string name;            // Hugging Face name
  std::vector<int64_t> shape;  // a matrix is [out, in] here, whatever the file's orientation
  bool transposed = false;     // the file holds [in, out]
  Init init = Init::kNormal;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// Norms as wide as the hidden state in a layer.
int64_t norms_of_layer(const TensorNames& names);

// The tensors of layers [begin, end) in file order; the first range has the embedding, the last the
// final norm and the head (absent when tied).
std::vector<TensorSpec> model_tensors(const ModelSpec& spec, int64_t begin, int64_t end);

// "model.layers.3.": what the names of a layer's tensors start with.
std::string layer_prefix(const ModelFamily& family, int64_t layer);

inline constexpr const char* kLmHeadName = "lm_head.weight";
inline constexpr const char* kScoreName = "score.weight";

}  // namespace braid::inline models
