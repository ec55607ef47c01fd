// Copies between the host and an accelerator: through pinned memory, in pieces, on a stream of
// their own, so that they pass beside what the accelerator computes. Every copy of weights, tokens
// and results between the two goes through here. On the CPU nothing is copied. Each thread has its
// own streams.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace braid::inline device {

// A copy on its way to an accelerator.
struct StartedCopy {
  at::Tensor tensor;                 // where it goes; may be used only after finish_copy()
  std::optional<c10::Event> copied;  // empty: it is there
};

// Starts to copy a tensor of the host; `host` may be changed or freed at once unless it is pinned.
StartedCopy start_copy(const at::Tensor& host, at::Device device);

// The same to memory that is there, contiguous and of as many elements: after what the device has
// been given so far, which may still use it. `to` may be used only after finish_copy().
StartedCopy start_copy_into(const at::Tensor& to, const at::Tensor& host);

// Lets what the device is given from here on wait for the copy; the host does not.
at::Tensor finish_copy(const StartedCopy& copy);

// start_copy() and finish_copy(). A tensor that lies there already is returned as it is.
at::Tensor to_device(const at::Tensor& host, at::Device device);

// A copy in host memory, complete on return; contiguous if the tensor lies on an accelerator. A
// tensor of the host is returned as it is.
at::Tensor to_host(const at::Tensor& tensor);

// The same elements in memory that copies to the device may start from without a stop in between;
// the tensor itself where it
// is pinned already or the device is the CPU.
at::Tensor pinned_for(const at::Tensor& host, at::Device device);

}  // namespace braid::inline device
