// A decoder as its Hugging Face config.json states it: its size, which is all that the planner
// needs to price it, and what nn needs beside that to build the model. A plain value; parsing never
// touches files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/size.h"

namespace braid::inline models {

enum class Activation { kSilu, kGeluTanh, kGelu };
enum class NormKind { kRms, kLayer };

// Rotary embedding with its scaling rule (transformers `rope_scaling` 4.x / `rope_parameters` 5.x).
struct RopeSpec {
  enum class Kind { kNone, kDefault, kLinear, kDynamic, kLlama3, kYarn, kLong };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 0;
  // kLong (LongRoPE, arXiv 2402.13753): what each frequency is divided by up to the original
  // positions, and what cosines and sines are multiplied by.
  std::vector<double> divisors = {};
  double amplitude = 1;

  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

// The most layers of a model that is run.
inline constexpr int64_t kMaxLayers = 4096;

struct ModelSpec : ModelSize {
  std::string family = "";        // "llama", "qwen2", "qwen3", "mistral", "gemma", ...
  std::string architecture = "";  // as in config.json, e.g. "LlamaForCausalLM"
  int64_t max_positions = 0;
  double score_width = 0;         // scores are divided by its root; 0: head_dim
  double attention_soft_cap = 0;  // gemma2: of scores; 0: none
  double logit_soft_cap = 0;      // gemma2: of the head's outputs; 0: none
  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-6;
  bool norm_unit_offset = false;  // gemma: scale by (1 + weight)
  bool scale_embedding = false;   // gemma: embeddings times sqrt(hidden)
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;      // qwen3: RMSNorm of each query and key head
  bool scalar_head = false;  // score.weight [1, hidden] instead of a language-model head
  bool value_head = false;   // the same beside it; no config.json says so
  RopeSpec rope = {};
  std::optional<RopeSpec> window_rope = {};  // gemma3: of windowed layers, where it is another
  std::vector<int64_t> bos_ids = {};
  std::vector<int64_t> eos_ids = {};
  std::optional<int64_t> pad_id = {};
  std::string dtype = "";  // "float32", "bfloat16", "float16" as stated; "" when not

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Whether there are no positions beyond max_positions: learned ones, or rotary ones whose scaling
// changes there (LongRoPE).
bool has_last_position(const ModelSpec& spec);

// Reads config.json in the spellings of transformers 4.x and 5.x. An unknown architecture, an
// unsupported option (also what can be planned alone) and a missing or inconsistent size are errors
// that name the key; `where` names the file.
Result<ModelSpec> parse_model_spec(std::string_view config_json, const std::string& where);

}  // namespace braid::inline models
