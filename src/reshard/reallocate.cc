#include "reshard/reallocate.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>

#include "base/text.h"

namespace braid {
namespace {

int64_t elements_of(const Message& message) {
  int64_t sum = 0;
  for (const MessagePart& part : message.parts) sum += part.layers.size() * part.units.size();
  return sum;
}

// Calls visit(layer, part, offset of its elements in the message).
template <typename Visit>
void each_piece(const Message& message, const Visit& visit) {
  int64_t offset = 0;
  for (const MessagePart& part : message.parts)
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
      visit(layer, part, offset);
      offset += part.units.size();
    }
}

// The elements of a message that is one run of memory in the store, else undefined.
at::Tensor whole_span(const Message& message, const ElementStore& store) {
  if (message.parts.size() != 1 || message.parts[0].layers.size() != 1) return {};
  const MessagePart& part = message.parts[0];
  return store.span(part.item, part.layers.begin, part.units);
}

class Reallocation {
 public:
  Reallocation(const ElementStore* from, ElementStore* to, Communicator& group,
               const ReallocateOptions& options)
      : from_(from),
        to_(to),
        group_(group),
        options_(options),
        type_((to != nullptr ? static_cast<const ElementStore*>(to) : from)->dtype()) {}

  // In the plan's order, which is the same on all ranks: the earliest message that is not through
  // is never held up by a later one.
  Status run(const std::vector<Message>& messages) {
    const int64_t self = group_.members()[group_.index()];
    for (const Message& message : messages) {
      if (message.from.value == self) BRAID_TRY(send(message));
      if (message.to.value == self) BRAID_TRY(receive(message));
    }
    return wait_until(0);
  }

  void keep(const std::vector<MessagePart>& kept) {
    for (const MessagePart& part : kept)
      for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
        from_->read(part.item, layer, part.units, to_->span(part.item, layer, part.units));
        report_.copied_bytes += part.units.size() * item_bytes();
      }
  }

  const ReallocateReport& report() const { return report_; }

 private:
  struct UnderWay {
    const Message* message = nullptr;
    bool arrives = false;
    bool staged = false;
    at::Tensor data;
    Pending pending;
  };

  int64_t item_bytes() const { return static_cast<int64_t>(c10::elementSize(type_)); }

  std::string name_of(const Message& message) const {
    return cat("weights, slot ", message.slot, ", ", message.parts.size(), " parts from kind ",
               message.parts[0].item);
  }

  Status send(const Message& message) {
    // What a relay passes on has arrived before.
    if (message.depth > 0) BRAID_TRY(wait_for_arrivals());
    const ElementStore& store = message.depth > 0 ? *to_ : *from_;
    UnderWay next{&message, false, false, whole_span(message, store), {}};
    if (!next.data.defined()) {
      BRAID_TRY(stage(message, &next));
      each_piece(message, [&](int64_t layer, const MessagePart& part, int64_t offset) {
        store.read(part.item, layer, part.units, next.data.narrow(0, offset, part.units.size()));
      });
    }
    next.pending = group_.send(next.data, message.to.value, options_.channel, name_of(message));
    report_.sent_bytes += next.data.numel() * item_bytes();
    under_way_.push_back(std::move(next));
    return {};
  }

  Status receive(const Message& message) {
    UnderWay next{&message, true, false, whole_span(message, *to_), {}};
    if (!next.data.defined()) BRAID_TRY(stage(message, &next));
    next.pending =
        group_.receive(next.data, message.from.value, options_.channel, name_of(message));
    report_.received_bytes += next.data.numel() * item_bytes();
    under_way_.push_back(std::move(next));
    return {};
  }

  // A buffer for a message, once there is room for it.
  Status stage(const Message& message, UnderWay* next) {
    const int64_t bytes = elements_of(message) * item_bytes();
    BRAID_TRY(wait_until(std::max<int64_t>(0, options_.staging_bytes - bytes)));
    next->staged = true;
    next->data = at::empty({elements_of(message)}, at::TensorOptions().dtype(type_));
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
    each_piece(*first.message, [&](int64_t layer, const MessagePart& part, int64_t offset) {
      to_->write(part.item, layer, part.units, first.data.narrow(0, offset, part.units.size()));
    });
    return {};
  }

  const ElementStore* from_;
  ElementStore* to_;
  Communicator& group_;
  const ReallocateOptions& options_;
  at::ScalarType type_;
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
