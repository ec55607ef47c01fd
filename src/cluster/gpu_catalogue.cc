// The table of catalogue devices, one entry each, with the source of its values.
#include <algorithm>

#include "cluster/gpu.h"

namespace braid::inline cluster {
namespace {

std::vector<GpuSpec> ampere_gpus() {
  // clang-format off
  return {
      {.key = "a100-40g", .name = "A100-SXM4-40GB", .architecture = "ampere", .bf16_tflops = 312,
       .hbm_bytes = 42949672960, .hbm_gbytes_per_s = 1555, .nvlink_gbytes_per_s = 300,
       .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 200, .gpus_per_node = 8,
       .nvlink_domain_gpus = 8, .source = "vendor data sheet"},
      {.key = "a100-80g", .name = "A100-SXM4-80GB", .architecture = "ampere", .bf16_tflops = 312,
       .hbm_bytes = 85899345920, .hbm_gbytes_per_s = 2039, .nvlink_gbytes_per_s = 300,
       .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 200, .gpus_per_node = 8,
       .nvlink_domain_gpus = 8, .source = "vendor data sheet; measured matmul maximum 271 TFLOP/s"},
      {.key = "a100-pcie", .name = "A100-PCIe-80GB", .architecture = "ampere", .bf16_tflops = 312,
       .hbm_bytes = 85899345920, .hbm_gbytes_per_s = 1935, .nvlink_gbytes_per_s = 300,
       .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 100, .gpus_per_node = 8,
       .nvlink_domain_gpus = 2,
       .source = "vendor data sheet; NVLink only as a bridge between two cards"},
      {.key = "a10g", .name = "A10G-24GB", .architecture = "ampere", .bf16_tflops = 70,
       .hbm_bytes = 24146608128, .hbm_gbytes_per_s = 600, .pcie_gbytes_per_s = 31,
       .nic_gbps_per_gpu = 25, .gpus_per_node = 4, .nvlink_domain_gpus = 1, .unsure = true,
       .source = "cloud variant of the A10 with lower tensor peak (70 TFLOP/s dense); from memory"},
      {.key = "a40", .name = "A40-48GB", .architecture = "ampere", .bf16_tflops = 149.7,
       .hbm_bytes = 48305799168, .hbm_gbytes_per_s = 696, .pcie_gbytes_per_s = 31,
       .nic_gbps_per_gpu = 100, .gpus_per_node = 8, .nvlink_domain_gpus = 1,
       .source = "vendor data sheet (dense); optional bridge left out"},
      {.key = "a6000", .name = "RTX A6000-48GB", .architecture = "ampere", .bf16_tflops = 154.8,
       .hbm_bytes = 51527024640, .hbm_gbytes_per_s = 768, .pcie_gbytes_per_s = 31,
       .nic_gbps_per_gpu = 25, .gpus_per_node = 4, .nvlink_domain_gpus = 1,
       .source = "vendor data sheet (dense); optional bridge left out"},
      {.key = "a800-80g", .name = "A800-SXM4-80GB", .architecture = "ampere", .bf16_tflops = 312,
       .hbm_bytes = 85899345920, .hbm_gbytes_per_s = 2039, .nvlink_gbytes_per_s = 200,
       .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 200, .gpus_per_node = 8,
       .nvlink_domain_gpus = 8, .unsure = true,
       .source = "A100-SXM4-80GB with NVLink cut to 200 GB/s one way; from memory"},
      {.key = "rtx3090", .name = "GeForce RTX 3090-24GB", .architecture = "ampere",
       .bf16_tflops = 71, .hbm_bytes = 25769803776, .hbm_gbytes_per_s = 936,
       .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 10, .gpus_per_node = 1, .nvlink_domain_gpus = 1,
       .source = "vendor data sheet (dense, 32-bit accumulation); optional bridge left out"},
  };
  // clang-format on
}

std::vector<GpuSpec> ada_gpus() {
  // clang-format off
  return {
      {.key = "l20", .name = "L20-48GB", .architecture = "ada", .bf16_tflops = 119.5,
       .fp8_tflops = 239, .hbm_bytes = 48305799168, .hbm_gbytes_per_s = 864,
       .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 100, .gpus_per_node = 8,
       .nvlink_domain_gpus = 1, .unsure = true, .source = "from memory; no NVLink"},
      {.key = "l40s", .name = "L40S-48GB", .architecture = "ada", .bf16_tflops = 362,
       .fp8_tflops = 733, .hbm_bytes = 48305799168, .hbm_gbytes_per_s = 864,
       .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 100, .gpus_per_node = 8,
       .nvlink_domain_gpus = 1, .source = "vendor data sheet (dense); no NVLink"},
      {.key = "rtx4090", .name = "GeForce RTX 4090-24GB", .architecture = "ada",
       .bf16_tflops = 165.2, .fp8_tflops = 330.3, .hbm_bytes = 25757220864,
       .hbm_gbytes_per_s = 1008, .pcie_gbytes_per_s = 31, .nic_gbps_per_gpu = 10,
       .gpus_per_node = 1, .nvlink_domain_gpus = 1,
       .source = "vendor data sheet (dense, 32-bit accumulation); no NVLink"},
  };
  // clang-format on
}

// A sustained share below 1: a limit of 500 W where 700 W are usual; clocks under matrix load go
// with about the cube root to the square root of power.
std::vector<GpuSpec> hopper_gpus() {
  // clang-format off
  return {
      {.key = "h100-80g", .name = "H100-SXM5-80GB", .architecture = "hopper", .bf16_tflops = 989,
       .fp8_tflops = 1979, .hbm_bytes = 85520809984, .hbm_gbytes_per_s = 3350,
       .nvlink_gbytes_per_s = 450, .pcie_gbytes_per_s = 63, .nic_gbps_per_gpu = 400,
       .gpus_per_node = 8, .nvlink_domain_gpus = 8,
       .source = "vendor data sheet; measured matmul maximum 795 (bf16) / 1403 (fp8) TFLOP/s"},
      {.key = "h100-96g", .name = "H100 96GB HBM2e, 500 W", .architecture = "hopper",
       .bf16_tflops = 989, .fp8_tflops = 1979, .hbm_bytes = 102625181696, .hbm_gbytes_per_s = 2400,
       .nvlink_gbytes_per_s = 450, .pcie_gbytes_per_s = 63, .nic_gbps_per_gpu = 400,
       .gpus_per_node = 8, .nvlink_domain_gpus = 8, .unsure = true,
       .source = "stated by the torchtitan benchmark page: HBM2e 2.4 TB/s, 500 W limit; peaks are "
                 "the SXM5 ones and are not reached at 500 W",
       .sustained_share = 0.8},
      {.key = "h100-pcie", .name = "H100-PCIe-80GB", .architecture = "hopper", .bf16_tflops = 756,
       .fp8_tflops = 1513, .hbm_bytes = 85520809984, .hbm_gbytes_per_s = 2000,
       .nvlink_gbytes_per_s = 300, .pcie_gbytes_per_s = 63, .nic_gbps_per_gpu = 100,
       .gpus_per_node = 8, .nvlink_domain_gpus = 2,
       .source = "vendor data sheet (dense); NVLink only as a bridge between two cards"},
      {.key = "h20", .name = "H20-96GB", .architecture = "hopper", .bf16_tflops = 148,
       .fp8_tflops = 296, .hbm_bytes = 102625181696, .hbm_gbytes_per_s = 4000,
       .nvlink_gbytes_per_s = 450, .pcie_gbytes_per_s = 63, .nic_gbps_per_gpu = 400,
       .gpus_per_node = 8, .nvlink_domain_gpus = 8, .unsure = true, .source = "from memory"},
      {.key = "h200", .name = "H200-SXM-141GB", .architecture = "hopper", .bf16_tflops = 989,
       .fp8_tflops = 1979, .hbm_bytes = 150754820096, .hbm_gbytes_per_s = 4800,
       .nvlink_gbytes_per_s = 450, .pcie_gbytes_per_s = 63, .nic_gbps_per_gpu = 400,
       .gpus_per_node = 8, .nvlink_domain_gpus = 8,
       .source = "vendor data sheet; measured fp8 maximum 1453 TFLOP/s"},
      {.key = "h800", .name = "H800-SXM-80GB", .architecture = "hopper", .bf16_tflops = 989,
       .fp8_tflops = 1979, .hbm_bytes = 85520809984, .hbm_gbytes_per_s = 3350,
       .nvlink_gbytes_per_s = 200, .pcie_gbytes_per_s = 63, .nic_gbps_per_gpu = 400,
       .gpus_per_node = 8, .nvlink_domain_gpus = 8, .unsure = true,
       .source = "H100 with NVLink cut to 200 GB/s one way; from memory"},
  };
  // clang-format on
}

std::vector<GpuSpec> blackwell_gpus() {
  // clang-format off
  return {
      {.key = "b200", .name = "B200-SXM-192GB", .architecture = "blackwell", .bf16_tflops = 2250,
       .fp8_tflops = 4500, .fp4_tflops = 9000, .hbm_bytes = 192265846784, .hbm_gbytes_per_s = 8000,
       .nvlink_gbytes_per_s = 900, .pcie_gbytes_per_s = 63, .nic_gbps_per_gpu = 400,
       .gpus_per_node = 8, .nvlink_domain_gpus = 8,
       .source = "vendor data sheet; measured matmul maximum 1745 TFLOP/s"},
      {.key = "b300", .name = "B300-SXM-288GB", .architecture = "blackwell", .bf16_tflops = 2250,
       .fp8_tflops = 4500, .fp4_tflops = 13500, .hbm_bytes = 288400343040, .hbm_gbytes_per_s = 8000,
       .nvlink_gbytes_per_s = 900, .pcie_gbytes_per_s = 126, .nic_gbps_per_gpu = 800,
       .gpus_per_node = 8, .nvlink_domain_gpus = 8, .unsure = true,
       .source = "vendor data sheet (dense); from memory"},
      {.key = "gb200", .name = "GB200 (NVL72)", .architecture = "blackwell", .bf16_tflops = 2500,
       .fp8_tflops = 5000, .fp4_tflops = 10000, .hbm_bytes = 198674743296, .hbm_gbytes_per_s = 8000,
       .nvlink_gbytes_per_s = 900, .pcie_gbytes_per_s = 450, .nic_gbps_per_gpu = 400,
       .gpus_per_node = 4, .nvlink_domain_gpus = 72,
       .source = "vendor data sheet; host link is NVLink-C2C (450 GB/s one way), NVLink domain 72"},
      {.key = "gb300", .name = "GB300 (NVL72)", .architecture = "blackwell", .bf16_tflops = 2500,
       .fp8_tflops = 5000, .fp4_tflops = 15000, .hbm_bytes = 298013687808, .hbm_gbytes_per_s = 8000,
       .nvlink_gbytes_per_s = 900, .pcie_gbytes_per_s = 450, .nic_gbps_per_gpu = 800,
       .gpus_per_node = 4, .nvlink_domain_gpus = 72, .unsure = true,
       .source = "vendor data sheet; host link is NVLink-C2C, NVLink domain 72; from memory"},
  };
  // clang-format on
}

std::vector<GpuSpec> other_devices() {
  // clang-format off
  return {
      {.key = "this-machine", .name = "CPU socket", .architecture = "cpu", .bf16_tflops = 1,
       .hbm_bytes = 17179869184, .hbm_gbytes_per_s = 20, .pcie_gbytes_per_s = 16,
       .nic_gbps_per_gpu = 10, .gpus_per_node = 1, .nvlink_domain_gpus = 1, .unsure = true,
       .source = "nominal values of a modest socket; a profile replaces them"},
      {.key = "v100-32g", .name = "V100-SXM2-32GB", .architecture = "volta", .bf16_tflops = 125,
       .hbm_bytes = 34089205760, .hbm_gbytes_per_s = 900, .nvlink_gbytes_per_s = 150,
       .pcie_gbytes_per_s = 16, .nic_gbps_per_gpu = 100, .gpus_per_node = 8,
       .nvlink_domain_gpus = 8,
       .source = "vendor data sheet; the 16-bit peak is fp16: no bfloat16 tensor cores"},
  };
  // clang-format on
}

std::vector<GpuSpec> make_catalogue() {
  std::vector<GpuSpec> all;
  for (const auto& table :
       {ampere_gpus(), ada_gpus(), hopper_gpus(), blackwell_gpus(), other_devices()})
    all.insert(all.end(), table.begin(), table.end());
  std::sort(all.begin(), all.end(),
            [](const GpuSpec& a, const GpuSpec& b) { return a.key < b.key; });
  return all;
}

}  // namespace

const std::vector<GpuSpec>& gpu_catalogue() {
  static const std::vector<GpuSpec> catalogue = make_catalogue();
  return catalogue;
}

}  // namespace braid::inline cluster
