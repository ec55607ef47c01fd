#include "runtime/host_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <set>

#include "device/device_copy.h"
#include "nn/storage.h"

namespace braid {

HostState::HostState(const std::vector<at::Tensor>& tensors) {
  std::set<const c10::StorageImpl*> known;
  for (const at::Tensor& tensor : tensors) {
    const c10::Storage& storage = tensor.storage();
    if (!known.insert(storage.unsafeGetStorageImpl()).second) continue;
    at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false));
    bytes.set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
    pieces_.push_back({bytes, {}});
  }
}

void HostState::load() {
  if (here_) return;
  const at::NoGradGuard no_grad;
  for (const Piece& piece : pieces_) {
    resize_storage(piece.bytes.storage(), piece.copy.nbytes());
    piece.bytes.copy_(to_device(piece.copy, piece.bytes.device()));
  }
  here_ = true;
}

void HostState::offload(bool changed) {
  if (!here_) return;
  const at::NoGradGuard no_grad;
  for (Piece& piece : pieces_) {
    const bool copies = changed || !piece.copy.defined();
    if (copies) piece.copy = piece.bytes.is_cpu() ? piece.bytes.clone() : to_host(piece.bytes);
    resize_storage(piece.bytes.storage(), 0);
  }
  here_ = false;
}

}  // namespace braid
