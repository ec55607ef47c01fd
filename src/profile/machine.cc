#include "profile/machine.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

#include <algorithm>

#include "base/text.h"
#include "device/device_copy.h"
#include "device/gpu_driver.h"
#include "host/machine.h"

namespace braid::inline profile {
namespace {

GpuSpec measured_processor(const ProfileBench& bench, const MachineRates& rates) {
  GpuSpec out = find_gpu("this-machine").value();
  const Processor cpu = processor();
  out.name = cpu.model.empty() ? out.name : cpu.model;
  out.source = cat("measured by braid profile with ", at::get_num_threads(), " threads");
  out.unsure = false;
  const int64_t sharing = bench.everyone == nullptr ? 1 : bench.everyone->size();
  out.hbm_bytes = static_cast<double>(machine_memory().total_bytes / sharing);
  out.bf16_tflops = rates.matmul_tflops;
  out.hbm_gbytes_per_s = rates.memory_gbytes_per_s;
  out.pcie_gbytes_per_s = rates.host_copy_gbytes_per_s;
  return out;
}

// A GPU that nobody published: only what was measured is known. Nothing is known of links.
GpuSpec unknown_gpu(const MachineRates& rates) {
  GpuSpec out;
  out.key = "this-gpu";
  out.name = "GPU";
  out.bf16_tflops = rates.matmul_tflops;
  out.hbm_gbytes_per_s = rates.memory_gbytes_per_s;
  out.unsure = true;
  return out;
}

GpuSpec measured_gpu(int64_t index, const MachineRates& rates) {
  const std::optional<DriverGpu> told = driver_gpu(index);
  const GpuSpec* known =
      told ? gpu_of_driver(told->name, static_cast<double>(told->memory_bytes)) : nullptr;
  GpuSpec out = known != nullptr ? *known : unknown_gpu(rates);
  if (told) {
    out.name = told->name;
    out.hbm_bytes = static_cast<double>(told->memory_bytes);
  }
  out.pcie_gbytes_per_s = rates.host_copy_gbytes_per_s;
  out.source = cat(out.source, out.source.empty() ? "" : "; ", "measured by braid profile");
  return out;
}

}  // namespace

MachineRates measure_rates(const ProfileBench& bench) {
  const bool host = bench.device.is_cpu();
  // Large enough to fill the device; on a processor what fits its time.
  const int64_t side = host ? 1536 : 8192, copied = host ? int64_t{1} << 25 : int64_t{1} << 28;
  // A processor's GEMMs are in f32 whatever the model's type (the catalogue's convention).
  const at::TensorOptions options =
      at::TensorOptions(host ? at::kFloat : bench.dtype).device(bench.device);
  const auto count = static_cast<double>(side), elements = static_cast<double>(copied);
  MachineRates out;
  {
    const at::Tensor a = at::rand({side, side}, options), b = at::rand({side, side}, options);
    out.matmul_tflops = 2.0 * count * count * count / mean_s(bench, [&] { at::mm(a, b); }) / 1e12;
  }
  const auto bytes = static_cast<double>(c10::elementSize(at::kFloat)) * elements;
  const at::Tensor from = at::ones({copied}, options.dtype(at::kFloat));
  const at::Tensor to = at::empty_like(from);
  out.memory_gbytes_per_s = 2.0 * bytes / mean_s(bench, [&] { to.copy_(from); }) / 1e9;
  const at::Tensor source = pinned_for(at::ones({copied}, at::kFloat), bench.device);
  const auto fetch = [&] {
    if (host)
      to.copy_(source);
    else
      finish_copy(start_copy_into(to, source));
  };
  out.host_copy_gbytes_per_s = bytes / mean_s(bench, fetch) / 1e9;
  return out;
}

GpuSpec measured_device(const ProfileBench& bench, const MachineRates& rates) {
  if (bench.device.is_cpu()) return measured_processor(bench, rates);
  return measured_gpu(bench.device.has_index() ? bench.device.index() : 0, rates);
}

}  // namespace braid::inline profile
