// Messages between the pipeline stages of a call, as the ops of a rank list them (program/op.h). A
// rank receives where its list says, and what it sends goes beside what follows. Real ranks send
// over a channel of the group of all ranks, emulated ones (emulate/) stand-ins over links. Not
// thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "program/op.h"

namespace braid::inline passes {

// The channel of a message between stages; `beside`: its call runs beside another, whose own
// messages travel apart.
int32_t pass_channel(const Op& op, bool beside);

class StageCarrier {
 public:
  virtual ~StageCarrier() = default;
  virtual Pending send(const Op& op, const at::Tensor& data, int32_t channel,
                       const std::string& name) = 0;
  virtual Pending receive(const Op& op, const at::Tensor& room, int32_t channel,
                          const std::string& name) = 0;
};

class StageMessages {
 public:
  // Of the group of all ranks; null for one stage. REQUIRES: it outlives this.
  explicit StageMessages(Communicator* everyone);
  explicit StageMessages(std::unique_ptr<StageCarrier> carrier) : carrier_(std::move(carrier)) {}

  // Another call's passes come between these: messages travel apart from its own.
  void run_beside_another() { beside_ = true; }

  void send(const Op& op, const at::Tensor& data);
  // What comes is there when this returns.
  Status receive(const Op& op, const at::Tensor& room);
  // Waits for what was sent.
  Status finish();

 private:
  std::unique_ptr<StageCarrier> carrier_;
  bool beside_ = false;
  std::list<std::pair<at::Tensor, Pending>> sending_;
};

}  // namespace braid::inline passes
