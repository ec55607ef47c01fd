// The catalogue of devices: peaks, memory and links that vendors publish. Facts only; what software
// reaches of them is the business of the cost model. Pure values; thread-safe.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline cluster {

struct GpuSpec {
  std::string key;           // "h100-80g", or "this-machine"
  std::string name;          // as the vendor writes it
  std::string architecture;  // volta, ampere, ada, hopper, blackwell, cpu
  double bf16_tflops = 0;    // dense matrix peak, 1e12 operations/s; fp16 where there is no bf16
  double fp8_tflops = 0;     // 0: not supported
  double fp4_tflops = 0;     // 0: not supported
  double hbm_bytes = 0;      // as the driver reports it
  double hbm_gbytes_per_s = 0;
  double nvlink_gbytes_per_s = 0;  // one direction, 0: none
  double pcie_gbytes_per_s = 0;    // host link, one direction
  double nic_gbps_per_gpu = 0;     // default network, 1e9 bit/s
  int gpus_per_node = 1;
  int nvlink_domain_gpus = 1;  // devices that reach each other over NVLink
  bool unsure = false;         // a value from memory or inferred
  std::string source;
  double sustained_share = 1;  // of the peaks that a power limit below the usual one leaves

  // What it computes at most for long.
  double sustained_tflops() const { return bf16_tflops * sustained_share; }
  friend bool operator==(const GpuSpec&, const GpuSpec&) = default;
};
std::ostream& operator<<(std::ostream& out, const GpuSpec& gpu);

enum class Precision { kF32, kBf16, kFp16, kFp8, kFp4 };
const char* precision_name(Precision precision);
Result<Precision> parse_precision(const std::string& text);
// Bytes of one stored number.
double precision_bytes(Precision precision);

// Every catalogue device, in key order. "this-machine" holds one CPU socket of modest size; a
// profile replaces it.
const std::vector<GpuSpec>& gpu_catalogue();
// The catalogue entry; an unknown key is kNotFound with the nearest key.
Result<GpuSpec> find_gpu(const std::string& key);

// The catalogue's device that a driver calls so ("NVIDIA H100 80GB HBM3"), by the chip's name, the
// form of the card and its memory, within 3 %; null where none or several are alike.
const GpuSpec* gpu_of_driver(const std::string& name, double memory_bytes);

// Dense matrix peak in operations per second; an error where the device does not support the
// precision.
Result<double> peak_flops(const GpuSpec& gpu, Precision precision);

Json gpu_json(const GpuSpec& gpu);
// Fields that are absent keep the catalogue values of "key" where the catalogue has it.
Result<GpuSpec> gpu_from_json(const Json& json);

}  // namespace braid::inline cluster
