// The memory of the test device: one range of addresses that is mapped twice. Tensors hold pointers
// into the first mapping, which no access is allowed to; kernels of the device turn them into
// pointers to the same bytes of the second. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace braid {

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  // A piece of at least `bytes` bytes, aligned to 64; null for 0 bytes. Throws when all is in use.
  void* allocate(size_t bytes);
  void release(void* piece);

  bool holds(const void* pointer) const;
  // The same bytes where kernels may use them. REQUIRES: holds(pointer), or null.
  void* for_kernels(const void* pointer) const;

  int64_t bytes_in_use() const;

 private:
  DeviceMemory();

  uint8_t* front_ = nullptr;
  uint8_t* back_ = nullptr;
  mutable std::mutex mutex_;
  size_t used_ = 0;  // bytes of the range that were ever given out
  int64_t in_use_ = 0;
  std::map<void*, size_t> size_of_;            // of pieces in use
  std::map<size_t, std::vector<void*>> free_;  // by size
};

}  // namespace braid
