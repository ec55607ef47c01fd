#include "cluster/gpu.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace braid::inline cluster {
namespace {

struct NumberField {
  const char* name;
  double GpuSpec::*member;
  bool may_be_zero;
};

constexpr NumberField kNumbers[] = {{"bf16_tflops", &GpuSpec::bf16_tflops, false},
                                    {"fp8_tflops", &GpuSpec::fp8_tflops, true},
                                    {"fp4_tflops", &GpuSpec::fp4_tflops, true},
                                    {"hbm_bytes", &GpuSpec::hbm_bytes, false},
                                    {"hbm_gbytes_per_s", &GpuSpec::hbm_gbytes_per_s, false},
                                    {"nvlink_gbytes_per_s", &GpuSpec::nvlink_gbytes_per_s, true},
                                    {"pcie_gbytes_per_s", &GpuSpec::pcie_gbytes_per_s, false},
                                    {"nic_gbps_per_gpu", &GpuSpec::nic_gbps_per_gpu, true},
                                    {"sustained_share", &GpuSpec::sustained_share, false}};

Status validate(const GpuSpec& gpu) {
  for (const NumberField& field : kNumbers) {
    const double value = gpu.*field.member;
    if (!std::isfinite(value) || value < 0 || (value == 0 && !field.may_be_zero))
      return invalid_input(
          cat("gpu '", gpu.key, "': ", field.name, " must be a positive number, is ", value));
  }
  if (gpu.gpus_per_node < 1 || gpu.nvlink_domain_gpus < 1)
    return invalid_input(
        cat("gpu '", gpu.key, "': gpus_per_node and nvlink_domain_gpus must be at least 1"));
  return ok_status();
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t longest = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + longest, b.begin()).first - a.begin();
}

// " (did you mean 'h100-80g', 'h100-96g' or 'h100-pcie'?)": people leave out what follows the name
// of a chip or take another memory size, so that keys that begin alike are nearer than edits say.
std::string gpu_hint(const std::string& key, const std::vector<std::string>& keys) {
  constexpr size_t kNameOfChip = 3, kMostHints = 3;
  const std::string wanted = lowered(key);
  size_t longest = 0;
  for (const std::string& known : keys) longest = std::max(longest, common_prefix(wanted, known));
  if (longest < kNameOfChip) return did_you_mean(key, keys);
  std::vector<std::string> near;
  for (const std::string& known : keys)
    if (common_prefix(wanted, known) == longest) near.push_back(cat("'", known, "'"));
  if (near.size() > kMostHints) near.resize(kMostHints);
  const std::string last = near.back();
  near.pop_back();
  return cat(" (did you mean ", join(near, ", "), near.empty() ? "" : " or ", last, "?)");
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const GpuSpec& gpu) {
  return out << gpu.key << " (" << gpu.name << ")";
}

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
    case Precision::kFp8:
      return "fp8";
    case Precision::kFp4:
      return "fp4";
  }
  return "?";
}

Result<Precision> parse_precision(const std::string& text) {
  for (const Precision precision :
       {Precision::kF32, Precision::kBf16, Precision::kFp16, Precision::kFp8, Precision::kFp4})
    if (text == precision_name(precision)) return precision;
  return invalid_input(cat("unknown precision '", text, "'; use bf16, fp16, fp8, fp4 or f32"));
}

double precision_bytes(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return 4;
    case Precision::kFp8:
      return 1;
    case Precision::kFp4:
      return 0.5;
    default:
      return 2;
  }
}

Result<GpuSpec> find_gpu(const std::string& key) {
  std::vector<std::string> keys;
  for (const GpuSpec& gpu : gpu_catalogue()) {
    if (gpu.key == key) return gpu;
    keys.push_back(gpu.key);
  }
  return not_found(
      cat("unknown gpu '", key, "'", gpu_hint(key, keys), "; known: ", join(keys, ", ")));
}

const GpuSpec* gpu_of_driver(const std::string& name, double memory_bytes) {
  constexpr double kAlike = 0.03;
  std::vector<std::string> words;  // in small letters
  for (const char letter : lowered(name)) {
    if (words.empty() || std::isalnum(static_cast<unsigned char>(letter)) == 0)
      words.emplace_back();
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) words.back() += letter;
  }
  const auto says = [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const GpuSpec* found = nullptr;
  for (const GpuSpec& gpu : gpu_catalogue()) {
    const std::string chip = gpu.key.substr(0, gpu.key.find('-'));
    const bool rtx = chip.substr(0, 3) == "rtx" && says("rtx") && says(chip.substr(3));
    const bool pcie = gpu.key.find("-pcie") != std::string::npos;
    if (gpu.architecture == "cpu" || !(says(chip) || rtx) || pcie != says("pcie") ||
        std::abs(gpu.hbm_bytes / memory_bytes - 1) > kAlike)
      continue;
    if (found != nullptr) return nullptr;
    found = &gpu;
  }
  return found;
}

Result<double> peak_flops(const GpuSpec& gpu, Precision precision) {
  double tflops = gpu.bf16_tflops;
  if (precision == Precision::kFp8) tflops = gpu.fp8_tflops;
  if (precision == Precision::kFp4) tflops = gpu.fp4_tflops;
  if (precision == Precision::kF32)
    tflops = gpu.architecture == "cpu" ? gpu.bf16_tflops : gpu.bf16_tflops / 2;
  if (tflops <= 0)
    return invalid_input(cat("gpu '", gpu.key, "' does not support ", precision_name(precision)));
  return tflops * 1e12;
}

Json gpu_json(const GpuSpec& gpu) {
  Json json = {{"key", gpu.key},
               {"name", gpu.name},
               {"architecture", gpu.architecture},
               {"gpus_per_node", gpu.gpus_per_node},
               {"nvlink_domain_gpus", gpu.nvlink_domain_gpus},
               {"unsure", gpu.unsure},
               {"source", gpu.source}};
  for (const NumberField& field : kNumbers) json[field.name] = gpu.*field.member;
  return json;
}

Result<GpuSpec> gpu_from_json(const Json& json) {
  if (!json.is_object()) return invalid_input("a gpu must be a JSON object");
  BRAID_ASSIGN(const std::string key, json_field<std::string>(json, "key"));
  GpuSpec gpu;
  if (const auto known = find_gpu(key); known.ok()) gpu = *known;
  gpu.key = key;
  BRAID_ASSIGN(gpu.name, json_field_or<std::string>(json, "name", gpu.name));
  BRAID_ASSIGN(gpu.architecture,
               json_field_or<std::string>(json, "architecture", gpu.architecture));
  BRAID_ASSIGN(gpu.source, json_field_or<std::string>(json, "source", gpu.source));
  BRAID_ASSIGN(gpu.unsure, json_field_or<bool>(json, "unsure", gpu.unsure));
  BRAID_ASSIGN(gpu.gpus_per_node, json_field_or<int>(json, "gpus_per_node", gpu.gpus_per_node));
  BRAID_ASSIGN(gpu.nvlink_domain_gpus,
               json_field_or<int>(json, "nvlink_domain_gpus", gpu.nvlink_domain_gpus));
  for (const NumberField& field : kNumbers) {
    BRAID_ASSIGN(gpu.*field.member, json_field_or<double>(json, field.name, gpu.*field.member));
  }
  BRAID_TRY(validate(gpu));
  return gpu;
}

}  // namespace braid::inline cluster
