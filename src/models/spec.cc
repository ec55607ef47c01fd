#include "models/spec.h"

#include <algorithm>
#include <cmath>

#include "models/family.h"

namespace braid::inline models {

namespace {

double read_llama3_factors(ConfigReader& config, RopeSpec* rope) {
  rope->low_freq_factor = config.number("low_freq_factor");
  rope->high_freq_factor = config.number("high_freq_factor");
  rope->original_max_positions = config.size("original_max_position_embeddings");
  if (!(rope->high_freq_factor > rope->low_freq_factor))
    config.fail("'high_freq_factor' must be above 'low_freq_factor'");
  return config.number("factor");
}

// LongRoPE as transformers reads it: the original positions may stand beside the object (phi 3).
void read_long_rope(ConfigReader& config, ConfigReader& inner, RopeSpec* rope) {
  const int64_t most = config.size("max_position_embeddings");
  const char* const key = "original_max_position_embeddings";
  rope->original_max_positions = config.has(key) ? config.size(key) : inner.size_or(key, most);
  rope->divisors = inner.positive_numbers("short_factor");
  const double original = static_cast<double>(rope->original_max_positions);
  const double factor = inner.number_or("factor", static_cast<double>(most) / original);
  const bool grows = factor > 1 && original > 1;
  rope->amplitude = inner.number_or(
      "attention_factor", grows ? std::sqrt(1 + std::log(factor) / std::log(original)) : 1);
  if (!(rope->amplitude > 0)) inner.fail("'attention_factor' must be positive");
}

// One object of rotary settings; its failures are reported under the name of the key that held it.
RopeSpec read_rope_object(ConfigReader& config, const Json& object, const std::string& key,
                          double theta) {
  RopeSpec rope;
  if (!object.is_object()) {
    config.fail(cat("key '", key, "' must be an object"));
    return rope;
  }
  ConfigReader inner(object);
  rope.theta = inner.number_or("rope_theta", theta);
  const std::string type = inner.text_or("rope_type", inner.text_or("type", "default"));
  if (type == "linear") {
    rope.kind = RopeSpec::Kind::kLinear;
    rope.factor = inner.number("factor");
  } else if (type == "llama3") {
    rope.kind = RopeSpec::Kind::kLlama3;
    rope.factor = read_llama3_factors(inner, &rope);
  } else if (type == "longrope" || type == "su") {
    rope.kind = RopeSpec::Kind::kLong;
    read_long_rope(config, inner, &rope);
  } else if (type != "default") {
    inner.fail(cat("rotary scaling '", type,
                   "' is not supported; use default, linear, llama3 or longrope"));
  }
  if (inner.number_or("partial_rotary_factor", 1) != 1)
    inner.fail("'partial_rotary_factor' other than 1 is not supported");
  if (!(rope.factor > 0)) inner.fail("'factor' must be positive");
  if (!(rope.theta > 0)) inner.fail("'rope_theta' must be positive");
  if (!inner.status().ok()) config.fail(cat(key, ": ", inner.status().message()));
  return rope;
}

void read_tokens_and_dtype(ConfigReader& config, ModelSpec* spec) {
  spec->bos_ids = config.ids("bos_token_id");
  spec->eos_ids = config.ids("eos_token_id");
  if (const auto pad = config.ids("pad_token_id"); !pad.empty()) spec->pad_id = pad[0];
  spec->dtype = config.text_or("dtype", config.text_or("torch_dtype", ""));
  if (spec->dtype.empty()) return;
  for (const char* known : {"float32", "bfloat16", "float16"})
    if (spec->dtype == known) return;
  config.fail(cat("dtype '", spec->dtype, "' is not supported; use float32, bfloat16 or float16"));
}

// transformers counts the outputs of a sequence classifier by `num_labels` or by `id2label`.
void check_single_label(ConfigReader& config) {
  int64_t labels = config.size_or("num_labels", 0);
  if (config.has("id2label")) labels = static_cast<int64_t>(config.object().at("id2label").size());
  if (labels == 0)
    config.fail("a sequence classifier needs 'id2label' with one label; none is given");
  if (labels > 1)
    config.fail(
        cat("the model has ", labels, " labels; only a scalar head (1 label) is supported"));
}

Status check_sizes(const ModelSpec& spec) {
  if (spec.layers > kMaxLayers)
    return invalid_input(cat("'num_hidden_layers' is ", spec.layers, "; at most ", kMaxLayers));
  if (spec.head_dim < 1 || (spec.rope.kind != RopeSpec::Kind::kNone && spec.head_dim % 2 != 0))
    return invalid_input(cat("the head size is ", spec.head_dim, "; rotary heads must be even"));
  if (spec.learned_positions > 0 && spec.heads * spec.head_dim != spec.hidden)
    return invalid_input(cat("the heads are ", spec.head_dim, " wide, and ", spec.heads,
                             " of them are not as wide as the hidden state of ", spec.hidden));
  if (spec.rope.kind == RopeSpec::Kind::kLong &&
      static_cast<int64_t>(spec.rope.divisors.size()) != spec.head_dim / 2)
    return invalid_input(cat("'short_factor' has ", spec.rope.divisors.size(),
                             " numbers, heads of ", spec.head_dim, " need ", spec.head_dim / 2));
  if (!(spec.norm_eps > 0)) return invalid_input("the norm's epsilon must be positive");
  return ok_status();
}

struct NamedFamily {
  const ModelFamily* family = nullptr;
  bool scalar_head = false;
};

// "llama" of LlamaForCausalLM.
std::string family_part(const std::string& architecture) {
  const std::string name = lowered(architecture);
  return name.substr(0, name.find("for"));
}

Result<NamedFamily> find_architecture(const std::string& architecture) {
  std::vector<std::string> known, alike;
  for (const ModelFamily& family : model_families()) {
    if (architecture == family.lm_architecture) return NamedFamily{&family, false};
    if (architecture == family.score_architecture) return NamedFamily{&family, true};
    known.push_back(
        cat(family.name, " (", family.lm_architecture, ", ", family.score_architecture, ")"));
    // A similar name of another family (Gemma3 and Gemma) is other mathematics.
    if (family_part(architecture) == family_part(family.lm_architecture))
      alike = {family.lm_architecture, family.score_architecture};
  }
  const bool several_inputs = architecture.ends_with("ForConditionalGeneration");
  return invalid_input(cat("unknown architecture '", architecture, "'",
                           did_you_mean(architecture, alike),
                           several_inputs ? "; of models that read images or sound too, only the "
                                            "text model can be trained, as a folder of its own"
                                          : "",
                           "; known families: ", join(known, ", ")));
}

Result<std::string> architecture_of(const Json& json) {
  const auto found = json.find("architectures");
  if (found == json.end() || !found->is_array() || found->size() != 1 || !(*found)[0].is_string())
    return invalid_input("key 'architectures' must be a list of one name");
  return (*found)[0].get<std::string>();
}

Result<ModelSpec> parse_config_object(const Json& json) {
  if (!json.is_object()) return invalid_input("a model configuration must be a JSON object");
  BRAID_ASSIGN(const std::string architecture, architecture_of(json));
  BRAID_ASSIGN(const NamedFamily named, find_architecture(architecture));
  ConfigReader config(json);
  ModelSpec spec{read_size(config, *named.family), named.family->name, architecture};
  spec.scalar_head = named.scalar_head;
  if (config.has("quantization_config"))
    config.fail("key 'quantization_config': quantized weights are not supported");
  named.family->read(config, spec);
  read_tokens_and_dtype(config, &spec);
  if (spec.scalar_head) check_single_label(config);
  BRAID_TRY(config.status());
  BRAID_TRY(config.refusal());
  BRAID_TRY(check_sizes(spec));
  return spec;
}

}  // namespace

void read_ropes(ConfigReader& config, double theta, ModelSpec& spec) {
  spec.rope.theta = config.number_or("rope_theta", theta);
  if (!(spec.rope.theta > 0)) config.fail("'rope_theta' must be positive");
  if (config.number_or("partial_rotary_factor", 1) != 1)
    config.fail("'partial_rotary_factor' other than 1 is not supported");
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.has(key)) continue;
    const Json& object = config.object().at(key);
    const bool full = object.is_object() && object.contains(kFullLayer),
               windowed = object.is_object() && object.contains(kWindowedLayer);
    if (full != windowed)
      config.fail(cat(key, ": settings by kind of layer need both '", kFullLayer, "' and '",
                      kWindowedLayer, "'"));
    if (full && windowed) {
      const auto read = [&](const char* kind) {
        return read_rope_object(config, object.at(kind), cat(key, ": ", kind), spec.rope.theta);
      };
      spec.window_rope = read(kWindowedLayer);
      spec.rope = read(kFullLayer);
    } else {
      spec.rope = read_rope_object(config, object, key, spec.rope.theta);
    }
    break;
  }
  for (RopeSpec* rope : {&spec.rope, spec.window_rope ? &*spec.window_rope : &spec.rope}) {
    if (rope->original_max_positions == 0) rope->original_max_positions = spec.max_positions;
    if (rope->kind == RopeSpec::Kind::kLong)
      spec.max_positions = std::min(spec.max_positions, rope->original_max_positions);
  }
}

Activation read_activation(ConfigReader& config, const char* key, const char* fallback) {
  const std::string name = config.text_or(key, fallback);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  config.fail(cat("key '", key, "': activation '", name,
                  "' is not supported; use silu, gelu, gelu_new or gelu_pytorch_tanh"));
  return Activation::kSilu;
}

void read_decoder_config(ConfigReader& config, ModelSpec& spec, double rope_theta) {
  spec.max_positions = config.size("max_position_embeddings");
  spec.norm_eps = config.number_or("rms_norm_eps", 1e-6);
  spec.activation = read_activation(config, "hidden_act", "silu");
  read_ropes(config, rope_theta, spec);
}

bool has_last_position(const ModelSpec& spec) {
  return spec.learned_positions > 0 || spec.rope.kind == RopeSpec::Kind::kLong;
}

Result<ModelSpec> parse_model_spec(std::string_view config_json, const std::string& where) {
  BRAID_ASSIGN(const Json json, parse_json(config_json, where));
  return parse_config_object(json).at(where);
}

}  // namespace braid::inline models
