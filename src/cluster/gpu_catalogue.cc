#include "cluster/gpu_catalogue.h"

namespace braid {
namespace {

// The f32 rate of tensor cores (TF32) is half the bf16 rate on every catalogued device.
constexpr double kF32Share = 0.5;

std::vector<GpuSpec> load_catalogue() {
  const Result<Json> table = parse_json(gpu_catalogue_json(), "GPU catalogue");
  BRAID_CHECK(table.ok(), table.status().message());
  std::vector<GpuSpec> gpus;
  for (const auto& [key, fields] : table->items()) {
    Result<GpuSpec> gpu = gpu_from_json(key, fields);
    BRAID_CHECK(gpu.ok(), gpu.status().message());
    gpus.push_back(std::move(gpu).value());
  }
  return gpus;
}

Status check_rates(const GpuSpec& gpu) {
  if (gpu.bf16_tflops <= 0) return invalid_input("bf16_tflops must be above 0");
  if (gpu.hbm_bytes <= 0) return invalid_input("hbm_bytes must be above 0");
  if (gpu.hbm_gbytes_per_s <= 0) return invalid_input("hbm_gbytes_per_s must be above 0");
  if (gpu.nvlink_gbytes_per_s < 0 || gpu.pcie_gbytes_per_s < 0 || gpu.nic_gbps_per_gpu < 0)
    return invalid_input("link rates must not be negative");
  if (gpu.gpus_per_node < 1 || gpu.nvlink_domain_gpus < 1)
    return invalid_input("gpus_per_node and nvlink_domain_gpus must be at least 1");
  return ok_status();
}

}  // namespace

const std::vector<GpuSpec>& gpu_catalogue() {
  static const std::vector<GpuSpec> catalogue = load_catalogue();
  return catalogue;
}

Result<GpuSpec> find_gpu(const std::string& key) {
  std::vector<std::string> names;
  for (const GpuSpec& gpu : gpu_catalogue()) {
    if (gpu.key == key) return gpu;
    names.push_back(gpu.key);
  }
  return Status(Code::kNotFound, cat("unknown GPU '", key, "'", did_you_mean(key, names),
                                     "; known: ", join(names, ", ")));
}

Json gpu_to_json(const GpuSpec& gpu) {
  return {{"name", gpu.name},
          {"generation", gpu.generation},
          {"bf16_tflops", gpu.bf16_tflops},
          {"fp8_tflops", gpu.fp8_tflops},
          {"fp4_tflops", gpu.fp4_tflops},
          {"hbm_bytes", gpu.hbm_bytes},
          {"hbm_gbytes_per_s", gpu.hbm_gbytes_per_s},
          {"nvlink_gbytes_per_s", gpu.nvlink_gbytes_per_s},
          {"pcie_gbytes_per_s", gpu.pcie_gbytes_per_s},
          {"nic_gbps_per_gpu", gpu.nic_gbps_per_gpu},
          {"gpus_per_node", gpu.gpus_per_node},
          {"nvlink_domain_gpus", gpu.nvlink_domain_gpus},
          {"source", gpu.source},
          {"unsure", gpu.unsure}};
}

Result<GpuSpec> gpu_from_json(const std::string& key, const Json& json) {
  if (!json.is_object()) return invalid_input(cat("GPU '", key, "' must be an object"));
  GpuSpec gpu;
  gpu.key = key;
  BRAID_ASSIGN(gpu.name, json_field_or<std::string>(json, "name", key));
  BRAID_ASSIGN(gpu.generation, json_field_or<std::string>(json, "generation", ""));
  BRAID_ASSIGN(gpu.bf16_tflops, json_field<double>(json, "bf16_tflops"));
  BRAID_ASSIGN(gpu.fp8_tflops, json_field_or<double>(json, "fp8_tflops", 0));
  BRAID_ASSIGN(gpu.fp4_tflops, json_field_or<double>(json, "fp4_tflops", 0));
  BRAID_ASSIGN(gpu.hbm_bytes, json_field<int64_t>(json, "hbm_bytes"));
  BRAID_ASSIGN(gpu.hbm_gbytes_per_s, json_field<double>(json, "hbm_gbytes_per_s"));
  BRAID_ASSIGN(gpu.nvlink_gbytes_per_s, json_field_or<double>(json, "nvlink_gbytes_per_s", 0));
  BRAID_ASSIGN(gpu.pcie_gbytes_per_s, json_field_or<double>(json, "pcie_gbytes_per_s", 0));
  BRAID_ASSIGN(gpu.nic_gbps_per_gpu, json_field_or<double>(json, "nic_gbps_per_gpu", 0));
  BRAID_ASSIGN(gpu.gpus_per_node, json_field_or<int64_t>(json, "gpus_per_node", 1));
  BRAID_ASSIGN(gpu.nvlink_domain_gpus, json_field_or<int64_t>(json, "nvlink_domain_gpus", 1));
  BRAID_ASSIGN(gpu.source, json_field_or<std::string>(json, "source", ""));
  BRAID_ASSIGN(gpu.unsure, json_field_or<bool>(json, "unsure", false));
  BRAID_TRY(check_rates(gpu).at(cat("GPU '", key, "'")));
  return gpu;
}

double peak_flops(const GpuSpec& gpu, const std::string& precision) {
  double tflops = gpu.bf16_tflops;
  if (precision == "f32") tflops *= kF32Share;
  if (precision == "fp8" || precision == "fp4") tflops = std::max(tflops, gpu.fp8_tflops);
  if (precision == "fp4") tflops = std::max(tflops, gpu.fp4_tflops);
  return tflops * 1e12;
}

}  // namespace braid
