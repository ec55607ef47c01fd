// Devices by the names that configurations give them. Stateless.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace braid::inline device {

// The device of a text: cpu, or the name of an accelerator with or without a number (cuda, cuda:1;
// also the name of a device that was registered with torch under its key for private use). Without
// one it is the current device of this thread, the first unless use_local_device() chose another.
// Once an accelerator was named, libtorch takes kernels that give the same bits each time, and an
// operator that has none throws.
// Errors name `key`: another text, no such device here, a number too high.
Result<at::Device> parse_device(const std::string& text, const std::string& key);

// Whether so many ranks of this machine can have a device each; always on the CPU. Errors: a text
// with a number, no such device, too few (BRAID_SHARE_GPU=1 in the environment: none at all).
Status check_local_devices(const std::string& text, int64_t ranks);
// Makes the device of a rank's place on its machine the current one of this thread (with
// BRAID_SHARE_GPU=1 counted from the first again where ranks are more); nothing on the CPU. Errors
// as those of check_local_devices().
Status use_local_device(const std::string& text, int64_t local_rank);

// Waits until the device has done all work that it was given; nothing on the CPU.
void finish_work(at::Device device);

}  // namespace braid::inline device
