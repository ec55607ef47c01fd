#include "device/device_copy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <unordered_map>

#include "base/status.h"

namespace braid::inline device {
namespace {

// While a piece is on its way the host fills or empties another one.
constexpr int64_t kPieceBytes = int64_t{32} << 20;

at::TensorOptions pinned_options(const at::Tensor& like) {
  return at::TensorOptions(like.scalar_type()).device(at::kCPU).pinned_memory(true);
}

c10::Stream copy_stream(at::Device device) {
  thread_local std::unordered_map<at::Device, c10::Stream> streams;
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return streams.emplace(device, guard.getStreamFromGlobalPool(device)).first->second;
}

int64_t piece_elements(const at::Tensor& tensor) {
  return std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(tensor.itemsize()));
}

// Pieces [begin, begin + count) of a flat tensor, in order.
template <typename Each>
void each_piece(const at::Tensor& flat, const Each& each) {
  const int64_t most = piece_elements(flat);
  for (int64_t begin = 0; begin < flat.numel(); begin += most)
    each(begin, std::min(most, flat.numel() - begin));
}

// Gives the current stream the copies.
void copy_in_pieces(const at::Tensor& host, const at::Tensor& device) {
  const at::Tensor from = host.view({-1}), to = device.view({-1});
  if (host.is_pinned()) {
    to.copy_(from, /*non_blocking=*/true);
    return;
  }
  each_piece(from, [&](int64_t begin, int64_t count) {
    const at::Tensor stage = at::empty({count}, pinned_options(host));
    stage.copy_(from.narrow(0, begin, count));
    to.narrow(0, begin, count).copy_(stage, /*non_blocking=*/true);
  });
}

struct PieceOnItsWay {
  int64_t begin;
  at::Tensor stage;  // pinned
  c10::Event arrived;
};

at::Device numbered(at::Device device) {
  if (device.is_cpu() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

}  // namespace

StartedCopy start_copy(const at::Tensor& host_in, at::Device wanted) {
  BRAID_CHECK(host_in.is_cpu(), "copies to a device start on the host");
  const at::Device device = numbered(wanted);
  if (device.is_cpu()) return {host_in, std::nullopt};
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard on(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream use = guard.getStream(device), side = copy_stream(device);
  const at::Tensor host = host_in.detach().contiguous();
  StartedCopy out;
  const c10::StreamGuard scope(side);
  out.tensor = at::empty(host.sizes(), host.options().device(device).pinned_memory(false));
  copy_in_pieces(host, out.tensor);
  out.copied.emplace(device.type());
  out.copied->record(side);
  // It belongs to the copying stream, but is used on the other.
  guard.recordDataPtrOnStream(out.tensor.storage().data_ptr(), use);
  return out;
}

StartedCopy start_copy_into(const at::Tensor& to, const at::Tensor& host) {
  BRAID_CHECK(host.is_cpu() && !to.is_cpu(), "copies to a device start on the host");
  const at::NoGradGuard no_grad;
  const at::Device device = to.device();
  const c10::DeviceGuard on(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream side = copy_stream(device);
  c10::Event given(device.type());
  given.record(guard.getStream(device));
  given.block(side);
  StartedCopy out{to, std::nullopt};
  const c10::StreamGuard scope(side);
  copy_in_pieces(host.contiguous(), to);
  out.copied.emplace(device.type());
  out.copied->record(side);
  guard.recordDataPtrOnStream(to.storage().data_ptr(), side);
  return out;
}

at::Tensor finish_copy(const StartedCopy& copy) {
  if (copy.copied) {
    const c10::impl::VirtualGuardImpl guard(copy.tensor.device().type());
    copy.copied->block(guard.getStream(copy.tensor.device()));
  }
  return copy.tensor;
}

at::Tensor to_device(const at::Tensor& host, at::Device device) {
  if (host.device() == numbered(device)) return host;
  return finish_copy(start_copy(host, device));
}

at::Tensor to_host(const at::Tensor& tensor_in) {
  if (tensor_in.is_cpu()) return tensor_in;
  const at::NoGradGuard no_grad;
  const at::Device device = tensor_in.device();
  const c10::DeviceGuard on(device);
  const at::Tensor tensor = tensor_in.detach().contiguous();
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream use = guard.getStream(device), side = copy_stream(device);
  c10::Event computed(device.type());
  computed.record(use);
  computed.block(side);
  const c10::StreamGuard scope(side);
  const at::Tensor from = tensor.view({-1});
  if (from.numel() <= piece_elements(from)) {
    const at::Tensor out = at::empty(tensor.sizes(), pinned_options(tensor));
    out.copy_(tensor, /*non_blocking=*/true);
    side.synchronize();
    return out;
  }
  const at::Tensor out = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  const at::Tensor to = out.view({-1});
  std::optional<PieceOnItsWay> last;
  const auto take_last = [&] {
    if (!last) return;
    last->arrived.synchronize();
    to.narrow(0, last->begin, last->stage.numel()).copy_(last->stage);
  };
  each_piece(from, [&](int64_t begin, int64_t count) {
    PieceOnItsWay next{begin, at::empty({count}, pinned_options(tensor)),
                       c10::Event(device.type())};
    next.stage.copy_(from.narrow(0, begin, count), /*non_blocking=*/true);
    next.arrived.record(side);
    take_last();
    last.emplace(std::move(next));
  });
  take_last();
  return out;
}

at::Tensor pinned_for(const at::Tensor& host, at::Device device) {
  if (device.is_cpu() || host.is_pinned()) return host;
  return at::empty(host.sizes(), pinned_options(host)).copy_(host.detach());
}

}  // namespace braid::inline device
