#include "session/hand_over_calls.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>

#include "base/contains.h"
#include "base/text.h"
#include "comm/channels.h"
#include "host/work_section.h"
#include "program/scored_prefixes.h"

namespace braid::inline session {
namespace {

TransferCounts all_reduce_of(const Communicator& group, int64_t bytes) {
  return {{{Transfer::kAllReduce, group.name(), -1, -1, bytes}, 1}};
}

// A sample's numbers in one message: tokens of the cache that come with it, its new tokens, and the
// bits of their log-probs.
at::Tensor packed(const Generated& progress, int64_t cached) {
  const auto count = static_cast<int64_t>(progress.response_ids.size());
  at::Tensor out = at::empty({1 + 2 * count}, at::kInt);
  auto* const numbers = out.mutable_data_ptr<int32_t>();
  numbers[0] = static_cast<int32_t>(cached);
  std::memcpy(numbers + 1, progress.response_ids.data(), count * sizeof(int32_t));
  std::memcpy(numbers + 1 + count, progress.logprobs.data(), count * sizeof(float));
  return out;
}

int64_t unpack(const at::Tensor& message, Generated* progress) {
  const int64_t count = (message.numel() - 1) / 2;
  const auto* const numbers = message.const_data_ptr<int32_t>();
  progress->response_ids.assign(numbers + 1, numbers + 1 + count);
  progress->logprobs.resize(count);
  std::memcpy(progress->logprobs.data(), numbers + 1 + count, count * sizeof(float));
  return numbers[0];
}

}  // namespace

void HandOverCalls::begin_step() {
  abandon();
  copies_.begin_step();
  rounds_ = 0;
  few_left_ = false;
  progress_.clear();
}

void HandOverCalls::abandon() {
  counts_.clear();
  counting_.clear();
  sending_.clear();
  telling_.clear();
  copies_.abandon();
}

Status HandOverCalls::end_step() {
  step_.store.drop(kBegunIds);
  return wait_for_all(telling_);
}

const HandOver* HandOverCalls::last() const {
  const std::vector<HandOver>& handed = step_.rows.handed();
  return handed.empty() ? nullptr : &handed.back();
}

int64_t HandOverCalls::next_below() const {
  const size_t handed = step_.rows.handed().size();
  return handed == 0 ? below_ : step_.program.scoring.again[handed - 1];
}

Status HandOverCalls::tally(CallId call) {
  // Of a replica that does not go on nobody waits for a count.
  if (few_left_ || ++rounds_ % kRoundsBetweenTallies != 0) return ok_status();
  if (!counts_.empty()) {
    BRAID_ASSIGN(const int64_t left, counted());
    few_left_ = left <= next_below();
    if (last() == nullptr) BRAID_TRY(copies_.look(call, left, below_, limits(call)));
    if (few_left_) return ok_status();
  }
  return begin_count(call);
}

Result<int64_t> HandOverCalls::counted() {
  int64_t out = 0;
  for (auto& [count, pending] : counts_) {
    BRAID_TRY(pending.wait());
    out += count.item<int64_t>();
  }
  counts_.clear();
  BRAID_TRY(wait_for_all(counting_));
  return out;
}

// One rank of each replica counts.
at::Tensor HandOverCalls::own_count(CallId call) const {
  const bool counts = step_.rows.leads_replica(call, step_.rank());
  return at::tensor({counts ? generation_.left(step_.store) : int64_t{0}}, at::kLong);
}

Status HandOverCalls::begin_count(CallId call) {
  if (last() != nullptr) return begin_count_among(call);
  const at::Tensor count = own_count(call);
  Communicator& group = *step_.models.groups(call).call;
  return audited(
      "a count of samples left", [&] { return all_reduce_of(group, kTallyBytes); },
      [&] {
        counts_.emplace_back(count, group.all_reduce(count, Reduce::kSum, "samples left"));
        return ok_status();
      });
}

// Each replica's own, for all ranks of the others.
Status HandOverCalls::begin_count_among(CallId call) {
  const std::vector<ToldMessage> messages = counts_told(placement(call), *last());
  return audited(
      "a count of samples left", [&] { return listed(messages, kCountChannel); },
      [&] {
        Communicator& everyone = *step_.exchange.everyone();
        const at::Tensor own = own_count(call);
        counts_.emplace_back(own, Pending());
        for (const ToldMessage& message : messages) {
          if (message.from == self())
            counting_.emplace_back(
                own, everyone.send(own, message.to.value, kCountChannel, "samples left"));
          if (message.to != self()) continue;
          const at::Tensor count = at::empty({1}, at::kLong);
          counts_.emplace_back(
              count, everyone.receive(count, message.from.value, kCountChannel, "samples left"));
        }
        return ok_status();
      });
}

TransferCounts HandOverCalls::listed(const std::vector<ToldMessage>& messages,
                                     int32_t channel) const {
  const std::string& everyone = step_.exchange.everyone()->name();
  TransferCounts out;
  for (const ToldMessage& message : messages) {
    if (message.from == self())
      ++out[{Transfer::kSend, everyone, message.to.value, channel, message.bytes()}];
    if (message.to == self())
      ++out[{Transfer::kReceive, everyone, message.from.value, channel, message.bytes()}];
  }
  return out;
}

void HandOverCalls::note_progress(const SampleRows& rows, const at::Tensor& told) {
  const auto* const numbers = told.const_data_ptr<int64_t>();
  for (size_t i = 0; i < rows.size(); ++i) hear(numbers[i], &progress_[rows[i]]);
}

// Each sample is told by the rank that leads its replica, with where and how far its cache was
// copied ahead.
Status HandOverCalls::share_progress(CallId call) {
  const SampleStore& store = step_.store;
  const auto samples = static_cast<int64_t>(store.size());
  const int64_t count = samples * handed_numbers(step_.program.scoring);
  const at::Tensor told = at::zeros({count}, at::kLong);
  auto* const numbers = told.mutable_data_ptr<int64_t>();
  if (step_.takes_part(call) && step_.rows.leads_replica(call, step_.rank()))
    for (const size_t row : step_.rows.mine(call, step_.position.step, step_.rank())) {
      numbers[row] = told_of(generation_.progress(store, row));
      if (count == samples) continue;
      numbers[samples + row] = copies_.chosen(row) + 1;
      numbers[2 * samples + row] = copies_.copied(row);
    }
  Communicator& everyone = *step_.exchange.everyone();
  BRAID_TRY(audited(
      "what is handed over", [&] { return all_reduce_of(everyone, progress_bytes(count)); },
      [&] { return everyone.all_reduce(told, Reduce::kSum, "finished samples").wait(); }));
  progress_ = progress_heard(step_, numbers);
  if (count == samples) return ok_status();
  for (int64_t row = 0; row < samples; ++row) {
    progress_[row].chosen = static_cast<int32_t>(numbers[samples + row]) - 1;
    progress_[row].copied = numbers[2 * samples + row];
  }
  return ok_status();
}

// What this rank knows of it first, where it speaks for a replica.
at::Tensor HandOverCalls::own_progress(CallId call, const SampleRows& rows) const {
  const at::Tensor out = at::zeros({std::ssize(rows)}, at::kLong);
  if (!step_.takes_part(call) || !step_.rows.leads_replica(call, step_.rank())) return out;
  const SampleRows& own = last()->left[step_.rows.dp_rank(call, step_.rank())];
  auto* const numbers = out.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < rows.size(); ++i)
    if (contains(own, rows[i])) numbers[i] = told_of(generation_.progress(step_.store, rows[i]));
  return out;
}

// Of what was left, along a tree. Whoever hears it later hears it when it comes to it, and nobody
// waits for that before the end of the step.
Status HandOverCalls::tell_progress(CallId call) {
  const Telling telling = progress_told(placement(call), *last(), step_.exchange.ranks());
  const at::Tensor known = own_progress(call, telling.rows);
  BRAID_TRY(audited(
      "what is handed over", [&] { return listed(telling.messages, kProgressChannel); },
      [&]() -> Status {
        Communicator& everyone = *step_.exchange.everyone();
        for (const ToldMessage& message : telling.messages) {
          if (message.from != self() && message.to != self()) continue;
          at::Tensor numbers = known.narrow(0, message.numbers.begin, message.numbers.size());
          if (message.to == self()) {
            BRAID_TRY(
                everyone.receive(numbers, message.from.value, kProgressChannel, "finished samples")
                    .wait());
            continue;
          }
          numbers = numbers.clone();  // what comes from above replaces it
          telling_.emplace_back(numbers, everyone.send(numbers, message.to.value, kProgressChannel,
                                                       "finished samples"));
        }
        return ok_status();
      }));
  note_progress(telling.rows, known);
  return ok_status();
}

ReplicaLimits HandOverCalls::limits(CallId call) const {
  const RolloutConfig& rollout = step_.config.rollout;
  return going_on({rollout.max_concurrent, rollout.kv_budget_tokens, rollout.max_response_length},
                  static_cast<int64_t>(step_.store.size()), placement(call).strategy.dp,
                  step_.program.scoring.most);
}

Status HandOverCalls::hand_over(CallId id) {
  const WorkSection section;
  const HandOver* const before = last();
  BRAID_TRY(before == nullptr ? share_progress(id) : tell_progress(id));
  const HandOver handed =
      before == nullptr ? braid::hand_over(progress_, step_.rows.requests(id), limits(id))
                        : braid::hand_over(progress_, before->left, limits(id), before->goes_on);
  std::vector<int64_t> lens;
  for (const SampleProgress& sample : progress_)
    lens.push_back(sample.finished ? sample.produced : 0);
  step_.store.set_lens_of(step_.call(id), std::move(lens));
  step_.rows.hand_over(handed);
  note_metrics(handed);
  for (SampleProgress& sample : progress_) sample.chosen = -1, sample.copied = 0;
  rounds_ = 0;
  BRAID_TRY(end_part(id, handed));
  const bool last = std::ssize(step_.rows.handed()) == step_.program.scoring.hand_overs();
  return last && step_.program.scoring.prefixes ? show_begun(id, handed) : ok_status();
}

// Writes what has finished, and moves what has not.
Status HandOverCalls::end_part(CallId id, const HandOver& handed) {
  if (!step_.takes_part(id)) return ok_status();
  few_left_ = !handed.goes_on[step_.rows.dp_rank(id, step_.rank())];
  const auto part = static_cast<SamplePart>(step_.rows.handed().size());
  BRAID_TRY(
      generation_.write(step_.store, step_.rows.mine(id, step_.position.step, step_.rank(), part)));
  return migrate(id, handed);
}

void HandOverCalls::note_begun() const {
  int64_t tokens = 0;
  for (const CallId scorer : step_.program.scoring.scorers)
    for (const int64_t prefix : step_.rows.prefixes(scorer, begun_part(step_.program)))
      tokens += prefix;
  step_.record.metrics["rollout/begun_tokens"].add(static_cast<double>(tokens));
}

Status HandOverCalls::show_begun(CallId id, const HandOver& handed) {
  SampleStore& store = step_.store;
  std::vector<int64_t> lens(store.size(), 0);
  for (size_t i = 0; i < handed.late.size(); ++i) lens[handed.late[i]] = handed.produced[i];
  store.set_counts(kBegunLens, std::move(lens));
  if (step_.rank() == 0) note_begun();
  if (!step_.takes_part(id)) return ok_status();
  const SampleRows& own = handed.left[step_.rows.dp_rank(id, step_.rank())];
  TokenLists tokens;
  for (const int32_t row : own) tokens.push_back(generation_.drawn(store, row));
  return store.put_tokens(kBegunIds, rows_of(own), std::move(tokens));
}

// The first hand-over of a step has names of its own.
void HandOverCalls::note_metrics(const HandOver& handed) const {
  if (step_.rank() != 0) return;
  const size_t number = step_.rows.handed().size();
  const std::string of = number > 1 ? cat("_", number) : std::string();
  const auto note = [&](const char* name, size_t count) {
    step_.record.metrics[cat("rollout/", name, of)].add(static_cast<double>(count));
  };
  note("handed_over", handed.late.size());
  note("migrated", handed.moves.size());
  if (number == 1 && step_.program.scoring.pre_copy > 0) note_copies(handed);
}

void HandOverCalls::note_copies(const HandOver& handed) const {
  double copied = 0;
  for (const SampleProgress& sample : progress_) copied += sample.copied > 0 ? 1 : 0;
  double used = 0;
  for (const SampleMove& move : handed.moves) used += move.copied > 0 ? 1 : 0;
  step_.record.metrics["rollout/pre_copied"].add(copied);
  step_.record.metrics["rollout/pre_copied_in_vain"].add(copied - used);
}

Status HandOverCalls::migrate(CallId call, const HandOver& handed) {
  const CallPlacement& where = placement(call);
  const int own = step_.rows.dp_rank(call, step_.rank());
  TransferAudit audit = TransferAudit::begin();
  {
    const TransferAudit::Counting counting(audit);
    Rows taken;
    for (const SampleMove& move : handed.moves) {
      if (move.from == own) BRAID_TRY(give(move, counterpart(where, self(), move.to), audit));
      if (move.to == own) taken.push_back(move.row);
    }
    BRAID_TRY(step_.reader.read(taken, step_.store).at("data.train"));
    BRAID_TRY(copies_.arrive());
    for (const SampleMove& move : handed.moves)
      if (move.to == own) BRAID_TRY(take(move, counterpart(where, self(), move.from), audit));
    copies_.drop();
    BRAID_TRY(wait_for_all(sending_));
  }
  audit.settle("samples of a generation that is handed over");
  return ok_status();
}

void HandOverCalls::expect(Transfer transfer, DeviceId peer, int64_t produced, int64_t cached,
                           TransferAudit& audit) const {
  if (!audit.on()) return;
  const std::vector<double> messages =
      moved_sample(produced, cached, static_cast<double>(token_bytes(generation_)));
  constexpr int32_t kChannels[kMessagesOfSample] = {kTokensChannel, kCacheChannel};
  for (size_t i = 0; i < messages.size(); ++i)
    audit.expect({transfer, step_.exchange.everyone()->name(), peer.value, kChannels[i],
                  std::llround(messages[i])});
}

Status HandOverCalls::give(const SampleMove& move, DeviceId to, TransferAudit& audit) {
  Communicator& everyone = *step_.exchange.everyone();
  BRAID_ASSIGN(Engine::Exported left, generation_.give(step_.store, move.row, move.copied));
  if (!step_.program.scoring.cache) left.kv.clear();
  const int64_t cached = left.kv.empty() ? 0 : left.kv.front().keys.size(0);
  expect(Transfer::kSend, to, progress_[move.row].produced, cached, audit);
  const auto begin = [&](const at::Tensor& tensor, int32_t channel, const char* name) {
    sending_.emplace_back(tensor, everyone.send(tensor, to.value, channel, name));
  };
  begin(packed(left.progress, cached), kTokensChannel, "tokens of a sample");
  if (cached > 0) begin(flat_cache(left.kv), kCacheChannel, "cache of a sample");
  return ok_status();
}

// Behind what was copied ahead comes the rest of a cache.
Status HandOverCalls::take(const SampleMove& move, DeviceId from, TransferAudit& audit) {
  Communicator& everyone = *step_.exchange.everyone();
  const int64_t produced = progress_[move.row].produced;
  const at::Tensor tokens = at::empty({1 + 2 * produced}, at::kInt);
  BRAID_TRY(everyone.receive(tokens, from.value, kTokensChannel, "tokens of a sample").wait());
  Generated drawn;
  drawn.sample = step_.store.sample(move.row).id;
  drawn.prompt_ids = (**step_.store.tokens("prompt_ids"))[move.row];
  const int64_t cached = unpack(tokens, &drawn);
  expect(Transfer::kReceive, from, produced, cached, audit);
  std::vector<KvLayer> kv;
  if (move.copied + cached > 0) kv = generation_.room_for(move.copied + cached);
  if (move.copied > 0) fill_cache(copies_.came(move.row), 0, move.copied, &kv);
  if (cached > 0) {
    const at::Tensor rest = room_for_flat(generation_, cached);
    BRAID_TRY(everyone.receive(rest, from.value, kCacheChannel, "cache of a sample").wait());
    fill_cache(rest, move.copied, cached, &kv);
  }
  return generation_.take(step_.store, move.row, std::move(drawn), std::move(kv));
}

}  // namespace braid::inline session
