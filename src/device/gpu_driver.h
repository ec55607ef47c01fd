// What CUDA's driver says of a GPU, without CUDA's headers or libraries at build time. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace braid::inline device {

struct DriverGpu {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int64_t memory_bytes = 0;
};

// The GPU of that number among those that this process may use; none where there is no driver or no
// such GPU.
std::optional<DriverGpu> driver_gpu(int64_t index);

}  // namespace braid::inline device
