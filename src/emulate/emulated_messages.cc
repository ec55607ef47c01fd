// What runs beside computation on an emulated rank: messages, loads and offloads, each channel in
// its own lane.
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"
#include "emulate/emulated_rank.h"

namespace braid::inline emulate {
namespace {

constexpr int32_t kFirstChannel = 16;              // below: other users of the group of all ranks
constexpr int64_t kStageOrder = int64_t{1} << 32;  // messages of the lists come first

// Messages of a channel of a call in their order: what both sides know of one.
int64_t stage_message(const EmulatedCall& work, const Op& op) {
  uint64_t out =
      mix_seed(static_cast<uint64_t>(work.id.value) + 1, static_cast<uint64_t>(op.channel));
  for (const int32_t number :
       {static_cast<int32_t>(work.part), op.cut, op.minibatch, op.micro_batch})
    out = mix_seed(out, static_cast<uint64_t>(int64_t{number}));
  return static_cast<int64_t>(out >> 1);
}

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

int32_t EmulatedRank::stage_channel(CallId call, Channel channel) const {
  return kFirstChannel + 4 * call.value + static_cast<int32_t>(channel);
}

Status EmulatedRank::prepare() {
  BRAID_ASSIGN(everyone_, world_.everyone());
  const int32_t first_channel =
      stage_channel(CallId{static_cast<int32_t>(program_.graph.calls.size())}, Channel::kNone);
  for (size_t entry = 0; entry < program_.reallocations.size(); ++entry) {
    const std::vector<Message>& messages = program_.reallocations[entry].messages;
    message_begins_.push_back(std::make_unique<EndTimes>(messages.size()));
    message_ends_.push_back(std::make_unique<EndTimes>(messages.size()));
    for (const Message& message : messages)
      channels_.try_emplace({static_cast<int32_t>(entry), message.depth, message.lane},
                            first_channel + static_cast<int32_t>(channels_.size()));
  }
  add_fields();
  note_gathers();
  for (size_t i = 0; i < list().size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (list()[i].kind == OpKind::kReallocate) add_reallocation(index);
    if (moves_state(list()[i].kind)) add_state_move(index);
  }
  for (auto& [at, work] : work_.calls) {
    if (!work.generates) add_stage_messages(&work);
    note_calls(work, work.ops, work.seconds);
    for (const EmulatedCall::Round& round : work.rounds)
      note_calls(work, round.ops, std::vector<double>(round.ops.ops.size(), round.seconds));
  }
  return ok_status();
}

// A release takes no time.
Result<int64_t> EmulatedRank::end_of(int32_t instruction) const {
  if (list()[instruction].kind == OpKind::kRelease) return messages_ready(instruction);
  if (list()[instruction].kind == OpKind::kReallocate &&
      !prices_.moves_slices(list()[instruction].detail))
    return reallocated_.wait(instruction);
  if (list()[instruction].kind == OpKind::kHandOver) return hand_over_end();
  return ends_.wait(instruction);
}

// What moves at the begin of a step waits for the step's data, as in the simulator.
Result<int64_t> EmulatedRank::messages_ready(int32_t instruction) const {
  BRAID_ASSIGN(const int64_t ready, latest(list()[instruction].after));
  if (fetched_ < 0) return ready;
  BRAID_ASSIGN(const int64_t fetched, ends_.wait(fetched_));
  return std::max(fetched, ready);
}

// Of what passes beside computation and has been begun.
Result<int64_t> EmulatedRank::move_ready(int32_t instruction) const {
  BRAID_ASSIGN(const int64_t begun, begun_moves_.wait(instruction));
  BRAID_ASSIGN(const int64_t ready, messages_ready(instruction));
  return std::max(begun, ready);
}

void EmulatedRank::begin_move(int32_t instruction) {
  if (moving_.insert(instruction).second) begun_moves_.set(instruction, device_ns_);
}

Status EmulatedRank::begin_ahead(const Instruction& instruction) {
  if (instruction.kind == OpKind::kReallocate && prices_.moves_slices(instruction.detail))
    return ok_status();  // in this device's own time
  begin_move(index_of(instruction));
  return ok_status();
}

Status EmulatedRank::wait_for(const Instruction& instruction) {
  BRAID_ASSIGN(const int64_t end_ns, end_of(index_of(instruction)));
  device_ns_ = std::max(device_ns_, end_ns);
  return ok_status();
}

// The ops of a list that make a real call, with their prices.
void EmulatedRank::note_calls(const EmulatedCall& work, const Expansion& ops,
                              const std::vector<double>& seconds) {
  for (size_t i = 0; i < ops.ops.size(); ++i) {
    const Op& op = ops.ops[i];
    PricedCalls calls{seconds[i], {}};
    for (const InsideCall& inside : calls_inside(work.groups, ops, op))
      calls.groups.push_back(inside.group);
    if (op.group >= 0)
      if (const Communicator* own = work.groups.of(ops.groups[op.group].kind); own != nullptr)
        calls.groups.push_back(own);
    if (!calls.groups.empty()) calls_.push_back(std::move(calls));
  }
}

int64_t EmulatedRank::real_calls() const {
  size_t out = 0;
  for (const PricedCalls& calls : calls_) out += calls.groups.size();
  for (const auto& [lane, prices] : lane_prices_) out += prices.size();
  return static_cast<int64_t>(out);
}

double EmulatedRank::least_stretch(const RealSeconds& real, double allowed_s) const {
  const auto real_s = [&](const PricedCalls& calls) {
    double sum = 0;
    for (const Communicator* group : calls.groups) sum += real.collective.at(group);
    return sum;
  };
  const auto beyond_s = [&](double stretch) {
    double sum = 0, busiest = 0;
    for (const PricedCalls& calls : calls_)
      sum += std::max(0.0, real_s(calls) - calls.seconds * stretch);
    for (const auto& [key, prices] : lane_prices_) {
      double lane = 0;
      for (const double price : prices) lane += std::max(0.0, real.message - price * stretch);
      busiest = std::max(busiest, lane);
    }
    return sum + busiest;
  };
  const auto fits = [&](double stretch) { return beyond_s(stretch) <= allowed_s * stretch; };
  double low = 0, high = beyond_s(0) / allowed_s;
  for (int i = 0; i < 40 && high > 0; ++i) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

// Its messages from and to this rank, each in its lane, and one that begins them and waits for
// them.
void EmulatedRank::add_reallocation(int32_t index) {
  const auto& messages = program_.reallocations[list()[index].detail].messages;
  for (size_t number = 0; number < messages.size(); ++number)
    if (messages[number].from == work_.rank || messages[number].to == work_.rank)
      add_message(index, number);
  lanes_.add({kReallocations, index, 0}, [this, index] { return run_reallocation(index); });
}

void EmulatedRank::add_message(int32_t index, size_t number) {
  const int32_t entry = list()[index].detail;
  const Message& message = program_.reallocations[entry].messages[number];
  Side side;
  side.sends = message.from == work_.rank;
  side.peer = side.sends ? message.to : message.from;
  side.channel = channels_.at({entry, message.depth, message.lane});
  side.bytes = message.bytes;
  side.what = identity_of(message);
  side.order = (int64_t{entry} << 24) + static_cast<int64_t>(number);
  side.event.kind = EventKind::kReallocation;
  side.event.call = list()[index].call, side.event.instruction = index;
  side.name = cat("weights, message ", number, " of reallocation ", entry);
  add_lane_task(side, [this, entry, number, side] {
    BRAID_ASSIGN(const int64_t ready, message_begins_[entry]->wait(number));
    BRAID_ASSIGN(const int64_t end_ns, transfer(side, ready));
    message_ends_[entry]->set(number, end_ns);
    return ok_status();
  });
}

void EmulatedRank::add_lane_task(const Side& side, Lanes::Task task) {
  const Lanes::Key lane{side.sends ? kSends : kReceives, side.peer.value, side.channel};
  const DeviceId from = side.sends ? work_.rank : side.peer;
  const DeviceId to = side.sends ? side.peer : work_.rank;
  lane_prices_[lane].push_back(prices_.link(from, to, side.bytes).seconds);
  lanes_.add(lane, std::move(task));
}

// Loads and offloads wait for each other at the link to the host alone.
void EmulatedRank::add_state_move(int32_t index) {
  lanes_.add({kHostMoves, index, 0}, [this, index] {
    BRAID_ASSIGN(const int64_t ready, move_ready(index));
    const auto [bytes, seconds] = prices_.state_move(work_.rank, index);
    const Fabric::Transfer move{
        1, clock_.length_ns(seconds), index, {port_of(work_.rank, TrackKind::kHostLink)}};
    BRAID_ASSIGN(const int32_t slot, fabric_.open(move));
    BRAID_ASSIGN(const Fabric::Span span, fabric_.pass(slot, ready));
    clock_.sleep_until(span.end_ns);
    fabric_.leave(slot);
    ends_.set(index, span.end_ns);
    TraceEvent event;
    event.kind = list()[index].kind == OpKind::kLoad ? EventKind::kLoad : EventKind::kOffload;
    event.track = TrackKind::kHostLink, event.call = list()[index].call, event.bytes = bytes;
    event.instruction = index, event.peer = work_.rank;
    if (seconds > 0) record(event, span.begin_ns, span.end_ns);
    return ok_status();
  });
}

// What a stage sends goes when it is there, and is taken whatever the receiver computes.
void EmulatedRank::add_stage_messages(EmulatedCall* work) {
  for (size_t i = 0; i < work->ops.ops.size(); ++i) {
    const Op& op = work->ops.ops[i];
    if (op.kind != OpKind::kSend && op.kind != OpKind::kReceive) continue;
    Side side;
    side.sends = op.kind == OpKind::kSend;
    side.peer = op.peer;
    side.channel = stage_channel(work->id, op.channel);
    side.bytes = op.bytes;
    side.what = stage_message(*work, op);
    side.order = kStageOrder + (int64_t{work->id.value} << 26) +
                 (static_cast<int64_t>(work->part) << 24) + static_cast<int64_t>(i);
    side.event.kind = EventKind::kPipeline, side.event.call = work->id;
    side.name =
        cat(call(work->id).name, ", ", op.channel == Channel::kActivations ? "" : "gradient of ",
            "activation ", op.cut, " of micro-batch ", op.micro_batch);
    add_lane_task(side, [this, work, i, side] {
      int64_t ready = 0;
      for (const int32_t before : work->ops.ops[i].after) {
        if (before < 0) continue;
        BRAID_ASSIGN(const int64_t end_ns, work->ends->wait(before));
        ready = std::max(ready, end_ns);
      }
      BRAID_ASSIGN(const int64_t end_ns, transfer(side, ready));
      work->ends->set(i, end_ns);
      return ok_status();
    });
  }
}

Result<StandIn> EmulatedRank::receive(DeviceId from, int32_t channel, const std::string& name) {
  const at::Tensor room = tensor_of({});
  BRAID_TRY(everyone_->receive(room, from.value, channel, name).wait());
  return stand_in_of(room);
}

// Sends or receives the stand-in, then waits for the links and until the end.
Result<int64_t> EmulatedRank::transfer(const Side& side, int64_t ready_ns) {
  const DeviceId from = side.sends ? work_.rank : side.peer;
  const DeviceId to = side.sends ? side.peer : work_.rank;
  const LinkTime link = prices_.link(from, to, side.bytes);
  StandIn stand_in{ready_ns, side.what, clock_.length_ns(link.seconds), -1};
  if (side.sends) {
    BRAID_ASSIGN(stand_in.slot, fabric_.open({2, stand_in.length_ns, side.order,
                                              message_ports(from, to, link.link)}));
    const at::Tensor data = tensor_of(stand_in);
    BRAID_TRY(everyone_->send(data, to.value, side.channel, side.name).wait());
  } else {
    BRAID_ASSIGN(stand_in, receive(side.peer, side.channel, side.name));
    if (stand_in.what != side.what)
      note_misplaced(cat(side.name, " from rank ", side.peer.value, ": another message came"));
  }
  BRAID_ASSIGN(const Fabric::Span span,
               fabric_.pass(static_cast<int32_t>(stand_in.slot), ready_ns).at(side.name));
  clock_.sleep_until(span.end_ns);
  fabric_.leave(static_cast<int32_t>(stand_in.slot));
  if (stand_in.length_ns == 0) return span.end_ns;
  const bool network = link.link == LinkKind::kNetwork;
  TraceEvent event = side.event;
  event.peer = side.peer, event.bytes = side.bytes;
  event.track = side.sends ? (network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut)
                           : (network ? TrackKind::kNetworkIn : TrackKind::kNvlinkIn);
  record(event, span.begin_ns, span.end_ns);
  return span.end_ns;
}

}  // namespace braid::inline emulate
