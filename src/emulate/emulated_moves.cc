// What passes beside computation on an emulated rank, and when it has ended: reallocations, loads
// and offloads. A reallocation is the runtime's own run of its messages (weights/reallocate.h),
// which begins each in the plan's order and lets relays wait, over weights that have no values; its
// carrier gives messages to the links.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "comm/channels.h"
#include "emulate/emulated_rank.h"
#include "weights/reallocate.h"

namespace braid::inline emulate {
namespace {

// What both sides know of a message of weights.
int64_t identity_of(const Message& message) {
  uint64_t out = mix_seed(static_cast<uint64_t>(message.slot) + 1, message.depth);
  for (const MessagePart& part : message.parts)
    for (const int64_t number :
         {int64_t{part.item}, part.layers.begin, part.layers.end, part.units.begin, part.units.end})
      out = mix_seed(out, static_cast<uint64_t>(number));
  return static_cast<int64_t>(out >> 1);
}

}  // namespace

// Weights without values: tensors of them have sizes and no memory.
class EmulatedRank::NoWeights : public ElementStore {
 public:
  at::TensorOptions options() const override {
    return at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta);
  }
  at::Tensor span(int32_t, int64_t, const Interval& elements) const override {
    return at::empty({elements.size()}, options());
  }
  void read(int32_t, int64_t, const Interval&, const at::Tensor&) const override {}
  void write(int32_t, int64_t, const Interval&, const at::Tensor&) override {}
};

// An instruction that has ended, or passes beside computation until then. A release takes no time.
Result<int64_t> EmulatedRank::end_of(int32_t instruction) {
  if (list()[instruction].kind == OpKind::kRelease) return move_ready(instruction);
  if (const auto open = under_way_.find(instruction); open != under_way_.end()) {
    const Finish finish = std::move(open->second);
    under_way_.erase(open);
    BRAID_ASSIGN(ends_[instruction], finish());
  }
  const auto ended = ends_.find(instruction);
  if (ended != ends_.end()) return ended->second;
  return invalid_input(cat("instruction ", instruction_, " waits for instruction ", instruction,
                           ", which has not begun"));
}

Result<int64_t> EmulatedRank::latest(const std::vector<InstructionId>& after) {
  int64_t out = 0;
  for (const InstructionId before : after) {
    BRAID_ASSIGN(const int64_t end_ns, end_of(before.value));
    out = std::max(out, end_ns);
  }
  return out;
}

// What moves at the begin of a step waits for the step's data, as in the simulator.
Result<int64_t> EmulatedRank::move_ready(int32_t instruction) {
  BRAID_ASSIGN(int64_t ready, latest(list()[instruction].after));
  if (const auto fetched = ends_.find(fetched_); fetched != ends_.end())
    ready = std::max(ready, fetched->second);
  return ready;
}

Status EmulatedRank::begin_ahead(const Instruction& instruction) {
  if (instruction.kind == OpKind::kReallocate && prices_.moves_slices(instruction.detail))
    return ok_status();  // in this device's own time
  return begin_move(index_of(instruction));
}

Status EmulatedRank::wait_for(const Instruction& instruction) {
  BRAID_ASSIGN(const int64_t end_ns, end_of(index_of(instruction)));
  device_ns_ = std::max(device_ns_, end_ns);
  return ok_status();
}

Status EmulatedRank::begin_move(int32_t index) {
  if (!begun_moves_.insert(index).second) return ok_status();
  if (fetched_ < 0 || ends_.count(fetched_) > 0) return begin_move_at(index, device_ns_);
  waiting_moves_[index] = device_ns_;
  return ok_status();
}

Status EmulatedRank::begin_waiting_moves() {
  for (const auto& [index, begun_ns] : waiting_moves_) BRAID_TRY(begin_move_at(index, begun_ns));
  waiting_moves_.clear();
  return ok_status();
}

Status EmulatedRank::begin_move_at(int32_t index, int64_t begun_ns) {
  BRAID_ASSIGN(const int64_t ready, move_ready(index));
  const int64_t ready_ns = std::max(begun_ns, ready);
  return list()[index].kind == OpKind::kReallocate ? begin_reallocation(index, ready_ns)
                                                   : begin_state_move(index, ready_ns);
}

// Loads and offloads wait for each other at the link to the host alone.
Status EmulatedRank::begin_state_move(int32_t index, int64_t ready_ns) {
  const auto moved = prices_.state_move(work_.rank, index);
  const uint64_t key = transfer_key({kHostMove, work_.rank.value, index});
  const Fabric::Transfer said{
      1, 1, clock_.length_ns(moved.seconds), index, {port_of(work_.rank, TrackKind::kHostLink)}};
  BRAID_TRY(fabric_.come(key, ready_ns, &said));
  under_way_[index] = [this, index, key, moved]() -> Result<int64_t> {
    BRAID_ASSIGN(const Fabric::Span span, fabric_.await(key));
    TraceEvent event;
    event.kind = list()[index].kind == OpKind::kLoad ? EventKind::kLoad : EventKind::kOffload;
    event.track = TrackKind::kHostLink, event.call = list()[index].call, event.bytes = moved.bytes;
    event.instruction = index, event.peer = work_.rank;
    if (moved.seconds > 0) trace_.note(event, span);
    return span.end_ns;
  };
  return ok_status();
}

// This rank's side.
EmulatedLinks::Message EmulatedRank::weight_message(int32_t index, size_t number) const {
  const int32_t entry = list()[index].detail;
  const Message& message = program_.reallocations[entry].messages[number];
  EmulatedLinks::Message out;
  out.sends = message.from == work_.rank;
  out.peer = out.sends ? message.to : message.from;
  out.channel = kFirstWeightChannel + entry;
  out.bytes = message.bytes;
  out.what = identity_of(message);
  out.order = (int64_t{entry} << 24) + static_cast<int64_t>(number);
  out.meets = true;
  out.event = EventKind::kReallocation, out.call = list()[index].call;
  out.name = cat("weights, message ", number, " of reallocation ", entry);
  return out;
}

void EmulatedRank::note_reallocation(int32_t index) {
  const auto& messages = program_.reallocations[list()[index].detail].messages;
  for (const Message& message : messages) {
    const bool sends = message.from == work_.rank;
    if (sends || message.to == work_.rank)
      note_message(sends, sends ? message.to : message.from,
                   kFirstWeightChannel + list()[index].detail, message.bytes);
  }
}

class EmulatedRank::WeightCarrier : public MessageCarrier {
 public:
  // `ready_ns`: since when the rank is ready for what begins.
  WeightCarrier(EmulatedRank& rank, int32_t index, int64_t* ready_ns)
      : rank_(rank), index_(index), ready_ns_(ready_ns) {}

  DeviceId rank() const override { return rank_.work_.rank; }
  Pending send(const Message& message, const at::Tensor&, const std::string&) override {
    return begin(message);
  }
  Pending receive(const Message& message, const at::Tensor&, const std::string&) override {
    return begin(message);
  }

 private:
  // What was waited for before is over. A message passes as one, whatever pieces it travels in.
  Pending begin(const Message& message) {
    const auto& messages = rank_.program_.reallocations[rank_.list()[index_].detail].messages;
    const auto number = static_cast<size_t>(&message - messages.data());
    if (!begun_.insert(number).second) return {};
    return rank_.links_->begin(
        rank_.weight_message(index_, number), *ready_ns_,
        [ready_ns = ready_ns_](int64_t end_ns) { *ready_ns = std::max(*ready_ns, end_ns); });
  }

  EmulatedRank& rank_;
  const int32_t index_;
  int64_t* const ready_ns_;
  std::set<size_t> begun_;  // messages
};

struct EmulatedRank::Reallocating {
  Reallocating(EmulatedRank& rank, int32_t index, int64_t ready)
      : ready_ns(ready),
        run(rank.program_.reallocations[rank.list()[index].detail].messages, &weights, &weights,
            std::make_unique<WeightCarrier>(rank, index, &ready_ns), ReallocateOptions()) {}

  NoWeights weights;
  int64_t ready_ns;
  ReallocationRun run;
};

EmulatedRank::~EmulatedRank() = default;

Status EmulatedRank::begin_reallocation(int32_t index, int64_t ready_ns) {
  Reallocating* const begun =
      reallocating_.emplace_back(std::make_unique<Reallocating>(*this, index, ready_ns)).get();
  BRAID_TRY(begun->run.start({}));
  under_way_[index] = [begun]() -> Result<int64_t> {
    BRAID_TRY(begun->run.finish());
    return begun->ready_ns;
  };
  return ok_status();
}

}  // namespace braid::inline emulate
