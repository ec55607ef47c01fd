#include "passes/stage_messages.h"

#include "base/text.h"
#include "comm/channels.h"

namespace braid::inline passes {
namespace {

std::string name_of(const Op& op) {
  return cat(op.channel == Channel::kActivations ? "hidden states" : "gradients of hidden states",
             " of micro-batch ", op.micro_batch);
}

class GroupStages : public StageCarrier {
 public:
  explicit GroupStages(Communicator& group) : group_(group) {}
  Pending send(const Op& op, const at::Tensor& data, int32_t channel,
               const std::string& name) override {
    return group_.send(data, op.peer.value, channel, name);
  }
  Pending receive(const Op& op, const at::Tensor& room, int32_t channel,
                  const std::string& name) override {
    return group_.receive(room, op.peer.value, channel, name);
  }

 private:
  Communicator& group_;
};

}  // namespace

int32_t pass_channel(const Op& op, bool beside) {
  return static_cast<int32_t>(op.channel) + (beside ? kPassBesideChannel : kPassChannel);
}

StageMessages::StageMessages(Communicator* everyone)
    : carrier_(everyone == nullptr ? nullptr : std::make_unique<GroupStages>(*everyone)) {}

void StageMessages::send(const Op& op, const at::Tensor& data) {
  sending_.emplace_back(data, carrier_->send(op, data, pass_channel(op, beside_), name_of(op)));
}

Status StageMessages::receive(const Op& op, const at::Tensor& room) {
  return carrier_->receive(op, room, pass_channel(op, beside_), name_of(op)).wait();
}

Status StageMessages::finish() {
  for (auto& [data, pending] : sending_) BRAID_TRY(pending.wait());
  sending_.clear();
  return ok_status();
}

}  // namespace braid::inline passes
