// Messages between the stages of a call on an emulated rank: the runtime's own
// (passes/stage_messages.h), over links. And the real calls of a step.
#include <algorithm>

#include "base/rng.h"
#include "base/text.h"
#include "emulate/emulated_rank.h"
#include "program/fused.h"

namespace braid::inline emulate {
namespace {

// Messages of the lists come first; then call by call and part by part, each with room for its ops.
constexpr int kPartShift = 24, kCallShift = 32;

// Messages of a channel of a call in their order: what both sides know of one.
int64_t identity_of(const EmulatedCall& work, const Op& op) {
  uint64_t out =
      mix_seed(static_cast<uint64_t>(work.id.value) + 1, static_cast<uint64_t>(op.channel));
  for (const int32_t number :
       {static_cast<int32_t>(work.part), op.cut, op.minibatch, op.micro_batch})
    out = mix_seed(out, static_cast<uint64_t>(int64_t{number}));
  return static_cast<int64_t>(out >> 1);
}

}  // namespace

// What a stage sends goes when it is there. Who computes with what it receives waits for it by the
// clock.
class EmulatedRank::StageLinks : public StageCarrier {
 public:
  StageLinks(EmulatedRank& rank, EmulatedCall& work) : rank_(rank), work_(work) {}

  Pending send(const Op& op, const at::Tensor&, int32_t channel, const std::string& name) override {
    return begin(op, channel, name);
  }
  Pending receive(const Op& op, const at::Tensor&, int32_t channel,
                  const std::string& name) override {
    return begin(op, channel, name);
  }

 private:
  Pending begin(const Op& op, int32_t channel, const std::string& name) {
    const auto index = static_cast<int32_t>(&op - work_.ops.ops.data());
    int64_t& end = work_.ends[index];
    end = 0;
    for (const int32_t before : op.after)
      if (before >= 0) end = std::max(end, work_.ends[before]);
    EmulatedLinks::Message message;
    message.sends = op.kind == OpKind::kSend;
    message.peer = op.peer, message.channel = channel, message.bytes = op.bytes;
    message.what = identity_of(work_, op);
    message.order = (int64_t{work_.id.value + 1} << kCallShift) +
                    (static_cast<int64_t>(work_.part) << kPartShift) + index;
    message.event = EventKind::kPipeline, message.call = work_.id;
    message.name = cat(rank_.call(work_.id).name, ", ", name);
    return rank_.links_->begin(message, end, [&end](int64_t end_ns) { end = end_ns; });
  }

  EmulatedRank& rank_;
  EmulatedCall& work_;
};

void EmulatedRank::open_stages(EmulatedCall* work) {
  StageMessages stages(std::make_unique<StageLinks>(*this, *work));
  if (place_in_pair(program_, work->id).second()) stages.run_beside_another();
  stages_.insert_or_assign({work->id, work->part}, std::move(stages));
}

Status EmulatedRank::prepare() {
  BRAID_ASSIGN(everyone_, world_.everyone());
  links_.emplace(world_, *everyone_, fabric_, prices_, trace_);
  make_fields();
  note_gathers();
  for (size_t i = 0; i < list().size(); ++i)
    if (list()[i].kind == OpKind::kReallocate) note_reallocation(static_cast<int32_t>(i));
  for (auto& [at, work] : work_.calls) note_call(work);
  return ok_status();
}

void EmulatedRank::note_message(bool sends, DeviceId peer, int32_t channel, double bytes) {
  const DeviceId from = sends ? work_.rank : peer, to = sends ? peer : work_.rank;
  calls_.note_message({sends ? 1 : 0, peer.value, channel}, prices_.link(from, to, bytes).seconds);
}

void EmulatedRank::note_call(const EmulatedCall& work) {
  note_ops(work, work.ops, work.seconds);
  for (const EmulatedCall::Round& round : work.rounds)
    note_ops(work, round.ops, std::vector<double>(round.ops.ops.size(), round.seconds));
  for (const Op& op : work.ops.ops)
    if (op.kind == OpKind::kSend || op.kind == OpKind::kReceive)
      note_message(op.kind == OpKind::kSend, op.peer, static_cast<int32_t>(op.channel), op.bytes);
}

// The ops of a list that make a real call, with their prices.
void EmulatedRank::note_ops(const EmulatedCall& work, const Expansion& ops,
                            const std::vector<double>& seconds) {
  for (size_t i = 0; i < ops.ops.size(); ++i) {
    const Op& op = ops.ops[i];
    std::vector<const Communicator*> groups;
    for (const InsideCall& inside : calls_inside(work.groups, ops, op))
      groups.push_back(inside.group);
    if (op.group >= 0)
      if (const Communicator* own = work.groups.of(ops.groups[op.group].kind); own != nullptr)
        groups.push_back(own);
    calls_.note(seconds[i], std::move(groups));
  }
}

}  // namespace braid::inline emulate
