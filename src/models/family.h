// What one Hugging Face model family is: how its config.json is read and how its checkpoints name
// and orient their tensors. One file per family under families/; nn builds every family from these
// values with the same layers. Pure values, thread-safe.
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

struct ModelFamily {
  std::string name;             // short, for messages
  std::string lm_architecture;  // "LlamaForCausalLM"
  std::string
      score_architecture;  // the same with `score.weight` instead of the language-model head
  void (*read)(ConfigReader& config, ModelSpec& spec);
  TensorNames names;
};

// Every family, in the order in which messages list them.
const std::vector<ModelFamily>& model_families();

// The family of a spec that parse_model_spec returned.
const ModelFamily& family_of(const ModelSpec& spec);

// Whether one matrix of the checkpoint has the rows of gate and, below them, those of up.
bool joins_gate(const ModelSpec& spec);

// The keys that all families but gpt2 spell alike: sizes, norm, rotary embedding, tied embeddings.
struct DecoderDefaults {
  bool tied_embeddings = false;
  int64_t head_dim = 0;  // 0 = hidden / heads
  double rope_theta = 10000;
};
void read_decoder_config(ConfigReader& config, const DecoderDefaults& defaults, ModelSpec& spec);

// Rotary settings in the spellings `rope_theta` + `rope_scaling` (4.x) and `rope_parameters` (5.x),
// where these may be by kind of layer (`full_attention`, `sliding_attention`): then window_rope is
// set. Dynamic and yarn scaling are errors. Of LongRoPE, whose frequencies change where a sequence
// outgrows the original positions, the positions below are read and max_positions is lowered to
// them. REQUIRES: spec.max_positions is read.
void read_ropes(ConfigReader& config, double theta, ModelSpec& spec);

// The activation named by the key; an unknown one is an error.
Activation read_activation(ConfigReader& config, const char* key, const char* fallback);

// Which layers have a window, by `layer_types`, or where that is absent by `otherwise`, and how
// wide it is (`sliding_window`, or `width` where that is absent too).
void read_windows(ConfigReader& config, const std::vector<bool>& otherwise, int64_t width,
                  ModelSpec& spec);
// The same for families with `use_sliding_window` and `max_window_layers` (qwen).
void read_upper_windows(ConfigReader& config, ModelSpec& spec);
// The layers of `layers` but each n-th (gemma 2 and 3).
std::vector<bool> all_but_each(int64_t n, int64_t layers);

struct TensorSpec {
  enum class Init { kNormal, kResidualNormal, kZero, kOne };  // residual: std over sqrt(2 layers)

  std::string name;            // Hugging Face name
  std::vector<int64_t> shape;  // a matrix is [out, in] here, whatever the file's orientation
  bool transposed = false;     // the file holds [in, out]
  Init init = Init::kNormal;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// The tensors of layers [begin, end) in file order; the first range has the embedding, the last the
// final norm and the head (absent when tied).
std::vector<TensorSpec> model_tensors(const ModelSpec& spec, int64_t begin, int64_t end);

// "model.layers.3.": what the names of a layer's tensors start with.
std::string layer_prefix(const ModelFamily& family, int64_t layer);

inline constexpr const char* kLmHeadName = "lm_head.weight";
inline constexpr const char* kScoreName = "score.weight";

}  // namespace braid::inline models
