#include "pricing/efficiency.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace braid::inline pricing {
namespace {

using E = Efficiency;
constexpr FitStage kColl = FitStage::kCollective, kTrain = FitStage::kTrain,
                   kGen = FitStage::kGenerate, kRl = FitStage::kRl, kMem = FitStage::kMemory;

void append_term(std::vector<OffsetTerm>* terms, const Knob& knob, const char* level,
                 const std::string& name, double spread) {
  if (spread > 0 && !name.empty())
    terms->push_back({cat(knob.name, "@", level, ":", name), spread});
}

// Words in an engine's name that tell the stack it is built on; the first that matches counts.
struct StackWord {
  const char* word;
  const char* stack;
};
constexpr StackWord kStackWords[] = {
    {"megatron", "megatron"},      {"nemo", "megatron"},         {"torchtitan", "torch-native"},
    {"torchtune", "torch-native"}, {"prime-rl", "torch-native"}, {"transformers", "torch-eager"},
    {"trl", "torch-eager"},        {"litgpt", "torch-eager"},    {"deepspeed", "torch-eager"},
    {"swift", "torch-eager"},      {"vllm", "server"},           {"sglang", "server"},
    {"trtllm", "server"},          {"tensorrt", "server"}};

bool is_narrow(Precision precision) {
  return precision == Precision::kFp8 || precision == Precision::kFp4;
}

Status check_offset(const std::string& name, double value) {
  const std::string knob = name.substr(0, name.find('@'));
  if (find_knob(knob) == nullptr)
    return invalid_input(cat("offsets: unknown efficiency '", knob, "'"));
  if (!std::isfinite(value) || std::abs(value) > 20)
    return invalid_input(cat("offsets: '", name, "' is out of range"));
  return ok_status();
}

Result<std::map<std::string, double>> number_map(const Json& json, const char* key) {
  std::map<std::string, double> map;
  const auto found = json.find(key);
  if (found == json.end()) return map;
  if (!found->is_object()) return invalid_input(cat("'", key, "' must be an object of numbers"));
  for (const auto& [name, value] : found->items()) {
    if (!value.is_number()) return invalid_input(cat(key, ": '", name, "' must be a number"));
    map[name] = value.get<double>();
  }
  return map;
}

// Four digits are more than the data carry, and keep differences between fits readable.
Json rounded(Json json) {
  for (auto& item : json) {
    if (item.is_object()) item = rounded(item);
    if (item.is_number_float()) item = std::round(item.get<double>() * 1e4) / 1e4;
  }
  return json;
}

}  // namespace

// Priors come from published kernel benchmarks and vendor figures (docs/cost_model.md lists them
// knob by knob).
const std::vector<Knob>& knobs() {  // NOLINT(size): a table is one expression
  static const std::vector<Knob> all = {
      // name, member, stage, prior, spread, arch, gpu, precision, engine, release
      {"matmul_share", &E::matmul_share, kTrain, 0.72, 0.15, 0.06, 0.08, 0, 0.2, 0.05},
      {"fp8_gain", &E::fp8_gain, kTrain, 0.88, 0.2, 0.15, 0, 0, 0.1, 0.05},
      {"fp4_gain", &E::fp4_gain, kTrain, 0.5, 0.3, 0, 0.1, 0, 0, 0},
      {"matmul_half_width", &E::matmul_half_width, kTrain, 200, 0.7, 0.3, 0, 0, 0, 0},
      {"attention_share", &E::attention_share, kTrain, 0.36, 0.3, 0.25, 0.1, 0, 0.3, 0.05},
      {"stream_passes", &E::stream_passes, kTrain, 20, 0.4, 0, 0, 0, 0.3, 0.05},
      {"stream_share", &E::stream_share, kTrain, 0.8, 0, 0, 0, 0, 0, 0},
      {"quantize_passes", &E::quantize_passes, kTrain, 6, 0.5, 0, 0, 0, 0.3, 0},
      {"layer_host_us", &E::layer_host_us, kTrain, 200, 0.5, 0, 0, 0, 0.4, 0},
      {"eager_host_us", &E::eager_host_us, kTrain, 900, 0.5, 0, 0, 0, 0.4, 0},
      {"eager_factor", &E::eager_factor, kTrain, 1.8, 0.3, 0, 0, 0, 0, 0},
      {"selective_share", &E::selective_share, kTrain, 0.25, 0.4, 0, 0, 0, 0, 0},
      {"unknown_share", &E::unknown_share, kTrain, 0.08, 0.5, 0, 0, 0, 0, 0},
      {"lora_factor", &E::lora_factor, kTrain, 1.1, 0.1, 0, 0, 0, 0.1, 0},
      {"rl_loss_factor", &E::rl_loss_factor, kTrain, 15, 0.7, 0, 0, 0, 0, 0},
      {"step_host_s", &E::step_host_s, kTrain, 0.02, 0.5, 0, 0, 0, 0.5, 0},
      {"head_factor", &E::head_factor, kTrain, 1.2, 0.2, 0, 0, 0, 0, 0},
      {"expert_share", &E::expert_share, kTrain, 0.8, 0.2, 0.1, 0, 0, 0.15, 0.1},
      {"expert_half_tokens", &E::expert_half_tokens, kTrain, 200, 0.6, 0, 0, 0, 0, 0},
      {"router_passes", &E::router_passes, kTrain, 14, 0.5, 0, 0, 0, 0.2, 0.15},
      {"expert_loop_us", &E::expert_loop_us, kTrain, 600, 1.0, 0, 0, 0, 0, 0},
      {"tp_exposed", &E::tp_exposed, kTrain, 0.8, 0.2, 0, 0, 0, 0.2, 0},
      {"cp_exposed", &E::cp_exposed, kTrain, 0.3, 0.4, 0, 0, 0, 0, 0},
      {"ep_exposed", &E::ep_exposed, kTrain, 0.8, 0.2, 0, 0, 0, 0.2, 0.1},
      {"pp_exposed", &E::pp_exposed, kTrain, 0.4, 0.4, 0, 0, 0, 0, 0},
      {"dp_exposed", &E::dp_exposed, kTrain, 2, 0.5, 0, 0, 0, 0.8, 0},
      {"fsdp_exposed", &E::fsdp_exposed, kTrain, 0.3, 0.4, 0, 0, 0, 0.3, 0},
      {"pipeline_jitter", &E::pipeline_jitter, kTrain, 0.03, 0.5, 0, 0, 0, 0, 0},
      {"nvlink_ring_share", &E::nvlink_ring_share, kColl, 0.8, 0.1, 0.05, 0, 0, 0, 0},
      {"nvls_share", &E::nvls_share, kColl, 0.58, 0.1, 0.15, 0, 0, 0, 0},
      {"pcie_share", &E::pcie_share, kColl, 0.75, 0, 0, 0, 0, 0, 0},
      {"network_share", &E::network_share, kColl, 0.9, 0.1, 0, 0, 0, 0, 0},
      {"nvlink_latency_us", &E::nvlink_latency_us, kColl, 17, 0.3, 0.3, 0.2, 0, 0, 0},
      {"network_latency_us", &E::network_latency_us, kColl, 60, 0.7, 0.3, 0, 0, 0, 0},
      {"pipeline_fill", &E::pipeline_fill, kColl, 1.3, 0.3, 0.2, 0, 0, 0, 0},
      {"decode_weight_share", &E::decode_weight_share, kGen, 0.75, 0.12, 0.08, 0.12, 0, 0.1, 0},
      {"decode_expert_share", &E::decode_expert_share, kRl, 0.5, 0.3, 0, 0, 0, 0, 0},
      {"decode_kv_share", &E::decode_kv_share, kGen, 0.8, 0.15, 0, 0.1, 0.1, 0.15, 0},
      {"decode_matmul_share", &E::decode_matmul_share, kGen, 0.5, 0.2, 0, 0, 0, 0.1, 0},
      {"prefill_share", &E::prefill_share, kGen, 0.5, 0.15, 0.1, 0.1, 0.1, 0.15, 0},
      {"decode_layer_us", &E::decode_layer_us, kGen, 20, 0.5, 0, 0.2, 0, 0.3, 0},
      {"decode_host_us", &E::decode_host_us, kGen, 1200, 0.5, 0, 0, 0, 0.6, 0.5},
      {"decode_sequence_us", &E::decode_sequence_us, kGen, 10, 0.7, 0, 0, 0, 0.5, 0.5},
      {"decode_reduce_us", &E::decode_reduce_us, kGen, 18, 0.3, 0, 0, 0, 0.3, 0},
      {"decode_network_us", &E::decode_network_us, kRl, 40, 0.5, 0, 0, 0, 0, 0},
      {"eager_layer_us", &E::eager_layer_us, kGen, 900, 0.3, 0, 0, 0, 0.15, 0},
      {"decode_batch_rows", &E::decode_batch_rows, kGen, 1, 0, 0, 0, 0, 0, 0},
      {"decode_fill", &E::decode_fill, kGen, 0, 0, 0, 0, 0, 0, 0},
      {"rl_train_factor", &E::rl_train_factor, kRl, 1.5, 0.3, 0, 0, 0, 0.2, 0},
      {"rl_infer_factor", &E::rl_infer_factor, kRl, 1.5, 0.3, 0, 0, 0, 0.1, 0},
      {"rl_generate_factor", &E::rl_generate_factor, kRl, 1.2, 0.3, 0, 0, 0, 0.2, 0},
      {"rl_reshard_gbytes_per_s", &E::rl_reshard_gbytes_per_s, kRl, 6, 0.5, 0, 0, 0, 0.3, 0},
      {"rl_switch_factor", &E::rl_switch_factor, kRl, 1, 0.5, 0, 0, 0, 0, 0},
      {"rl_step_host_s", &E::rl_step_host_s, kRl, 5, 0.5, 0, 0, 0, 0.5, 0},
      {"length_spread", &E::length_spread, kRl, 0.7, 0.3, 0, 0, 0, 0, 0},
      {"stage3_generate_factor", &E::stage3_generate_factor, kRl, 1.5, 0.4, 0, 0, 0, 0, 0},
      {"mem_gradient_bytes", &E::mem_gradient_bytes, kMem, 3.5, 0.15, 0, 0, 0, 0.5, 0},
      {"mem_fused_factor", &E::mem_fused_factor, kMem, 1.05, 0.15, 0, 0, 0, 0.25, 0},
      {"mem_eager_factor", &E::mem_eager_factor, kMem, 1.5, 0.2, 0, 0, 0, 0.2, 0},
      {"mem_selective_share", &E::mem_selective_share, kMem, 0.6, 0.2, 0, 0, 0, 0.35, 0.25},
      {"mem_unknown_share", &E::mem_unknown_share, kMem, 0.6, 0.3, 0, 0, 0, 0.35, 0},
      {"mem_work_layers", &E::mem_work_layers, kMem, 1.5, 0.3, 0, 0, 0, 0.3, 0},
      {"mem_work_share", &E::mem_work_share, kMem, 0.5, 0, 0, 0, 0, 0, 0},
      {"mem_packed_share", &E::mem_packed_share, kMem, 0, 0, 0, 0, 0, 0, 0},
      {"mem_packed_train_share", &E::mem_packed_train_share, kMem, 0, 0, 0, 0, 0, 0, 0},
      {"mem_head_bytes", &E::mem_head_bytes, kMem, 0, 0, 0, 0, 0, 0, 0},
      {"mem_logit_bytes", &E::mem_logit_bytes, kMem, 8, 0.2, 0, 0, 0, 0.3, 0},
      {"mem_logit_eager_bytes", &E::mem_logit_eager_bytes, kMem, 12, 0.2, 0, 0, 0, 0.2, 0},
      {"mem_step_bytes", &E::mem_step_bytes, kMem, 2, 0.3, 0, 0, 0, 0.2, 0},
      {"mem_prefill_factor", &E::mem_prefill_factor, kMem, 0.6, 0.5, 0, 0, 0, 0.3, 0.5},
      {"mem_reserve_factor", &E::mem_reserve_factor, kMem, 1.06, 0.03, 0, 0, 0, 0.03, 0},
      {"mem_fixed_gib", &E::mem_fixed_gib, kMem, 0.5, 0.3, 0, 0, 0, 0.3, 0},
      {"mem_bucket_gib", &E::mem_bucket_gib, kMem, 8, 0.4, 0, 0, 0, 0, 0},
      {"mem_context_gib", &E::mem_context_gib, kMem, 1.3, 0, 0, 0, 0, 0, 0}};
  return all;
}

const Knob* find_knob(const std::string& name) {
  for (const Knob& knob : knobs())
    if (name == knob.name) return &knob;
  return nullptr;
}

EfficiencyKey efficiency_key(const GpuSpec& gpu, Precision precision, const std::string& engine) {
  return {gpu.architecture, gpu.key, precision, engine};
}

std::string engine_stack(const std::string& engine) {
  for (const StackWord& entry : kStackWords)
    if (engine.find(entry.word) != std::string::npos) return entry.stack;
  return "";
}

std::vector<OffsetTerm> offset_terms(const Knob& knob, const EfficiencyKey& key) {
  std::vector<OffsetTerm> terms;
  if (knob.spread > 0) terms.push_back({knob.name, knob.spread});
  append_term(&terms, knob, "arch", key.architecture, knob.by_arch);
  append_term(&terms, knob, "gpu", key.gpu, knob.by_gpu);
  if (is_narrow(key.precision))
    append_term(&terms, knob, "precision",
                cat(key.architecture, "-", precision_name(key.precision)), knob.by_precision);
  append_term(&terms, knob, "stack", engine_stack(key.engine), knob.by_engine);
  append_term(&terms, knob, "engine", engine_family(key.engine), knob.by_engine);
  if (engine_family(key.engine) != key.engine)
    append_term(&terms, knob, "release", key.engine, knob.by_release);
  return terms;
}

Efficiency resolve_efficiency(const Calibration& calibration, const EfficiencyKey& key) {
  Efficiency efficiency;
  for (const Knob& knob : knobs()) {
    double sum = 0;
    for (const OffsetTerm& term : offset_terms(knob, key)) {
      const auto found = calibration.offsets.find(term.name);
      if (found != calibration.offsets.end()) sum += found->second;
    }
    efficiency.*knob.member = knob.prior * std::exp(sum);
  }
  return efficiency;
}

bool engine_is_known(const Calibration& calibration, const std::string& engine) {
  return !engine.empty() &&
         std::binary_search(calibration.engines.begin(), calibration.engines.end(), engine);
}

std::optional<double> interval_half_width(const Calibration& calibration, const std::string& kind,
                                          bool known_engine) {
  for (const std::string& key : {kind + (known_engine ? "/seen" : "/unseen"), kind + "/seen"})
    if (const auto found = calibration.intervals.find(key); found != calibration.intervals.end())
      return found->second;
  return std::nullopt;
}

std::ostream& operator<<(std::ostream& out, const Calibration& calibration) {
  return out << calibration_json(calibration).dump(1);
}

Json calibration_json(const Calibration& calibration) {
  return {{"offsets", calibration.offsets},
          {"intervals", calibration.intervals},
          {"engines", calibration.engines}};
}

std::string calibration_source(const Calibration& calibration) {
  return cat(
      "// Written by `braid calibrate --out`: refit instead of editing.\n#include "
      "\"base/json.h\"\n",
      "#include \"pricing/efficiency.h\"\n\nnamespace braid {\n\n// clang-format off\n",
      "static const char kJson[] = R\"json(", rounded(calibration_json(calibration)).dump(1),
      ")json\";\n", "// clang-format on\n\nconst Calibration& committed_calibration() {\n",
      "  static const Calibration calibration = [] {\n",
      "    const auto json = parse_json(kJson, \"committed calibration\");\n",
      "    BRAID_CHECK(json.ok(), json.status().message());\n",
      "    const auto parsed = calibration_from_json(*json);\n",
      "    BRAID_CHECK(parsed.ok(), parsed.status().message());\n    return *parsed;\n  }();\n",
      "  return calibration;\n}\n\n}  // namespace braid\n");
}

Result<Calibration> calibration_from_json(const Json& json) {
  if (!json.is_object()) return invalid_input("a calibration must be a JSON object");
  static const std::vector<std::string> kKeys = {"offsets", "intervals", "engines"};
  for (const auto& [key, value] : json.items())
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      return invalid_input(cat("unknown key '", key, "'", did_you_mean(key, kKeys),
                               "; a calibration holds ", join(kKeys, ", ")));
  if (!json.contains("offsets"))
    return invalid_input("missing key 'offsets'; 'braid calibrate --out' writes calibrations");
  Calibration calibration;
  BRAID_ASSIGN(calibration.offsets, number_map(json, "offsets"));
  BRAID_ASSIGN(calibration.intervals, number_map(json, "intervals"));
  BRAID_ASSIGN(calibration.engines, json_field_or<std::vector<std::string>>(json, "engines", {}));
  std::sort(calibration.engines.begin(), calibration.engines.end());
  for (const auto& [name, value] : calibration.offsets) BRAID_TRY(check_offset(name, value));
  return calibration;
}

std::string engine_family(const std::string& engine) {
  const size_t dash = engine.rfind('-');
  const bool release =
      dash != std::string::npos && dash + 1 < engine.size() && std::isdigit(engine[dash + 1]);
  return release ? engine.substr(0, dash) : engine;
}

}  // namespace braid::inline pricing
