// What ranks do all together on emulated devices, and what moves of samples between calls: fields,
// and samples of a generation that is handed over.
#include <algorithm>

#include "base/text.h"
#include "emulate/emulated_rank.h"

namespace braid::inline emulate {
namespace {

// In the lanes of samples that move: before messages of stages, behind those of the lists.
constexpr int64_t kHandOverOrder = (int64_t{1} << 32) - (int64_t{1} << 20);
// What ranks come to that is no share: the entries of those are from 0 on.
constexpr int64_t kHandOverItself = -1;

}  // namespace

void EmulatedRank::add_fields() {
  const auto misplaced = [this](const std::string& what) { note_misplaced(what); };
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
    const auto index = static_cast<int32_t>(i);
    const int32_t entry = list()[i].detail;
    if (list()[i].kind == OpKind::kExchange) {
      add_exchange(index, of_step[entry]);
    } else if (list()[i].kind == OpKind::kShare) {
      if (entry == share_of_fetch(program_)) fetched_ = index;
      note_meeting(prices_.exchange(entry, work_.rank).seconds,
                   1 + of_step[entry] + of_later[entry]);
      lanes_.add(kFieldsInOrder, [this, index] { return share(index); });
    } else if (list()[i].kind == OpKind::kHandOver) {
      note_meeting(prices_.hand_over_s(), 1);
      lanes_.add(kFieldsInOrder, [this, index] { return hand_over(index); });
      add_moved_samples(index);
    }
  }
}

// Real calls of all ranks that one price is for.
void EmulatedRank::note_meeting(double seconds, int64_t calls) {
  if (everyone_->size() > 1)
    calls_.push_back({seconds, std::vector<const Communicator*>(calls, everyone_)});
}

EmulatedFields& EmulatedRank::fields_of(const Exchange& exchange) {
  return exchange.shared() && call(exchange.producer).steps_ahead > 0 ? *fields_ahead_ : *fields_;
}

// When all ranks have come to something.
Result<int64_t> EmulatedRank::meet_all(int64_t ready_ns, int64_t what, const std::string& name) {
  return meet(everyone_, OpKind::kAllGather, {ready_ns, what, 0, -1}, name);
}

// When this rank has come to an instruction, and all that it waits for has ended.
Result<int64_t> EmulatedRank::come_to(int32_t index) const {
  BRAID_ASSIGN(const int64_t came, came_.wait(index));
  BRAID_ASSIGN(const int64_t ready, latest(list()[index].after));
  return std::max(came, ready);
}

Status EmulatedRank::share(int32_t index) {
  const int32_t entry = list()[index].detail;
  const Exchange& shared = program_.exchanges[entry];
  BRAID_ASSIGN(const int64_t ready, come_to(index));
  BRAID_TRY(fields_of(shared).share(entry, ready));
  BRAID_ASSIGN(const int64_t begin,
               meet_all(ready, entry, cat("the share of ", call(shared.producer).name)));
  const double seconds = prices_.exchange(entry, work_.rank).seconds;
  ends_.set(index, begin + clock_.length_ns(seconds));
  return ok_status();
}

// Its messages are on their way from here; a lane of its own waits for what comes.
Status EmulatedRank::begin_exchange(int32_t index) {
  BRAID_ASSIGN(const int64_t ready, come_to(index));
  BRAID_ASSIGN(arrivals_[index], fields_->begin_exchange(list()[index].detail, ready));
  begun_exchanges_.set(index, ready);
  return ok_status();
}

// Samples that move are on their way from when all ranks have come.
Status EmulatedRank::hand_over(int32_t index) {
  BRAID_ASSIGN(const int64_t here, come_to(index));
  BRAID_ASSIGN(const int64_t ready, meet_all(here, kHandOverItself, "what is handed over"));
  handed_over_.set(0, ready + clock_.length_ns(prices_.hand_over_s()));
  return ok_status();
}

// What an exchange transfers keeps the rank's own links busy, from when it and all who send to it
// have come to it.
void EmulatedRank::add_exchange(int32_t index, int64_t transfers) {
  const ExchangePrice price = prices_.exchange(list()[index].detail, work_.rank);
  lanes_.add(kFieldsInOrder, [this, index] { return begin_exchange(index); });
  const Lanes::Key lane{kExchanges, index, 0};
  lane_prices_[lane].assign(transfers, price.seconds / static_cast<double>(transfers));
  lanes_.add(lane, [this, index, price] {
    BRAID_ASSIGN(const int64_t begun, begun_exchanges_.wait(index));
    BRAID_ASSIGN(const int64_t ready, fields_->latest_of(std::move(arrivals_[index]), begun));
    const int64_t length_ns = clock_.length_ns(price.seconds);
    const std::vector<int32_t> ports = exchange_ports(work_.rank, price);
    Fabric::Span span{ready, ready + length_ns};
    int32_t slot = -1;
    if (!ports.empty()) {
      BRAID_ASSIGN(slot, fabric_.open({1, length_ns, index, ports}));
      BRAID_ASSIGN(span, fabric_.pass(slot, ready));
    }
    clock_.sleep_until(span.end_ns);
    if (slot >= 0) fabric_.leave(slot);
    ends_.set(index, span.end_ns);
    TraceEvent event;
    event.kind = EventKind::kExchange, event.call = list()[index].call;
    event.track = price.network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut;
    event.bytes = price.received, event.instruction = index, event.peer = work_.rank;
    if (slot >= 0 && price.seconds > 0) record(event, span.begin_ns, span.end_ns);
    return ok_status();
  });
}

// The samples that move to and from this rank, each in the lane of its two ranks.
void EmulatedRank::add_moved_samples(int32_t index) {
  const auto& moves = prices_.handed()->handed.moves;
  const int own = position_in(program_.calls[list()[index].call.value], work_.rank).dp_rank;
  for (size_t i = 0; own >= 0 && i < moves.size(); ++i)
    if (moves[i].from == own || moves[i].to == own) add_moved_sample(index, i);
}

void EmulatedRank::add_moved_sample(int32_t index, size_t number) {
  const CallId generate = list()[index].call;
  const CallPlacement& where = program_.calls[generate.value];
  const SampleMove& move = prices_.handed()->handed.moves[number];
  Side side;
  side.sends = move.from == position_in(where, work_.rank).dp_rank;
  side.peer = counterpart(where, work_.rank, side.sends ? move.to : move.from);
  side.channel = stage_channel(generate, Channel::kNone);
  side.event.kind = EventKind::kExchange;
  side.event.call = generate, side.event.instruction = index;
  side.name = cat("sample ", move.row, " of replica ", move.from);
  const std::vector<double> messages = prices_.moved_messages(number);
  for (size_t i = 0; i < messages.size(); ++i) {
    const size_t at = number * kMessagesOfSample + i;
    side.bytes = messages[i];
    side.what = side.order = kHandOverOrder + static_cast<int64_t>(at);
    add_lane_task(side, [this, at, side] {
      BRAID_ASSIGN(const int64_t ready, handed_over_.wait(0));
      BRAID_ASSIGN(const int64_t end_ns, transfer(side, ready));
      moved_.set(at, end_ns);
      return ok_status();
    });
  }
}

// When this rank has what it goes on with.
Result<int64_t> EmulatedRank::hand_over_end() const {
  BRAID_ASSIGN(int64_t end, handed_over_.wait(0));
  const auto& moves = prices_.handed()->handed.moves;
  const CallPlacement& where = program_.calls[program_.scoring.generate.value];
  const int own = position_in(where, work_.rank).dp_rank;
  for (size_t i = 0; own >= 0 && i < moves.size(); ++i) {
    if (moves[i].to != own) continue;
    for (size_t message = 0; message < prices_.moved_messages(i).size(); ++message) {
      BRAID_ASSIGN(const int64_t arrived, moved_.wait(i * kMessagesOfSample + message));
      end = std::max(end, arrived);
    }
  }
  return end;
}

}  // namespace braid::inline emulate
