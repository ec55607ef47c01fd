// What a device is and reaches, for the planner: the part of a profile that knows no model.
#pragma once

#include "cluster/gpu.h"
#include "profile/bench.h"

namespace braid::inline profile {

// Rates that were measured on the device of a bench, in its precision.
struct MachineRates {
  double matmul_tflops = 0;           // a large GEMM, 1e12 operations/s
  double memory_gbytes_per_s = 0;     // a copy within the device, read and written
  double host_copy_gbytes_per_s = 0;  // from host memory to the device
};
MachineRates measure_rates(const ProfileBench& bench);

// The device for the planner. A processor: "this-machine" with the rates as measured, memory shared
// among the ranks that measure. A GPU that the catalogue knows by its driver's name: the
// catalogue's entry, whose peaks the cost model takes shares of, with its own memory and copies.
// Any other GPU: "this-gpu" with the rates as measured.
GpuSpec measured_device(const ProfileBench& bench, const MachineRates& rates);

}  // namespace braid::inline profile
