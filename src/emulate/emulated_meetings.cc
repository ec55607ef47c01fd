// What ranks do all together on emulated devices, and what moves of samples between calls: fields,
// and samples of a generation that is handed over.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "comm/channels.h"
#include "emulate/emulated_rank.h"

namespace braid::inline emulate {
namespace {

// Of samples that move: before messages of stages, behind those of the lists.
constexpr int64_t kHandOverOrder = (int64_t{1} << 32) - (int64_t{1} << 20);
// Of caches that are copied ahead of one: behind those.
constexpr int64_t kCopyOrder = kHandOverOrder + (int64_t{1} << 19);
// Of what ranks tell each other of one: before those.
constexpr int kToldShift = 24;
constexpr int64_t kToldOrder = kHandOverOrder - (int64_t{1} << 28);
// What ranks come to that is no share: the entries of those are from 0 on.
constexpr int64_t kHandOverItself = -1;
constexpr int kLaneOfExchanges = 2;  // beside those of messages in two directions

}  // namespace

void EmulatedRank::make_fields() {
  const auto misplaced = [this](const std::string& what) { trace_.note_misplaced(what); };
  const int64_t ahead = steps_ahead(program_.graph);
  fields_ = std::make_unique<EmulatedFields>(program_, prices_, *everyone_, 0, misplaced);
  if (ahead > 0)
    fields_ahead_ =
        std::make_unique<EmulatedFields>(program_, prices_, *everyone_, ahead, misplaced);
  if (everyone_->size() > 1) work_.connected.insert(work_.connected.begin(), everyone_);
  const std::vector<int64_t> of_step = fields_->transfers();
  const std::vector<int64_t> of_later =
      ahead > 0 ? fields_ahead_->transfers() : std::vector<int64_t>(of_step.size(), 0);
  for (size_t i = 0; i < list().size(); ++i) {
    const int32_t entry = list()[i].detail;
    if (list()[i].kind == OpKind::kExchange) {
      note_exchange(entry, of_step[entry]);
    } else if (list()[i].kind == OpKind::kShare) {
      if (entry == share_of_fetch(program_)) fetched_ = static_cast<int32_t>(i);
      note_meeting(prices_.exchange(entry, work_.rank).seconds,
                   1 + of_step[entry] + of_later[entry]);
    } else if (list()[i].kind == OpKind::kHandOver) {
      note_hand_over(hand_over_of(list()[i].part));
    }
  }
}

// Real calls of all ranks that one price is for.
void EmulatedRank::note_meeting(double seconds, int64_t calls) {
  if (everyone_->size() > 1)
    calls_.note(seconds, std::vector<const Communicator*>(calls, everyone_));
}

void EmulatedRank::note_exchange(int32_t entry, int64_t transfers) {
  const double seconds = prices_.exchange(entry, work_.rank).seconds;
  for (int64_t i = 0; i < transfers; ++i)
    calls_.note_message({kLaneOfExchanges, entry, 0}, seconds / static_cast<double>(transfers));
}

EmulatedFields& EmulatedRank::fields_of(const Exchange& exchange) {
  return exchange.shared() && call(exchange.producer).steps_ahead > 0 ? *fields_ahead_ : *fields_;
}

// When all ranks have come to something.
Result<int64_t> EmulatedRank::meet_all(int64_t ready_ns, int64_t what, const std::string& name) {
  return meet(everyone_, OpKind::kAllGather, {ready_ns, what, 0}, name);
}

Result<int64_t> EmulatedRank::come_to(int32_t index) {
  BRAID_ASSIGN(const int64_t ready, latest(list()[index].after));
  return std::max(device_ns_, ready);
}

// Ranks meet, as real ones do, and each goes on; by the clock those calls wait whose instructions
// say so. Before the share of a fetch there are no samples: nobody goes on.
Status EmulatedRank::share(int32_t index) {
  const int32_t entry = list()[index].detail;
  const Exchange& shared = program_.exchanges[entry];
  BRAID_ASSIGN(const int64_t ready, come_to(index));
  BRAID_TRY(fields_of(shared).share(entry, ready));
  BRAID_ASSIGN(const int64_t begin,
               meet_all(ready, entry, cat("the share of ", call(shared.producer).name)));
  ends_[index] = begin + clock_.length_ns(prices_.exchange(entry, work_.rank).seconds);
  if (call(shared.producer).kind != CallKind::kFetch) return ok_status();
  compute_until(ends_[index]);
  return begin_waiting_moves();
}

namespace {

bool sends_to(const ExchangePrice& receiver, DeviceId rank) {
  return std::find(receiver.senders.begin(), receiver.senders.end(), rank.value) !=
         receiver.senders.end();
}

}  // namespace

// Its messages are on their way from here. What an exchange transfers keeps a rank's own links
// busy, from when it and all who send to it have come to it.
Status EmulatedRank::begin_exchange(int32_t index) {
  const int32_t entry = list()[index].detail;
  BRAID_ASSIGN(const int64_t ready_ns, come_to(index));
  BRAID_ASSIGN(auto arrivals, fields_->begin_exchange(entry, ready_ns));
  const auto key_of = [entry](DeviceId rank) {
    return transfer_key({kExchanged, entry, rank.value});
  };
  const ExchangePrice& price = prices_.exchange(entry, work_.rank);
  const std::set<int32_t> senders(price.senders.begin(), price.senders.end());
  const Fabric::Transfer said{static_cast<int32_t>(senders.size()) + 1, 1,
                              clock_.length_ns(price.seconds), index,
                              exchange_ports(work_.rank, price)};
  BRAID_TRY(fabric_.come(key_of(work_.rank), ready_ns, &said));
  for (const DeviceId member : program_.exchanges[entry].members)
    if (sends_to(prices_.exchange(entry, member), work_.rank))
      BRAID_TRY(fabric_.come(key_of(member), ready_ns, nullptr));
  auto coming = std::make_shared<EmulatedFields::Arrivals>(std::move(arrivals));
  under_way_[index] = [this, index, coming, key = key_of(work_.rank)] {
    return finish_exchange(index, std::move(*coming), key);
  };
  return ok_status();
}

Result<int64_t> EmulatedRank::finish_exchange(int32_t index, EmulatedFields::Arrivals arrivals,
                                              uint64_t key) {
  BRAID_TRY(fields_->await(std::move(arrivals)));
  BRAID_ASSIGN(const Fabric::Span span, fabric_.await(key));
  clock_.sleep_until(span.end_ns);
  const ExchangePrice& price = prices_.exchange(list()[index].detail, work_.rank);
  if (exchange_ports(work_.rank, price).empty() || price.seconds == 0) return span.end_ns;
  TraceEvent event;
  event.kind = EventKind::kExchange, event.call = list()[index].call;
  event.track = price.network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut;
  event.bytes = price.received, event.instruction = index, event.peer = work_.rank;
  trace_.note(event, span);
  return span.end_ns;
}

std::vector<EmulatedLinks::Message> EmulatedRank::moved_messages(size_t hand_over) const {
  const CallId generate = program_.scoring.generate;
  const CallPlacement& where = program_.calls[generate.value];
  const int own = position_in(where, work_.rank).dp_rank;
  const auto& moves = prices_.hand_overs()[hand_over].handed.moves;
  size_t before = 0;  // moves of the hand-overs before it
  for (size_t at = 0; at < hand_over; ++at) before += prices_.hand_overs()[at].handed.moves.size();
  std::vector<EmulatedLinks::Message> out;
  for (size_t move = 0; own >= 0 && move < moves.size(); ++move) {
    const SampleMove& moved = moves[move];
    if (moved.from != own && moved.to != own) continue;
    auto order = kHandOverOrder + static_cast<int64_t>((before + move) * kMessagesOfSample);
    for (const double bytes : prices_.moved_messages(hand_over, move)) {
      EmulatedLinks::Message& message = out.emplace_back();
      message.sends = moved.from == own;
      message.peer = counterpart(where, work_.rank, message.sends ? moved.to : moved.from);
      message.channel = kTokensChannel, message.bytes = bytes;
      message.what = message.order = order++;
      message.event = EventKind::kExchange, message.call = generate;
      message.name = cat("sample ", moved.row, " of replica ", moved.from);
    }
  }
  return out;
}

std::vector<EmulatedLinks::Message> EmulatedRank::copied_messages() const {
  const CallId generate = program_.scoring.generate;
  const CallPlacement& where = program_.calls[generate.value];
  const int own = position_in(where, work_.rank).dp_rank;
  const std::vector<CacheCopy>& copies = prices_.copies();
  std::vector<EmulatedLinks::Message> out;
  for (size_t number = 0; own >= 0 && number < copies.size(); ++number) {
    const CacheCopy& copy = copies[number];
    if (copy.from != own && copy.to != own) continue;
    EmulatedLinks::Message& message = out.emplace_back();
    message.sends = copy.from == own;
    message.peer = counterpart(where, work_.rank, message.sends ? copy.to : copy.from);
    message.channel = kCacheChannel, message.bytes = prices_.copy_bytes(copy);
    message.what = message.order = kCopyOrder + static_cast<int64_t>(number);
    message.event = EventKind::kExchange, message.call = generate;
    message.name = cat("cache of sample ", copy.row, " of replica ", copy.from);
  }
  return out;
}

// Nobody waits for them before the hand-over.
void EmulatedRank::send_copies() {
  for (const EmulatedLinks::Message& copy : copied_messages())
    if (copy.sends) told_.push_back(links_->begin(copy, device_ns_, [](int64_t) {}));
}

std::vector<EmulatedLinks::Message> EmulatedRank::told_messages(size_t hand_over) const {
  const std::vector<ToldMessage>& told = prices_.told(hand_over);
  std::vector<EmulatedLinks::Message> out;
  for (size_t number = 0; number < told.size(); ++number) {
    const ToldMessage& each = told[number];
    if (each.from != work_.rank && each.to != work_.rank) continue;
    EmulatedLinks::Message& message = out.emplace_back();
    message.sends = each.from == work_.rank;
    message.peer = message.sends ? each.to : each.from;
    message.channel = kProgressChannel;
    message.bytes = static_cast<double>(each.bytes());
    message.what = message.order =
        kToldOrder + (static_cast<int64_t>(hand_over) << kToldShift) + static_cast<int64_t>(number);
    message.event = EventKind::kExchange, message.call = program_.scoring.generate;
    message.name = "what is handed over";
  }
  return out;
}

void EmulatedRank::note_hand_over(size_t hand_over) {
  if (hand_over == 0) note_meeting(prices_.first_hand_over_s(), 1);
  const auto note = [&](const std::vector<EmulatedLinks::Message>& messages) {
    for (const EmulatedLinks::Message& message : messages)
      note_message(message.sends, message.peer, message.channel, message.bytes);
  };
  if (hand_over == 0) note(copied_messages());
  note(told_messages(hand_over));
  note(moved_messages(hand_over));
}

// Samples that move are on their way from when this rank knows what has finished. It has ended on
// a rank that has what it goes on with.
Status EmulatedRank::hand_over(int32_t index) {
  const size_t at = hand_over_of(list()[index].part);
  BRAID_ASSIGN(int64_t known_ns, come_to(index));
  if (at == 0) {
    BRAID_ASSIGN(known_ns, meet_all(known_ns, kHandOverItself, "what is handed over"));
    known_ns += clock_.length_ns(prices_.first_hand_over_s());
  }
  BRAID_TRY(tell_progress(at, &known_ns));
  ends_[index] = known_ns;
  std::list<Pending> messages;
  const auto begin = [&](const EmulatedLinks::Message& message) {
    messages.push_back(links_->begin(
        message, known_ns, [&end = ends_[index]](int64_t end_ns) { end = std::max(end, end_ns); }));
  };
  if (at == 0)
    for (const EmulatedLinks::Message& copy : copied_messages())
      if (!copy.sends) begin(copy);
  for (const EmulatedLinks::Message& moved : moved_messages(at)) begin(moved);
  for (Pending& message : messages) BRAID_TRY(message.wait());
  return ok_status();
}

// In the order of the messages: each goes when this rank has heard those that come before it.
Status EmulatedRank::tell_progress(size_t hand_over, int64_t* known_ns) {
  for (const EmulatedLinks::Message& message : told_messages(hand_over)) {
    int64_t heard_ns = 0;
    Pending passing =
        links_->begin(message, *known_ns, [&heard_ns](int64_t end_ns) { heard_ns = end_ns; });
    if (message.sends) {
      told_.push_back(std::move(passing));  // says no end
      continue;
    }
    BRAID_TRY(passing.wait());
    *known_ns = std::max(*known_ns, heard_ns);
  }
  return ok_status();
}

}  // namespace braid::inline emulate
