// What tensors in host memory hold: an allocator under all of libtorch that counts. Exact where the
// resident size of a process is not, since freed memory stays with the process. Thread-safe.
#pragma once

#include <cstdint>

namespace braid {

// From here on every tensor of the host is counted. Once per process, before the first tensor;
// later calls do nothing.
void count_tensor_memory();

// Bytes that tensors hold now, and the most since the last reset; 0 where nothing counts.
int64_t tensor_bytes();
int64_t peak_tensor_bytes();
void reset_peak_tensor_bytes();

}  // namespace braid
