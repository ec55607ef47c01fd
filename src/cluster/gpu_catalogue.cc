// The table of catalogue devices, one entry each, with the source of its values.
#include "cluster/gpu.h"

namespace braid {
namespace {

std::vector<GpuSpec> make_catalogue() {
  // key, name, architecture, bf16, fp8 and fp4 TFLOP/s, HBM bytes, HBM GB/s, NVLink, PCIe GB/s, NIC
  // Gbit/s, devices per node, devices per NVLink domain, unsure, source, sustained share (500 W of
  // 700 W: clocks under matrix load go with about the cube root to the square root of power)
  return {
      {"a100-40g", "A100-SXM4-40GB", "ampere", 312, 0, 0, 42949672960, 1555, 300, 31, 200, 8, 8,
       false, "vendor data sheet"},
      {"a100-80g", "A100-SXM4-80GB", "ampere", 312, 0, 0, 85899345920, 2039, 300, 31, 200, 8, 8,
       false, "vendor data sheet; measured matmul maximum 271 TFLOP/s"},
      {"a100-pcie", "A100-PCIe-80GB", "ampere", 312, 0, 0, 85899345920, 1935, 300, 31, 100, 8, 2,
       false, "vendor data sheet; NVLink only as a bridge between two cards"},
      {"a10g", "A10G-24GB", "ampere", 70, 0, 0, 24146608128, 600, 0, 31, 25, 4, 1, true,
       "cloud variant of the A10 with lower tensor peak (70 TFLOP/s dense); from memory"},
      {"a40", "A40-48GB", "ampere", 149.7, 0, 0, 48305799168, 696, 0, 31, 100, 8, 1, false,
       "vendor data sheet (dense); optional bridge left out"},
      {"a6000", "RTX A6000-48GB", "ampere", 154.8, 0, 0, 51527024640, 768, 0, 31, 25, 4, 1, false,
       "vendor data sheet (dense); optional bridge left out"},
      {"a800-80g", "A800-SXM4-80GB", "ampere", 312, 0, 0, 85899345920, 2039, 200, 31, 200, 8, 8,
       true, "A100-SXM4-80GB with NVLink cut to 200 GB/s one way; from memory"},
      {"b200", "B200-SXM-192GB", "blackwell", 2250, 4500, 9000, 192265846784, 8000, 900, 63, 400, 8,
       8, false, "vendor data sheet; measured matmul maximum 1745 TFLOP/s"},
      {"b300", "B300-SXM-288GB", "blackwell", 2250, 4500, 13500, 288400343040, 8000, 900, 126, 800,
       8, 8, true, "vendor data sheet (dense); from memory"},
      {"gb200", "GB200 (NVL72)", "blackwell", 2500, 5000, 10000, 198674743296, 8000, 900, 450, 400,
       4, 72, false,
       "vendor data sheet; host link is NVLink-C2C (450 GB/s one way), NVLink domain 72"},
      {"gb300", "GB300 (NVL72)", "blackwell", 2500, 5000, 15000, 298013687808, 8000, 900, 450, 800,
       4, 72, true, "vendor data sheet; host link is NVLink-C2C, NVLink domain 72; from memory"},
      {"h100-80g", "H100-SXM5-80GB", "hopper", 989, 1979, 0, 85520809984, 3350, 450, 63, 400, 8, 8,
       false, "vendor data sheet; measured matmul maximum 795 (bf16) / 1403 (fp8) TFLOP/s"},
      {"h100-96g", "H100 96GB HBM2e, 500 W", "hopper", 989, 1979, 0, 102625181696, 2400, 450, 63,
       400, 8, 8, true,
       "stated by the torchtitan benchmark page: HBM2e 2.4 TB/s, 500 W limit; peaks are the SXM5 "
       "ones and are not reached at 500 W",
       0.8},
      {"h100-pcie", "H100-PCIe-80GB", "hopper", 756, 1513, 0, 85520809984, 2000, 300, 63, 100, 8, 2,
       false, "vendor data sheet (dense); NVLink only as a bridge between two cards"},
      {"h20", "H20-96GB", "hopper", 148, 296, 0, 102625181696, 4000, 450, 63, 400, 8, 8, true,
       "from memory"},
      {"h200", "H200-SXM-141GB", "hopper", 989, 1979, 0, 150754820096, 4800, 450, 63, 400, 8, 8,
       false, "vendor data sheet; measured fp8 maximum 1453 TFLOP/s"},
      {"h800", "H800-SXM-80GB", "hopper", 989, 1979, 0, 85520809984, 3350, 200, 63, 400, 8, 8, true,
       "H100 with NVLink cut to 200 GB/s one way; from memory"},
      {"l20", "L20-48GB", "ada", 119.5, 239, 0, 48305799168, 864, 0, 31, 100, 8, 1, true,
       "from memory; no NVLink"},
      {"l40s", "L40S-48GB", "ada", 362, 733, 0, 48305799168, 864, 0, 31, 100, 8, 1, false,
       "vendor data sheet (dense); no NVLink"},
      {"rtx3090", "GeForce RTX 3090-24GB", "ampere", 71, 0, 0, 25769803776, 936, 0, 31, 10, 1, 1,
       false, "vendor data sheet (dense, 32-bit accumulation); optional bridge left out"},
      {"rtx4090", "GeForce RTX 4090-24GB", "ada", 165.2, 330.3, 0, 25757220864, 1008, 0, 31, 10, 1,
       1, false, "vendor data sheet (dense, 32-bit accumulation); no NVLink"},
      {"this-machine", "CPU socket", "cpu", 1, 0, 0, 17179869184, 20, 0, 16, 10, 1, 1, true,
       "nominal values of a modest socket; a profile replaces them"},
      {"v100-32g", "V100-SXM2-32GB", "volta", 125, 0, 0, 34089205760, 900, 150, 16, 100, 8, 8,
       false, "vendor data sheet; the 16-bit peak is fp16: no bfloat16 tensor cores"}};
}

}  // namespace

const std::vector<GpuSpec>& gpu_catalogue() {
  static const std::vector<GpuSpec> catalogue = make_catalogue();
  return catalogue;
}

}  // namespace braid
