#include "device/gpu_driver.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>

namespace braid::inline device {
namespace {

// Of the CUDA driver API: every call returns 0 where it succeeds (CUresult); a device is an int.
struct Driver {
  int (*init)(unsigned flags);
  int (*get)(int* device, int ordinal);
  int (*name)(char* name, int length, int device);
  int (*memory)(size_t* bytes, int device);
};

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

// The library stays loaded: CUDA uses it to the end of the process.
std::optional<Driver> load_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  Driver out{};
  if (library == nullptr || !find(library, "cuInit", &out.init) ||
      !find(library, "cuDeviceGet", &out.get) || !find(library, "cuDeviceGetName", &out.name) ||
      !find(library, "cuDeviceTotalMem_v2", &out.memory))
    return std::nullopt;
  return out.init(0) == 0 ? std::optional(out) : std::nullopt;
}

}  // namespace

std::optional<DriverGpu> driver_gpu(int64_t index) {
  static const std::optional<Driver> driver = load_driver();
  int device = 0;
  std::array<char, 256> name{};
  size_t bytes = 0;
  if (!driver || driver->get(&device, static_cast<int>(index)) != 0 ||
      driver->name(name.data(), static_cast<int>(name.size()), device) != 0 ||
      driver->memory(&bytes, device) != 0)
    return std::nullopt;
  return DriverGpu{name.data(), static_cast<int64_t>(bytes)};
}

}  // namespace braid::inline device
