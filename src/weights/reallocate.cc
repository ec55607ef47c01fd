#include "weights/reallocate.h"

#include <ATen/ops/empty.h>

#include <c10/core/DeviceGuard.h>
#include <algorithm>
#include <deque>
#include <utility>

#include "base/text.h"
#include "host/sha256.h"
#include "host/work_section.h"
#include "nn/tensor_digest.h"

namespace braid::inline weights {

// Calls visit(piece, its place in the buffer).
template <typename Visit>
void ReallocationRun::each_place(const std::vector<MessagePiece>& pieces, const at::Tensor& buffer,
                                 const Visit& visit) {
  int64_t offset = 0;
  for (const MessagePiece& piece : pieces) {
    visit(piece, buffer.narrow(0, offset, piece.units.size()));
    offset += piece.units.size();
  }
}

// The elements where they are one run of memory in the store, else undefined.
at::Tensor ReallocationRun::whole_span(const std::vector<MessagePiece>& pieces,
                                       const ElementStore& store) {
  if (pieces.size() != 1) return {};
  return store.span(pieces[0].item, pieces[0].layer, pieces[0].units);
}

// In the plan's order, which is the same on all ranks: the earliest message that is not through is
// never held up by a later one.
ReallocationRun::ReallocationRun(const std::vector<Message>& messages, const ElementStore* from,
                                 ElementStore* to, Communicator& group,
                                 const ReallocateOptions& options)
    : ReallocationRun(messages, from, to, std::make_unique<GroupCarrier>(group, options.channel),
                      options) {}

ReallocationRun::ReallocationRun(const std::vector<Message>& messages, const ElementStore* from,
                                 ElementStore* to, std::unique_ptr<MessageCarrier> carrier,
                                 const ReallocateOptions& options)
    : from_(from), to_(to), carrier_(std::move(carrier)), options_(options) {
  for (const Message& message : messages)
    if (message.from == carrier_->rank() || message.to == carrier_->rank())
      for (auto& pieces : cut_message(message, item_bytes()))
        left_.push_back({&message, std::move(pieces)});
}

Status ReallocationRun::start(const std::vector<MessagePart>& kept) {
  const WorkSection section;
  if (options_.compare) kept_ = kept;
  for (const MessagePart& part : kept)
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
      const at::Tensor place = to_->span(part.item, layer, part.units);
      const at::Tensor values = place.defined() ? place : at::empty({part.units.size()}, buffers());
      from_->read(part.item, layer, part.units, values);
      if (!place.defined()) to_->write(part.item, layer, part.units, values);
      report_.copied_bytes += part.units.size() * item_bytes();
    }
  while (!left_.empty() && !must_wait(left_.front())) {
    Transfer next = std::move(left_.front());
    left_.pop_front();
    begin(std::move(next));
  }
  if (left_.empty() || !options_.beside) return {};
  thread_ = std::make_unique<MessageThread>([this](MessageThread& self) {
    c10::OptionalDeviceGuard there;
    if (!buffers().device().is_cpu()) there.reset_device(buffers().device());
    in_ = &self;
    Status begun = begin_left();
    in_ = nullptr;
    return begun;
  });
  return {};
}

Status ReallocationRun::begin_left() {
  while (!left_.empty()) {
    Transfer next = std::move(left_.front());
    left_.pop_front();
    BRAID_TRY(make_way(next));
    begin(std::move(next));
  }
  return {};
}

Status ReallocationRun::wait(Pending& pending) {
  return in_ != nullptr ? in_->wait(pending) : pending.wait();
}

Status ReallocationRun::finish() {
  BRAID_TRY(thread_ ? thread_->finish() : begin_left());
  while (!under_way_.empty()) BRAID_TRY(finish_first());
  BRAID_TRY(check_arrived());
  return check_kept();
}

bool ReallocationRun::sends(const Message& message) const {
  return message.from == carrier_->rank();
}

// Where a transfer's elements lie on this rank: what a relay passes on it has received before.
const ElementStore& ReallocationRun::store_of(const Message& message) const {
  return sends(message) && message.depth == 0 ? *from_ : *to_;
}

namespace {

bool overlap(const Interval& a, const Interval& b) { return a.begin < b.end && b.begin < a.end; }

bool have_in_common(const Message& a, const Message& b) {
  for (const MessagePart& x : a.parts)
    for (const MessagePart& y : b.parts)
      if (x.item == y.item && overlap(x.layers, y.layers) && overlap(x.units, y.units)) return true;
  return false;
}

}  // namespace

bool ReallocationRun::waits_for_arrivals(const Message& relayed) const {
  return std::any_of(under_way_.begin(), under_way_.end(), [&](const UnderWay& each) {
    return each.arrives && have_in_common(*each.message, relayed);
  });
}

// Whether what is under way has to end before a transfer begins: what it passes on must have
// arrived, and there must be room for its buffer.
bool ReallocationRun::must_wait(const Transfer& next) const {
  const Message& message = *next.message;
  if (sends(message) && message.depth > 0 && waits_for_arrivals(message)) return true;
  if (under_way_.empty() || whole_span(next.pieces, store_of(message)).defined()) return false;
  const int64_t room = options_.staging_bytes - elements_of(next.pieces) * item_bytes();
  return room <= 0 || staged_bytes_ > room;
}

Status ReallocationRun::make_way(const Transfer& next) {
  while (must_wait(next)) BRAID_TRY(finish_first());
  return {};
}

void ReallocationRun::begin(Transfer transfer) {
  const Message& message = *transfer.message;
  const bool sent = sends(message);
  UnderWay next;
  next.message = &message;
  next.pieces = std::move(transfer.pieces);
  next.arrives = !sent;
  const ElementStore& store = store_of(message);
  next.data = whole_span(next.pieces, store);
  if (!next.data.defined()) {
    const WorkSection section;
    next.staged = true;
    next.data = at::empty({elements_of(next.pieces)}, buffers());
    staged_bytes_ += next.data.numel() * item_bytes();
    report_.largest_staging_bytes = std::max(report_.largest_staging_bytes, staged_bytes_);
    if (sent)
      each_place(next.pieces, next.data, [&](const MessagePiece& piece, const at::Tensor& place) {
        store.read(piece.item, piece.layer, piece.units, place);
      });
  }
  const std::string name = cat("weights, slot ", message.slot, ", ", message.parts.size(),
                               " parts from kind ", message.parts[0].item);
  next.pending =
      sent ? carrier_->send(message, next.data, name) : carrier_->receive(message, next.data, name);
  (sent ? report_.sent_bytes : report_.received_bytes) += next.data.numel() * item_bytes();
  if (options_.compare) begin_digests(message, &next);
  under_way_.push_back(std::move(next));
}

Status ReallocationRun::finish_first() {
  UnderWay first = std::move(under_way_.front());
  under_way_.pop_front();
  BRAID_TRY(wait(first.pending));
  BRAID_TRY(wait(first.digests_come));
  if (first.staged) {
    staged_bytes_ -= first.data.numel() * item_bytes();
    const WorkSection section;
    if (first.arrives)
      each_place(first.pieces, first.data, [&](const MessagePiece& piece, const at::Tensor& place) {
        to_->write(piece.item, piece.layer, piece.units, place);
      });
  }
  first.data.reset();
  if (options_.compare && first.arrives) arrived_.push_back(std::move(first));
  return {};
}

namespace {

// Of what is where: a rank that puts numbers elsewhere than the sender took them from has others.
std::string digest_of(const ElementStore& store, const MessagePiece& piece,
                      const at::Tensor& values) {
  const std::string place = store.name(piece.item, piece.layer, piece.units);
  return sha256_hex(cat(place, "\n", block_digests(values))).substr(0, kDigestDigits);
}

std::string digest_of(const ElementStore& store, const MessagePiece& piece) {
  at::Tensor values = store.span(piece.item, piece.layer, piece.units);
  if (!values.defined()) {
    values = at::empty({piece.units.size()}, store.options());
    store.read(piece.item, piece.layer, piece.units, values);
  }
  return digest_of(store, piece, values);
}

constexpr const char* kAtFault =
    "; the memory, the driver or the network of one of them changes numbers: run without it, and "
    "see that no other program writes to the same devices";

}  // namespace

// Behind what it is of, on the same channel: the sender may come to the end of its run much later.
void ReallocationRun::begin_digests(const Message& message, UnderWay* transfer) {
  const auto count = static_cast<int64_t>(transfer->pieces.size() * kDigestDigits);
  const std::string name = cat("hashes of weights, slot ", message.slot);
  transfer->digests = at::empty({count}, at::kByte);
  if (!sends(message)) {
    transfer->digests_come = carrier_->receive(message, transfer->digests, name);
    return;
  }
  char* to = static_cast<char*>(transfer->digests.mutable_data_ptr());
  const ElementStore& store = store_of(message);
  const WorkSection section;
  each_place(transfer->pieces, transfer->data,
             [&](const MessagePiece& piece, const at::Tensor& at) {
               to = std::copy_n(digest_of(store, piece, at).data(), kDigestDigits, to);
             });
  transfer->digests_come = carrier_->send(message, transfer->digests, name);
}

// When all has arrived: what came later may have been written over what came before.
Status ReallocationRun::check_arrived() const {
  for (const UnderWay& transfer : arrived_) {
    const char* sent = static_cast<const char*>(transfer.digests.const_data_ptr());
    for (const MessagePiece& piece : transfer.pieces) {
      const std::string own = digest_of(*to_, piece), said(sent, kDigestDigits);
      sent += kDigestDigits;
      if (own == said) continue;
      return {Code::kDataLoss,
              cat(to_->name(piece.item, piece.layer, piece.units), ": rank ", carrier_->rank(),
                  " has them with SHA-256 ", own, ", rank ", transfer.message->from,
                  " sent them with SHA-256 ", said, kAtFault)};
    }
  }
  return {};
}

Status ReallocationRun::check_kept() const {
  for (const MessagePart& part : kept_)
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
      const MessagePiece piece{part.item, layer, part.units};
      if (digest_of(*from_, piece) == digest_of(*to_, piece)) continue;
      return {Code::kDataLoss,
              cat(to_->name(piece.item, piece.layer, piece.units), ": rank ", carrier_->rank(),
                  " has them otherwise than in the copy that it "
                  "took them from",
                  kAtFault)};
    }
  return {};
}

std::vector<ListedMessage> digest_messages(const std::vector<Message>& messages, DeviceId rank,
                                           int64_t number_bytes) {
  std::vector<ListedMessage> out;
  for (const Message& message : messages) {
    const bool sent = message.from == rank;
    if (!sent && message.to != rank) continue;
    for (const auto& pieces : cut_message(message, number_bytes))
      out.push_back({sent ? OpKind::kSend : OpKind::kReceive, sent ? message.to : message.from,
                     static_cast<int64_t>(pieces.size() * kDigestDigits)});
  }
  return out;
}

Result<ReallocateReport> reallocate(const std::vector<Message>& messages,
                                    const std::vector<MessagePart>& kept, const ElementStore* from,
                                    ElementStore* to, Communicator& group,
                                    const ReallocateOptions& options) {
  if (from == nullptr && to == nullptr) return ReallocateReport{};
  ReallocateOptions here = options;
  here.beside = false;
  ReallocationRun work(messages, from, to, group, here);
  // Before anything arrives: old and new may share memory only where they hold the same.
  BRAID_TRY(work.start(kept));
  BRAID_TRY(work.finish());
  return work.report();
}

}  // namespace braid::inline weights
