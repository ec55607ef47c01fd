// Communication within one group of ranks, over c10d. Ranks are global ranks everywhere; places are
// theirs in the order of the group. All
// members call the collectives of a group in the same order; messages of one pair and channel
// arrive in the order in which they were sent, and must be received in that order with the sizes
// sent. Tensors are contiguous and stay untouched between start and wait(). Several threads may
// begin messages, one begins collectives. A group of one rank copies and sends nothing. Both ends
// of a transfer lie in host memory, or both on a device. Tensors of GPUs travel over NCCL where the
// build has it; what the backend does not reach passes through host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/transfer_count.h"

namespace c10d {
class Backend;
}

namespace braid::inline comm {

class PositionBoard;
class Store;
struct StartedWork;
struct TransferPeers;
struct GroupBackend;

enum class Reduce { kSum, kMax, kMin };

// What went through the c10d calls of one kind: bytes of the tensors that this rank gave to them,
// and of those that it got from them. Not what a backend passes on for others.
struct Traffic {
  int64_t calls = 0;
  int64_t given = 0, received = 0;
};

// An operation that has been started. wait() must be called, once.
class [[nodiscard]] Pending {
 public:
  Pending();  // already done
  explicit Pending(std::unique_ptr<StartedWork> work);
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  // Waits until the tensors may be used again. kDeadline: not in time; kUnavailable: a peer is
  // gone. The message names operation, tensor, peers and where this rank and they are. Over NCCL
  // the host does not wait: what it gives the device from here on comes behind the transfer, and
  // one that fails or is late ends the process through its watchdog, with that message
  // (PositionBoard::settle()).
  Status wait();

 private:
  friend class MessageThread;
  std::unique_ptr<StartedWork> work_;
};

// What all communicators of a process share.
struct CommunicatorContext {
  int64_t global_rank = 0;
  double deadline_s = 300;         // of every wait
  PositionBoard* board = nullptr;  // not owned
  Store* store = nullptr;          // not owned; null in a world of one rank
};

class Communicator {
 public:
  // REQUIRES: `members` are distinct, in the same order on all of them, and hold
  // context.global_rank; a backend unless alone.
  Communicator(std::string name, std::vector<int64_t> members, CommunicatorContext context,
               std::unique_ptr<GroupBackend> backend);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<int64_t>& members() const { return members_; }
  int64_t size() const { return static_cast<int64_t>(members_.size()); }
  // This rank's place among the members.
  int64_t index() const { return index_; }

  // Element-wise over the members, in place; the same bits on every member. `tensor` is the name in
  // messages, here and below.
  Pending all_reduce(const at::Tensor& inout, Reduce reduce, std::string_view tensor);
  // `out` becomes this member's part of the reduction of `in` [size * rows of out, ...].
  Pending reduce_scatter(const at::Tensor& out, const at::Tensor& in, std::string_view tensor);
  // `out` [size * rows of in, ...] becomes the `in` of all members, by place.
  Pending all_gather(const at::Tensor& out, const at::Tensor& in, std::string_view tensor);
  Pending broadcast(const at::Tensor& inout, int64_t root, std::string_view tensor);
  // Rows of dimension 0: in_rows[i] rows of `in` go to member i, out_rows[i] of `out` come from it.
  Pending all_to_all(const at::Tensor& out, const at::Tensor& in, std::vector<int64_t> out_rows,
                     std::vector<int64_t> in_rows, std::string_view tensor);
  Pending send(const at::Tensor& data, int64_t to, int32_t channel, std::string_view tensor);
  Pending receive(const at::Tensor& data, int64_t from, int32_t channel, std::string_view tensor);
  // Returns when every member has called it.
  Status barrier(std::string_view where);

  // Collectives that this rank has begun. The next `calls` of them are not: whoever repeats a piece
  // of work beside ranks that go on has taken part in so many already. Their tensors stay as they
  // are.
  int64_t begun() const { return begun_; }
  void leave_out(int64_t calls) { left_out_ = calls; }
  bool leaves_out() const { return left_out_ > 0; }

  const Traffic& traffic(Transfer transfer) const {
    return traffic_[static_cast<size_t>(transfer)];
  }
  // Bytes sent to each rank by send().
  const std::map<int64_t, int64_t>& sent_bytes() const { return sent_bytes_; }
  void reset_traffic();

 private:
  int place_of(int64_t global_rank) const;
  // None: undefined.
  void count(Transfer transfer, const at::Tensor& given, const at::Tensor& received);
  // What is to be transferred: the name of the tensor, the device that it lies on, the peer (-1:
  // all members) and the lane, as GroupBackend has it.
  struct Order {
    Transfer transfer = Transfer::kCount;
    std::string_view tensor;
    at::Device device = at::kCPU;
    int64_t peer = -1;
    std::string lane = "collectives";
    int32_t channel = -1;
    int64_t bytes = 0;  // TransferKind::bytes
  };
  static Order together(Transfer transfer, std::string_view tensor, const at::Tensor& whole);
  Order message(Transfer transfer, std::string_view tensor, const at::Tensor& data, int64_t peer,
                int32_t channel) const;
  c10d::Backend& backend_of(const Order& order);
  template <typename Start>
  Pending start(const Order& order, const Start& start);

  std::string name_;
  std::vector<int64_t> members_;
  int64_t index_ = 0;
  std::shared_ptr<const TransferPeers> others_;  // all members but this rank
  CommunicatorContext context_;
  std::unique_ptr<GroupBackend> backend_;
  std::array<Traffic, static_cast<size_t>(Transfer::kCount)> traffic_;
  std::map<int64_t, int64_t> sent_bytes_;
  int64_t begun_ = 0;
  int64_t left_out_ = 0;
};

// A failed transfer where only an exception can leave: inside a forward or backward of autograd.
class CommunicationFailure : public std::runtime_error {
 public:
  explicit CommunicationFailure(const Status& status)
      : std::runtime_error(status.message()), status_(status) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

// Waits, and throws CommunicationFailure where that fails.
void wait_or_throw(Pending pending);

}  // namespace braid::inline comm
