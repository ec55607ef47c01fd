// What tensors hold: of host memory by an allocator under all of libtorch that counts and may have
// a limit, of an accelerator as its allocator says. Exact where the resident size of a process is
// not, since freed memory stays with the process. Thread-safe but for the limit and PeakMeter.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace braid::inline device {

// From here on every tensor of the host is counted. Once per process, before the first tensor;
// later calls do nothing.
void count_tensor_memory();

// Bytes that tensors of the host hold now, and the most since the last reset; 0 where nothing
// counts.
int64_t tensor_bytes();
int64_t peak_tensor_bytes();
void reset_peak_tensor_bytes();

// From here on an allocation by which tensors of the host would hold more bytes throws
// c10::OutOfMemoryError, as that of an accelerator without room does; 0: there is no limit.
// REQUIRES: count_tensor_memory().
void set_tensor_memory_limit(int64_t bytes);
int64_t tensor_memory_limit();

// Bytes that tensors of a device hold now, and the most since the last reset, whatever meters began
// and ended meanwhile; 0 where nothing counts.
int64_t held_tensor_bytes(at::Device device);
int64_t peak_tensor_bytes(at::Device device);
void reset_peak_tensor_bytes(at::Device device);

// Bytes that tensors may still take on a device; none where nobody knows, as on a host without a
// limit.
std::optional<int64_t> free_tensor_bytes(at::Device device);

// Whether an exception of libtorch or std says that memory ran out.
bool is_out_of_memory(const std::exception& error);
// What such an exception says in one line.
std::string what_ran_out(const std::exception& error);

// How far what tensors of a device hold rises from the meter's begin on. Meters may lie within each
// other; the most since the last reset stays known.
class PeakMeter {
 public:
  explicit PeakMeter(at::Device device);
  ~PeakMeter();
  PeakMeter(const PeakMeter&) = delete;
  PeakMeter& operator=(const PeakMeter&) = delete;

  int64_t most_bytes() const;  // over what was held at the begin
  int64_t kept_bytes() const;  // what is held now over that; may be negative

 private:
  const at::Device device_;
  int64_t begin_ = 0;   // held then
  int64_t before_ = 0;  // the most since the last reset, until then
};

}  // namespace braid::inline device
