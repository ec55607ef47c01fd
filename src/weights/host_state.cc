#include "weights/host_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "nn/storage.h"

namespace braid::inline weights {

HostState::HostState(const std::vector<std::pair<int64_t, at::Tensor>>& tensors, CopyThread* copies)
    : copies_(copies) {
  std::map<const c10::StorageImpl*, size_t> known;
  for (const auto& [unit, tensor] : tensors) {
    const c10::Storage& storage = tensor.storage();
    const auto [found, is_new] = known.try_emplace(storage.unsafeGetStorageImpl(), pieces_.size());
    if (is_new) {
      at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false));
      bytes.set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
      pieces_.push_back({bytes, {}});
    }
    pieces_[found->second].units.insert(unit);
  }
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return *a.units.begin() < *b.units.begin();
  });
}

bool HostState::here() const {
  return std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.here; });
}

void HostState::begin_load(int64_t begin, int64_t end) {
  for (Piece& piece : pieces_) {
    const auto first = piece.units.lower_bound(begin);
    if (first != piece.units.end() && *first < end) begin_load(piece);
  }
}

void HostState::begin_load() {
  for (Piece& piece : pieces_) begin_load(piece);
}

void HostState::begin_load(Piece& piece) {
  if (piece.here) return;
  const at::NoGradGuard no_grad;
  const c10::Storage& storage = piece.bytes.storage();
  resize_storage(storage, piece.copy.nbytes());
  if (piece.bytes.is_cpu()) {
    const auto copy = [to = storage.mutable_data(), from = piece.copy.const_data_ptr(),
                       bytes = piece.copy.nbytes()] { std::memcpy(to, from, bytes); };
    if (copies_ != nullptr)
      piece.number = copies_->add(copy);
    else
      copy();
  } else {
    piece.started = start_copy_into(piece.bytes, piece.copy);
  }
  piece.here = piece.coming = true;
  ++coming_;
}

void HostState::wait(int64_t unit) {
  if (coming_ == 0) return;
  for (Piece& piece : pieces_)
    if (piece.units.count(unit) > 0) wait(piece);
}

void HostState::wait() {
  for (Piece& piece : pieces_) wait(piece);
}

void HostState::wait(Piece& piece) {
  if (!piece.coming) return;
  if (piece.number > 0) copies_->wait(std::exchange(piece.number, 0));
  if (piece.started.tensor.defined()) finish_copy(std::exchange(piece.started, StartedCopy()));
  piece.coming = false;
  --coming_;
}

void HostState::offload(bool changed) {
  const at::NoGradGuard no_grad;
  for (Piece& piece : pieces_) {
    if (!piece.here) continue;
    wait(piece);
    const bool copies = changed || !piece.copy.defined();
    if (copies)
      piece.copy = piece.bytes.is_cpu() ? piece.bytes.clone()
                                        : pinned_for(to_host(piece.bytes), piece.bytes.device());
    resize_storage(piece.bytes.storage(), 0);
    piece.here = false;
  }
}

}  // namespace braid::inline weights
