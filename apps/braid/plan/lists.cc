#include "braid/plan/lists.h"

#include <cstdio>

#include "base/text.h"
#include "base/units.h"
#include "cluster/gpu.h"
#include "models/size.h"

namespace braid {
namespace {

std::string link_text(double gbytes_per_s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", gbytes_per_s);
  return gbytes_per_s > 0 ? text : "-";
}

}  // namespace

void list_gpus() {
  std::printf("%-16s %-10s %10s %12s %12s %9s\n", "gpu", "memory", "TFLOP/s", "memory GB/s",
              "NVLink GB/s", "per node");
  for (const GpuSpec& gpu : gpu_catalogue()) {
    if (gpu.architecture == "cpu") continue;
    std::printf("%-16s %-10s %10.0f %12.0f %12s %9d%s\n", gpu.key.c_str(),
                format_bytes(gpu.hbm_bytes).c_str(), gpu.bf16_tflops, gpu.hbm_gbytes_per_s,
                link_text(gpu.nvlink_gbytes_per_s).c_str(), gpu.gpus_per_node,
                gpu.unsure ? "  (a value is not published)" : "");
  }
}

void list_models() {
  std::printf("%-24s %10s %7s %7s %8s\n", "model", "parameters", "layers", "hidden", "experts");
  for (const ModelSize& model : model_catalogue())
    std::printf("%-24s %9.2fB %7lld %7lld %8lld\n", model.name.c_str(),
                static_cast<double>(total_params(model)) * 1e-9,
                static_cast<long long>(model.layers), static_cast<long long>(model.hidden),
                static_cast<long long>(model.experts));
}

}  // namespace braid
