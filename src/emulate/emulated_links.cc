#include "emulate/emulated_links.h"

#include <chrono>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "base/rng.h"
#include "base/text.h"
#include "comm/started_work.h"

namespace braid::inline emulate {
namespace {

struct Ends {
  DeviceId from, to;
};

Ends ends_of(const EmulatedLinks::Message& message, DeviceId rank) {
  return message.sends ? Ends{rank, message.peer} : Ends{message.peer, rank};
}

}  // namespace

uint64_t transfer_key(std::initializer_list<int64_t> numbers) {
  uint64_t out = 1;
  for (const int64_t number : numbers) out = mix_seed(out, static_cast<uint64_t>(number));
  return out == 0 ? 1 : out;
}

// A message that has begun.
class EmulatedLinks::PassingMessage : public c10d::Work {
 public:
  PassingMessage(EmulatedLinks& links, Message message, uint64_t key, at::Tensor data, Pending real,
                 Passed passed)
      : links_(links),
        message_(std::move(message)),
        key_(key),
        data_(std::move(data)),
        real_(std::move(real)),
        passed_(std::move(passed)) {}

  // What it waits for has deadlines, so this needs none.
  bool wait(std::chrono::milliseconds) override {
    if (const Status done = pass(); !done.ok()) throw std::runtime_error(done.message());
    return true;
  }
  // Its wait ends with those deadlines.
  void abort() override {}

 private:
  Status pass() {
    BRAID_TRY(real_.wait());
    if (message_.sends && !message_.meets) return ok_status();
    if (!message_.sends && stand_in_of(data_).what != message_.what)
      links_.trace_.note_misplaced(
          cat(message_.name, " from rank ", message_.peer.value, ": another message came"));
    BRAID_ASSIGN(const Fabric::Span span, links_.fabric_.await(key_).at(message_.name));
    links_.clock_.sleep_until(span.end_ns);
    if (!message_.sends && span.end_ns > span.begin_ns) links_.note(message_, span);
    passed_(span.end_ns);
    return ok_status();
  }

  EmulatedLinks& links_;
  const Message message_;
  const uint64_t key_;
  const at::Tensor data_;
  Pending real_;
  const Passed passed_;
};

// Messages of one pair and channel come in the order in which they are sent: both ranks count them.
uint64_t EmulatedLinks::next_key(const Message& message) {
  const auto [from, to] = ends_of(message, rank());
  const std::lock_guard lock(mutex_);
  const int64_t number = begun_[{message.sends, message.peer, message.channel}]++;
  return transfer_key({0, from.value, to.value, message.channel, number});
}

Status EmulatedLinks::come(const Message& message, uint64_t key, int64_t ready_ns,
                           const StandIn& mine) {
  if (!message.sends) return message.meets ? fabric_.come(key, ready_ns, nullptr) : ok_status();
  const auto [from, to] = ends_of(message, rank());
  const int32_t ranks = message.meets ? 2 : 1;
  const LinkKind link = prices_.link(from, to, message.bytes).link;
  const auto ports = message_ports(from, to, link);
  const Fabric::Transfer said{
      ranks, ranks, mine.length_ns, message.order, {ports.begin(), ports.end()}};
  return fabric_.come(key, ready_ns, &said);
}

Pending EmulatedLinks::begin(const Message& message, int64_t ready_ns, Passed passed) {
  const auto [from, to] = ends_of(message, rank());
  const StandIn mine{ready_ns, message.what,
                     clock_.length_ns(prices_.link(from, to, message.bytes).seconds)};
  const uint64_t key = next_key(message);
  auto started = std::make_unique<StartedWork>();
  started->failed = come(message, key, ready_ns, mine);
  const at::Tensor data = tensor_of(message.sends ? mine : StandIn{});
  Pending real = message.sends
                     ? everyone_.send(data, message.peer.value, message.channel, message.name)
                     : everyone_.receive(data, message.peer.value, message.channel, message.name);
  started->work = c10::make_intrusive<PassingMessage>(*this, message, key, data, std::move(real),
                                                      std::move(passed));
  started->context.global_rank = rank().value;
  started->context.board = &world_.position();
  started->transfer = message.sends ? Transfer::kSend : Transfer::kReceive;
  started->tensor = message.name;
  started->with =
      std::make_shared<TransferPeers>(std::vector<int64_t>{message.peer.value}, everyone_.name());
  started->started = std::chrono::steady_clock::now();
  return Pending(std::move(started));
}

// On the devices of both ranks: the sender does not wait.
void EmulatedLinks::note(const Message& message, const Fabric::Span& span) {
  const auto [from, to] = ends_of(message, rank());
  const bool network = prices_.link(from, to, message.bytes).link == LinkKind::kNetwork;
  TraceEvent event;
  event.kind = message.event, event.call = message.call, event.bytes = message.bytes;
  event.device = from, event.peer = to;
  event.track = network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut;
  trace_.note_there(event, span);
  event.device = to, event.peer = from;
  event.track = network ? TrackKind::kNetworkIn : TrackKind::kNvlinkIn;
  trace_.note_there(event, span);
}

}  // namespace braid::inline emulate
