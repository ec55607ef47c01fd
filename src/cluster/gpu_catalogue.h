// The catalogue of GPUs: peaks, memory and links of every device class that Braid can price without
// measuring it. Immutable after first use; all functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid {

// Peaks are dense operations; a rate of 0 means that the device lacks the precision or the link.
struct GpuSpec {
  std::string key;         // "h100-80g"
  std::string name;        // as the vendor writes it
  std::string generation;  // "ampere", "hopper", ...: devices that share kernels
  double bf16_tflops = 0;
  double fp8_tflops = 0;
  double fp4_tflops = 0;
  int64_t hbm_bytes = 0;
  double hbm_gbytes_per_s = 0;
  double nvlink_gbytes_per_s = 0;  // one direction
  double pcie_gbytes_per_s = 0;    // one direction, host link
  double nic_gbps_per_gpu = 0;     // default network, gigabits per second
  int64_t gpus_per_node = 1;
  int64_t nvlink_domain_gpus = 1;
  std::string source;
  bool unsure = false;  // some value comes from memory
  friend bool operator==(const GpuSpec&, const GpuSpec&) = default;
};

// The committed table as JSON text: key -> fields.
const char* gpu_catalogue_json();

// Every known GPU in name order.
const std::vector<GpuSpec>& gpu_catalogue();

// The GPU of this key; an unknown key is kNotFound with the nearest name.
Result<GpuSpec> find_gpu(const std::string& key);

Json gpu_to_json(const GpuSpec& gpu);
Result<GpuSpec> gpu_from_json(const std::string& key, const Json& json);

// Operations per second of matrix products in "bf16", "fp16", "fp8", "fp4" or "f32"; a precision
// that the device lacks falls to the next wider one, as the libraries do.
double peak_flops(const GpuSpec& gpu, const std::string& precision);

}  // namespace braid
