// What one Hugging Face model family is: how its config.json is read and how its checkpoints name
// and orient their tensors. One file per family under families/; nn builds every family from these
// values with the same layers. Pure values, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/config_reader.h"
#include "dataflow/model_spec.h"

namespace braid::inline dataflow {

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
  std::string mlp_norm = "post_attention_layernorm";
  std::vector<std::string> up = {"mlp.gate_proj", "mlp.up_proj"};
  std::string down = "mlp.down_proj";
  std::string final_norm = "norm";
  bool transposed = false;  // layer matrices are stored [in, out]
  // Ends of the names of constant buffers that old checkpoints contain; not read.
  std::vector<std::string> ignored = {".rotary_emb.inv_freq"};
};

struct ModelFamily {
  std::string name;             // also `model_type` in config.json
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

// The keys that all families but gpt2 spell alike: sizes, norm, rotary embedding, tied embeddings.
struct DecoderDefaults {
  bool tied_embeddings = false;
  int64_t head_dim = 0;  // 0 = hidden / heads
};
void read_decoder_config(ConfigReader& config, const DecoderDefaults& defaults, ModelSpec& spec);

// Rotary settings in the spellings `rope_theta` + `rope_scaling` (4.x) and `rope_parameters` (5.x);
// dynamic and yarn scaling are errors.
RopeSpec read_rope(ConfigReader& config, int64_t max_positions);

// The activation named by the key; an unknown one is an error.
Activation read_activation(ConfigReader& config, const char* key, const char* fallback);

// The window of a family with `use_sliding_window` and per-layer kinds (qwen): 0 or one window for
// all layers; a mixture is an error.
int64_t read_layered_window(ConfigReader& config, int64_t layers);

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

}  // namespace braid::inline dataflow
