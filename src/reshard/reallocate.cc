#include "reshard/reallocate.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/text.h"
#include "host/work_section.h"

namespace braid {
namespace {

// Pieces of at least so many bytes travel alone, from and into their places where those lie in one
// run; smaller ones of a message share a buffer. Both sides cut a message alike.
constexpr int64_t kAlone_bytes = 64 << 10;

// A part of one layer.
struct Piece {
  const MessagePart* part = nullptr;
  int64_t layer = 0;
  int64_t size() const { return part->units.size(); }
};

// What of a message travels together.
std::vector<std::vector<Piece>> transfers_of(const Message& message, int64_t item_bytes) {
  std::vector<std::vector<Piece>> out(1);
  for (const MessagePart& part : message.parts)
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
      const Piece piece{&part, layer};
      if (piece.size() * item_bytes >= kAlone_bytes) {
        out.push_back({piece});
      } else {
        out[0].push_back(piece);
      }
    }
  if (out[0].empty()) out.erase(out.begin());
  return out;
}

int64_t elements_of(const std::vector<Piece>& pieces) {
  int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.size();
  return sum;
}

// Calls visit(piece, its place in the buffer).
template <typename Visit>
void each_place(const std::vector<Piece>& pieces, const at::Tensor& buffer, const Visit& visit) {
  int64_t offset = 0;
  for (const Piece& piece : pieces) {
    visit(piece, buffer.narrow(0, offset, piece.size()));
    offset += piece.size();
  }
}

// The elements where they are one run of memory in the store, else undefined.
at::Tensor whole_span(const std::vector<Piece>& pieces, const ElementStore& store) {
  if (pieces.size() != 1) return {};
  return store.span(pieces[0].part->item, pieces[0].layer, pieces[0].part->units);
}

class Reallocation {
 public:
  Reallocation(const ElementStore* from, ElementStore* to, Communicator& group,
               const ReallocateOptions& options)
      : from_(from),
        to_(to),
        group_(group),
        options_(options),
        buffers_((to != nullptr ? static_cast<const ElementStore*>(to) : from)->options()) {}

  // In the plan's order, which is the same on all ranks: the earliest message that is not through
  // is never held up by a later one.
  Status run(const std::vector<Message>& messages) {
    const int64_t self = group_.members()[group_.index()];
    for (const Message& message : messages) {
      if (message.from.value != self && message.to.value != self) continue;
      for (std::vector<Piece>& pieces : transfers_of(message, item_bytes())) {
        const bool sends = message.from.value == self;
        BRAID_TRY(sends ? send(message, std::move(pieces)) : receive(message, std::move(pieces)));
      }
    }
    return wait_until(0);
  }

  void keep(const std::vector<MessagePart>& kept) {
    const WorkSection section;
    for (const MessagePart& part : kept)
      for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
        const at::Tensor place = to_->span(part.item, layer, part.units);
        const at::Tensor values =
            place.defined() ? place : at::empty({part.units.size()}, buffers_);
        from_->read(part.item, layer, part.units, values);
        if (!place.defined()) to_->write(part.item, layer, part.units, values);
        report_.copied_bytes += part.units.size() * item_bytes();
      }
  }

  const ReallocateReport& report() const { return report_; }

 private:
  struct UnderWay {
    std::vector<Piece> pieces;
    bool arrives = false;
    bool staged = false;
    at::Tensor data;
    Pending pending;
  };

  int64_t item_bytes() const { return static_cast<int64_t>(buffers_.dtype().itemsize()); }

  std::string name_of(const Message& message) const {
    return cat("weights, slot ", message.slot, ", ", message.parts.size(), " parts from kind ",
               message.parts[0].item);
  }

  Status send(const Message& message, std::vector<Piece> pieces) {
    // What a relay passes on has arrived before.
    if (message.depth > 0) BRAID_TRY(wait_for_arrivals());
    const ElementStore& store = message.depth > 0 ? *to_ : *from_;
    UnderWay next{std::move(pieces), false, false, {}, {}};
    next.data = whole_span(next.pieces, store);
    if (!next.data.defined()) {
      BRAID_TRY(stage(&next));
      const WorkSection section;
      each_place(next.pieces, next.data, [&](const Piece& piece, const at::Tensor& place) {
        store.read(piece.part->item, piece.layer, piece.part->units, place);
      });
    }
    next.pending = group_.send(next.data, message.to.value, options_.channel, name_of(message));
    report_.sent_bytes += next.data.numel() * item_bytes();
    under_way_.push_back(std::move(next));
    return {};
  }

  Status receive(const Message& message, std::vector<Piece> pieces) {
    UnderWay next{std::move(pieces), true, false, {}, {}};
    next.data = whole_span(next.pieces, *to_);
    if (!next.data.defined()) BRAID_TRY(stage(&next));
    next.pending =
        group_.receive(next.data, message.from.value, options_.channel, name_of(message));
    report_.received_bytes += next.data.numel() * item_bytes();
    under_way_.push_back(std::move(next));
    return {};
  }

  // A buffer for what travels, once there is room for it.
  Status stage(UnderWay* next) {
    const int64_t elements = elements_of(next->pieces), bytes = elements * item_bytes();
    BRAID_TRY(wait_until(std::max<int64_t>(0, options_.staging_bytes - bytes)));
    next->staged = true;
    next->data = at::empty({elements}, buffers_);
    staged_bytes_ += bytes;
    report_.largest_staging_bytes = std::max(report_.largest_staging_bytes, staged_bytes_);
    return {};
  }

  Status wait_until(int64_t staged_bytes) {
    while (!under_way_.empty() && (staged_bytes == 0 || staged_bytes_ > staged_bytes))
      BRAID_TRY(finish_first());
    return {};
  }

  Status wait_for_arrivals() {
    while (std::any_of(under_way_.begin(), under_way_.end(),
                       [](const UnderWay& each) { return each.arrives; }))
      BRAID_TRY(finish_first());
    return {};
  }

  Status finish_first() {
    UnderWay first = std::move(under_way_.front());
    under_way_.pop_front();
    BRAID_TRY(first.pending.wait());
    if (!first.staged) return {};
    staged_bytes_ -= first.data.numel() * item_bytes();
    if (!first.arrives) return {};
    const WorkSection section;
    each_place(first.pieces, first.data, [&](const Piece& piece, const at::Tensor& place) {
      to_->write(piece.part->item, piece.layer, piece.part->units, place);
    });
    return {};
  }

  const ElementStore* from_;
  ElementStore* to_;
  Communicator& group_;
  const ReallocateOptions& options_;
  const at::TensorOptions buffers_;  // of the same dtype and device as the stores
  std::deque<UnderWay> under_way_;
  int64_t staged_bytes_ = 0;
  ReallocateReport report_;
};

}  // namespace

Result<ReallocateReport> reallocate(const std::vector<Message>& messages,
                                    const std::vector<MessagePart>& kept, const ElementStore* from,
                                    ElementStore* to, Communicator& group,
                                    const ReallocateOptions& options) {
  if (from == nullptr && to == nullptr) return ReallocateReport{};
  Reallocation work(from, to, group, options);
  // Before anything arrives: old and new may share memory only where they hold the same.
  work.keep(kept);
  BRAID_TRY(work.run(messages));
  return work.report();
}

}  // namespace braid
