// Executes the messages of a reallocation plan (program/reallocation.h) on one rank. All ranks of
// the two meshes call it with equal plans. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/message_thread.h"
#include "program/listed_messages.h"
#include "weights/element_store.h"

namespace braid::inline weights {

struct ReallocateOptions {
  int32_t channel = 0;                  // of all messages; one pair's arrive in the plan's order
  int64_t staging_bytes = 512LL << 20;  // of messages under way on this rank, at least one message
  bool compare = false;  // hashes come with what is sent, and at the end receivers compare them
  bool beside = true;    // what has to wait begins in a thread, else in finish()
};

// Who carries the messages of a run: the group of all ranks, or links of emulated devices
// (emulate/), where times travel in place of values. A transfer is a message, or what of a large
// one travels together. Used by one thread at a time.
class MessageCarrier {
 public:
  virtual ~MessageCarrier() = default;
  virtual DeviceId rank() const = 0;
  virtual Pending send(const Message& message, const at::Tensor& data, const std::string& name) = 0;
  virtual Pending receive(const Message& message, const at::Tensor& data,
                          const std::string& name) = 0;
};

// Over a channel of a group.
class GroupCarrier : public MessageCarrier {
 public:
  // REQUIRES: the group outlives this.
  GroupCarrier(Communicator& group, int32_t channel) : group_(group), channel_(channel) {}
  DeviceId rank() const override {
    return DeviceId{static_cast<int32_t>(group_.members()[group_.index()])};
  }
  Pending send(const Message& message, const at::Tensor& data, const std::string& name) override {
    return group_.send(data, message.to.value, channel_, name);
  }
  Pending receive(const Message& message, const at::Tensor& data,
                  const std::string& name) override {
    return group_.receive(data, message.from.value, channel_, name);
  }

 private:
  Communicator& group_;
  const int32_t channel_;
};

struct ReallocateReport {
  int64_t sent_bytes = 0, received_bytes = 0;
  int64_t copied_bytes = 0;           // inside this rank
  int64_t largest_staging_bytes = 0;  // buffers and messages under way at once
};

// One rank's side of a plan, which may be begun before its end is waited for: what a relay passes
// on goes on as it comes. Plans that are under way at once have channels of their own.
class ReallocationRun {
 public:
  // As reallocate(). REQUIRES: what is referred to outlives the object.
  ReallocationRun(const std::vector<Message>& messages, const ElementStore* from, ElementStore* to,
                  Communicator& group, const ReallocateOptions& options);
  // The same with another carrier, on the rank that it says.
  ReallocationRun(const std::vector<Message>& messages, const ElementStore* from, ElementStore* to,
                  std::unique_ptr<MessageCarrier> carrier, const ReallocateOptions& options);

  // Copies what stays on this rank, then begins messages. Where one has to wait, a relay for what
  // it passes on or for room to stage, a thread begins it and those behind it in time. From here to
  // finish() what is sent must not change and what is received must not be read.
  Status start(const std::vector<MessagePart>& kept);
  // Waits for all. kDeadline, kUnavailable: a message failed; kDataLoss names
  // what is not on this rank as it was sent, and who sent it.
  Status finish();

  // REQUIRES, here and below: finish() has returned.
  const ReallocateReport& report() const { return report_; }
  // What the thread has begun, of which watches of the rank's own know nothing.
  TransferCounts begun_beside() const { return thread_ ? thread_->begun() : TransferCounts(); }

 private:
  // What of a message travels together.
  struct Transfer {
    const Message* message = nullptr;
    std::vector<MessagePiece> pieces;
  };
  struct UnderWay {
    const Message* message = nullptr;
    std::vector<MessagePiece> pieces;
    bool arrives = false;
    bool staged = false;
    at::Tensor data;
    Pending pending;
    // Where hashes are compared: those of the pieces, one after another.
    at::Tensor digests;
    Pending digests_come;
  };

  static at::Tensor whole_span(const std::vector<MessagePiece>& pieces, const ElementStore& store);
  template <typename Visit>
  static void each_place(const std::vector<MessagePiece>& pieces, const at::Tensor& buffer,
                         const Visit& visit);

  // Of the stores' dtype and device.
  at::TensorOptions buffers() const { return to_ != nullptr ? to_->options() : from_->options(); }
  int64_t item_bytes() const { return static_cast<int64_t>(buffers().dtype().itemsize()); }
  bool sends(const Message& message) const;
  const ElementStore& store_of(const Message& message) const;
  bool must_wait(const Transfer& next) const;
  Status make_way(const Transfer& next);
  Status begin_left();
  Status wait(Pending& pending);
  void begin(Transfer transfer);
  bool waits_for_arrivals(const Message& relayed) const;
  Status finish_first();
  void begin_digests(const Message& message, UnderWay* transfer);
  Status check_arrived() const;
  Status check_kept() const;

  const ElementStore* const from_;
  ElementStore* const to_;
  const std::unique_ptr<MessageCarrier> carrier_;
  const ReallocateOptions options_;
  std::deque<Transfer> left_;  // in the plan's order
  std::deque<UnderWay> under_way_;
  // To be compared at the end.
  std::vector<UnderWay> arrived_;
  std::vector<MessagePart> kept_;
  int64_t staged_bytes_ = 0;
  ReallocateReport report_;
  MessageThread* in_ = nullptr;  // the thread, while it works: the members above are its own
  std::unique_ptr<MessageThread> thread_;  // last: it ends before they go
};

// What a reallocation that compares hashes sends and receives beside the listed messages.
std::vector<ListedMessage> digest_messages(const std::vector<Message>& messages, DeviceId rank,
                                           int64_t number_bytes);

// One rank's side: `from` holds its slices under the old layout, `to` takes those under the new one
// (null where the rank has no place in it); `kept` is what the rank copies itself, kept_parts() but
// for what is one memory in both. Ranks are device numbers of the plan. Pieces that lie in one run
// of memory travel without a copy. kDeadline, kUnavailable: a message failed; `to` is then
// incomplete. kDataLoss: as ReallocationRun::finish().
Result<ReallocateReport> reallocate(const std::vector<Message>& messages,
                                    const std::vector<MessagePart>& kept, const ElementStore* from,
                                    ElementStore* to, Communicator& group,
                                    const ReallocateOptions& options);

}  // namespace braid::inline weights
