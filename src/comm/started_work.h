// A transfer that has been started, as communicators and who waits for one know it. Not
// thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "comm/communicator.h"

namespace braid::inline comm {

// Tensors on their way: themselves where the backend reaches the device that they lie on, else
// copies in host memory.
struct Passage {
  bool direct = false;  // the backend reaches all of them

  // A result that lies in host memory, and where it belongs.
  struct Arrival {
    at::Tensor from, to;
  };
  std::vector<at::Tensor> held;  // until the transfer is done
  std::vector<Arrival> arrivals;

  at::Tensor given(const at::Tensor& tensor);
  at::Tensor taken(const at::Tensor& tensor);
  at::Tensor changed(const at::Tensor& tensor);
  void arrive();
};

// Whom transfers are with, and how messages name them. The collectives of a group share one, made
// when the group was: a call does not list its members.
struct TransferPeers {
  TransferPeers(std::vector<int64_t> ranks, const std::string& group);
  const std::vector<int64_t> ranks;
  const std::string text;  // "rank 3 (group everyone)"
};

struct StartedWork {
  c10::intrusive_ptr<c10d::Work> work;
  Passage passage;
  Status failed;  // starting failed
  CommunicatorContext context;
  Transfer transfer = Transfer::kCount;
  std::string tensor;
  std::shared_ptr<const TransferPeers> with;
  std::chrono::steady_clock::time_point started;
  bool followed = false;  // a device makes it, and waiting for it does not hold the host up

  bool is_message() const { return transfer == Transfer::kSend || transfer == Transfer::kReceive; }
  bool is_late() const;  // its deadline has passed
};

// "receive of weights, slot 2 with rank 3 (group everyone)".
std::string operation_text(const StartedWork& work);
// The failure of a transfer, with where everybody is: that it did not come within its deadline, or
// another cause.
Status transfer_failure(const StartedWork& work, const std::string& cause, bool late);

}  // namespace braid::inline comm
