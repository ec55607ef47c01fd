// A second device for tests on machines without one: torch's PrivateUse1 key, under the name
// kTestDevice, over memory that the host cannot touch. It shows what a GPU would: an operator whose
// tensors lie on different devices throws, and host code that reads or writes a device tensor
// through a pointer ends the process with a message. Operators run as the CPU's on copies, so their
// results are the CPU's bits. Copies that are asked for without blocking happen when their stream
// is waited for, not before. Thread-safe, but for two threads that use one stream.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace braid {

inline constexpr const char* kTestDevice = "braidtest";
inline constexpr int kTestDevices = 2;

// Registers the device with torch, once in a process however often it is called; gives its first
// one.
at::Device install_test_device();

// The device of the tests that any accelerator can take: the one above, or a real one that
// BRAID_TEST_DEVICE names (cuda).
at::Device tested_device();

// What has happened on the device since the start of the process.
struct TestDeviceCounts {
  int64_t operators = 0;        // run by the CPU on copies
  int64_t blocking_copies = 0;  // between host and device
  int64_t deferred_copies = 0;  // the same, asked for without blocking
  int64_t pinned_bytes = 0;     // of host memory, given out so far
  int64_t bytes_in_use = 0;     // of device memory now
};
TestDeviceCounts test_device_counts();

}  // namespace braid
