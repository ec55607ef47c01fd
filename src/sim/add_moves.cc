// What moves between calls: weights, fields, samples of a generation that is handed over, and
// state.
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>

#include "sim/step_simulation.h"

namespace braid::inline sim {
namespace {

// Ranks, slot, depth and lane of a message, as far as they tell messages apart.
using MessageKey = std::array<int32_t, 4>;

// A number for each key; -1 where none was put. Messages are many: one block of memory for all.
class MessageTable {
 public:
  explicit MessageTable(size_t keys) : entries_(std::bit_ceil(2 * keys + 1)) {}

  // REQUIRES: no more keys get a number than were announced.
  int32_t& operator[](const MessageKey& key) {
    const size_t last = entries_.size() - 1;
    size_t at = hash_of(key) & last;
    while (entries_[at].number >= 0 && entries_[at].key != key) at = (at + 1) & last;
    entries_[at].key = key;
    return entries_[at].number;
  }

 private:
  struct Entry {
    MessageKey key = {};
    int32_t number = -1;
  };
  static size_t hash_of(const MessageKey& key) {
    uint64_t hash = 0;
    for (const int32_t number : key) {
      hash = (hash ^ static_cast<uint32_t>(number)) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 32;
    }
    return hash;
  }
  std::vector<Entry> entries_;
};

int32_t hand_over_in(const std::vector<Instruction>& list, SamplePart part) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.kind == OpKind::kHandOver && i.part == part;
  });
  return static_cast<int32_t>(found - list.begin());
}

}  // namespace

// The tasks of messages have the order of the program, so that of those that wait for a port since
// the same moment the one that ranks list first goes first. Each begins when both of its ranks have
// come to the reallocation, a relay's when what it passes on has arrived; those of one pair of
// ranks and one hop follow each other.
void StepSimulation::add_reallocations() {
  const auto entries = static_cast<int32_t>(program_.reallocations.size());
  for (int32_t entry = 0; entry < entries; ++entry) {
    auto& ranks = reallocated_.emplace_back();
    for (const DeviceId member : program_.reallocations[entry].members)
      ranks[member.value] = reallocated_on(prices_.moves_slices(entry));
  }
  for (size_t rank = 0; rank < program_.ranks.size(); ++rank)
    for (size_t i = 0; i < program_.ranks[rank].instructions.size(); ++i)
      if (const Instruction& entry = program_.ranks[rank].instructions[i];
          entry.kind == OpKind::kReallocate)
        reallocated_[entry.detail].at(static_cast<int32_t>(rank)).instruction =
            static_cast<int32_t>(i);
  for (int32_t entry = 0; entry < entries; ++entry) {
    add_messages(program_.reallocations[entry], reallocated_[entry]);
    if (prices_.moves_slices(entry)) add_slices(entry, reallocated_[entry]);
  }
}

StepSimulation::ReallocatedOn StepSimulation::reallocated_on(bool slices) {
  ReallocatedOn out;
  out.come = out.begin = tasks_.add(0);
  out.arrived = out.end = tasks_.add(0);
  if (slices) {
    out.come = tasks_.add(0), out.end = tasks_.add(0);
    tasks_.wait(out.begin, out.come);
    tasks_.wait(out.end, out.arrived);
  }
  tasks_.wait(out.arrived, out.begin);
  return out;
}

// Ranks that share slices bring together what they give before they send of it, and what has come
// when all of it is there. (Real ranks do so layer by layer.)
void StepSimulation::add_slices(int32_t entry, const std::map<int32_t, ReallocatedOn>& ranks) {
  const int32_t copy = program_.reallocations[entry].copy;
  const int32_t home = prices_.home_copy(program_.copies[copy].role);
  std::vector<GatherStop> before, after;
  for (const auto& [rank, here] : ranks) {
    before.push_back({DeviceId{rank}, here.instruction, here.come, here.begin});
    after.push_back({DeviceId{rank}, here.instruction, here.arrived, here.end});
  }
  add_gathers(program_.copies[home].layout, before,
              [&](DeviceId rank) { return prices_.gathered(home, rank); });
  add_gathers(program_.copies[copy].layout, after,
              [&](DeviceId rank) { return prices_.gathered_arrivals(entry, rank); });
}

// One task for the ranks that share slices of a layout, which all of them come to.
void StepSimulation::add_gathers(const ParamLayout& layout, const std::vector<GatherStop>& stops,
                                 const std::function<SliceGather(DeviceId)>& price) {
  std::map<DeviceId, std::pair<TaskId, double>> gathers;  // by the first of them: task, bytes
  for (const GatherStop& stop : stops) {
    const std::vector<DeviceId> sharers = slice_sharers(layout, stop.rank);
    if (sharers.empty()) continue;
    const auto [found, fresh] = gathers.try_emplace(sharers.front());
    if (fresh) {
      const auto [bytes, seconds] = price(stop.rank);
      found->second = {tasks_.add(seconds, group_ports(problem_.cluster, sharers)), bytes};
    }
    MessageEvent event;
    event.kind = EventKind::kReallocation;
    event.task = found->second.first, event.bytes = found->second.second;
    event.instruction = stop.instruction;
    event.call = instruction(stop.rank, stop.instruction).call;
    event.from = event.to = stop.rank;
    event.link = farthest_link(problem_.cluster, stop.rank, sharers);
    message_events_.push_back(event);
    tasks_.wait(event.task, stop.before);
    tasks_.wait(stop.after, event.task);
  }
}

void StepSimulation::add_messages(const Reallocation& reallocation,
                                  std::map<int32_t, ReallocatedOn>& ranks) {
  const size_t count = reallocation.messages.size();
  std::vector<ReallocatedOn*> on(program_.ranks.size(), nullptr);
  for (auto& [rank, here] : ranks) on[rank] = &here;
  MessageTable arrived(count), channels(count);
  std::vector<int32_t> arrived_before(count, -1);  // [message]: the last one with the same key
  const TaskId first = static_cast<TaskId>(tasks_.size());
  for (size_t i = 0; i < count; ++i) {
    const Message& message = reallocation.messages[i];
    const int32_t sender = message.from.value, receiver = message.to.value;
    ReallocatedOn &from = *on[sender], &to = *on[receiver];
    MessageEvent event;
    event.kind = EventKind::kReallocation;
    event.instruction = from.instruction;
    event.call = instruction(message.from, from.instruction).call;
    const TaskId task = link_task(message.from, message.to, message.bytes, event);
    to.arrivals.emplace_back(task, message.bytes);
    for (const TaskId before : {from.begin, to.begin}) tasks_.wait(task, before);
    for (const TaskId after : {from.arrived, to.arrived}) tasks_.wait(after, task);
    for (int32_t passed_on = arrived[{sender, message.slot - 1, message.depth - 1, message.lane}];
         passed_on >= 0; passed_on = arrived_before[passed_on])
      tasks_.wait(task, first + passed_on);
    arrived_before[i] = std::exchange(
        arrived[{receiver, message.slot, message.depth, message.lane}], static_cast<int32_t>(i));
    int32_t& last = channels[{sender, receiver, message.depth, message.lane}];
    tasks_.wait(task, std::exchange(last, task));
  }
}

// A rank comes to each exchange or share and goes on. A share begins when all have come; of an
// exchange a rank's part when those who send to it have.
void StepSimulation::add_exchanges() {
  for (size_t entry = 0; entry < program_.exchanges.size(); ++entry) {
    const Exchange& exchange = program_.exchanges[entry];
    std::map<int32_t, TaskId>& gates = gates_.emplace_back();
    if (exchange.shared()) {
      const TaskId whole =
          tasks_.add(prices_.exchange(static_cast<int32_t>(entry), DeviceId{0}).seconds);
      for (size_t rank = 0; rank < program_.ranks.size(); ++rank)
        gates[static_cast<int32_t>(rank)] = whole;
    } else {
      for (const DeviceId rank : exchange.members) gates[rank.value] = tasks_.add(0);
    }
  }
}

void StepSimulation::add_exchange(DeviceId rank, int32_t index) {
  const Instruction& i = instruction(rank, index);
  const std::map<int32_t, TaskId>& gates = gates_[i.detail];
  if (i.kind == OpKind::kShare) {
    ends_[rank.value][index] = gates.at(rank.value);
    return;
  }
  const ExchangePrice& price = prices_.exchange(i.detail, rank);
  MessageEvent event;
  event.kind = EventKind::kExchange, event.call = i.call;
  event.from = event.to = rank;
  event.bytes = price.received;
  event.link = price.network ? LinkKind::kNetwork : LinkKind::kNvlink;
  event.instruction = index;
  event.task = tasks_.add(price.seconds, exchange_ports(rank, price));
  tasks_.wait(event.task, gates.at(rank.value));
  for (const int32_t sender : price.senders) tasks_.wait(event.task, gates.at(sender));
  message_events_.push_back(event);
  ends_[rank.value][index] = event.task;
}

// At the first all ranks wait for each other. Later each passes on what it knows when it has come
// and has heard what comes to it before.
StepSimulation::HandedOver StepSimulation::add_telling(size_t hand_over) {
  const size_t ranks = program_.ranks.size();
  if (hand_over == 0) {
    const TaskId all = tasks_.add(prices_.first_hand_over_s());
    return {std::vector<TaskId>(ranks, all), std::vector<TaskId>(ranks, all)};
  }
  const CallId id = program_.scoring.generate;
  const auto part = static_cast<SamplePart>(hand_over + 1);
  HandedOver out;
  for (size_t rank = 0; rank < ranks; ++rank) {
    out.come.push_back(tasks_.add(0)), out.known.push_back(tasks_.add(0));
    tasks_.wait(out.known[rank], out.come[rank]);
  }
  std::vector<std::vector<TaskId>> heard(ranks);
  for (const ToldMessage& told : prices_.told(hand_over)) {
    MessageEvent event;
    event.kind = EventKind::kExchange, event.call = id;
    event.instruction = hand_over_in(program_.ranks[told.to.value].instructions, part);
    const TaskId message = link_task(told.from, told.to, static_cast<double>(told.bytes()), event);
    tasks_.wait(message, out.come[told.from.value]);
    for (const TaskId before : heard[told.from.value]) tasks_.wait(message, before);
    heard[told.to.value].push_back(message);
    tasks_.wait(out.known[told.to.value], message);
  }
  return out;
}

// A rank goes on when it knows what was handed over; samples that move are on their way when their
// sender does, and the replicas that take them wait.
void StepSimulation::add_hand_over(DeviceId rank, int32_t index) {
  const size_t at = hand_over_of(instruction(rank, index).part);
  while (handed_.size() <= at) handed_.push_back(add_telling(handed_.size()));
  const std::vector<TaskId>& known = handed_[at].known;
  const CallId id = program_.scoring.generate;
  const CallPlacement& where = program_.calls[id.value];
  const TaskId end = ends_[rank.value][index] = tasks_.add(0);
  tasks_.wait(end, known[rank.value]);
  const int own = position_in(where, rank).dp_rank;
  const std::vector<SampleMove>& moves = prices_.hand_overs()[at].handed.moves;
  for (size_t i = 0; own >= 0 && i < moves.size(); ++i) {
    if (moves[i].to != own) continue;
    const DeviceId from = counterpart(where, rank, moves[i].from);
    for (const double bytes : prices_.moved_messages(at, i)) {
      MessageEvent event;
      event.kind = EventKind::kExchange, event.call = id, event.instruction = index;
      const TaskId message = link_task(from, rank, bytes, event);
      tasks_.wait(message, known[from.value]);
      tasks_.wait(end, message);
    }
  }
}

// Caches that are copied ahead of a hand-over are on their way beside the rounds of all replicas.
void StepSimulation::add_copies(CallId id, const std::vector<TaskId>& sending) {
  const CallPlacement& where = program_.calls[id.value];
  for (const CacheCopy& copy : prices_.copies())
    for (const DeviceId rank : where.mesh.devices)
      if (position_in(where, rank).dp_rank == copy.to) add_copy(copy, rank, sending);
}

// From when its sender has come to it; who takes it has room from its own time on, until the
// hand-over has ended there, which waits for it.
void StepSimulation::add_copy(const CacheCopy& copy, DeviceId to,
                              const std::vector<TaskId>& sending) {
  const CallId id = program_.scoring.generate;
  const DeviceId from = counterpart(program_.calls[id.value], to, copy.from);
  const double bytes = prices_.copy_bytes(copy);
  const auto handed_on = [&](DeviceId rank) {
    return hand_over_in(program_.ranks[rank.value].instructions, SamplePart::kEarly);
  };
  MessageEvent event;
  event.kind = EventKind::kExchange, event.call = id, event.instruction = handed_on(to);
  const TaskId message = link_task(from, to, bytes, event);
  const TaskId end = ends_[to.value][event.instruction];
  tasks_.wait(message, sending[copy.from]);
  tasks_.wait(end, message);
  change(to, {sending[copy.to], 1, MemoryOwner::kStaging, event.instruction, bytes});
  change(to, {end, 1, MemoryOwner::kStaging, event.instruction, -bytes});
  change(from, {sending[copy.from], 1, MemoryOwner::kStaging, handed_on(from), bytes});
  change(from, {message, 1, MemoryOwner::kStaging, handed_on(from), -bytes});
}

// A message between two devices over the fastest link between them.
TaskId StepSimulation::link_task(DeviceId from, DeviceId to, double bytes, MessageEvent event) {
  const auto [seconds, link] = prices_.link(from, to, bytes);
  event.task = tasks_.add(seconds, message_ports(from, to, link));
  event.from = from, event.to = to, event.bytes = bytes, event.link = link;
  message_events_.push_back(event);
  return event.task;
}

void StepSimulation::add_state_move(DeviceId rank, int32_t index) {
  const Instruction& i = instruction(rank, index);
  const auto [bytes, seconds] = prices_.state_move(rank, index);
  MessageEvent event;
  event.kind = i.kind == OpKind::kLoad ? EventKind::kLoad : EventKind::kOffload;
  event.call = i.call;
  event.from = event.to = rank;
  event.bytes = bytes;
  event.instruction = index;
  event.task = tasks_.add(seconds, {port_of(rank, TrackKind::kHostLink)});
  message_events_.push_back(event);
  ends_[rank.value][index] = event.task;
}

}  // namespace braid::inline sim
