#include "session/hand_over_calls.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>

#include "base/text.h"
#include "host/work_section.h"

namespace braid::inline session {
namespace {

// Between those of fields, passes and weights.
constexpr int32_t kTokensChannel = 3, kCacheChannel = 4;

TransferCounts all_reduce_of(const Communicator& group, int64_t bytes) {
  return {{{Transfer::kAllReduce, group.name(), -1, -1, bytes}, 1}};
}

// A sample's numbers in one message: tokens in the cache, its new tokens, and the bits of their
// log-probs.
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
  rounds_ = 0;
  few_left_ = false;
}

void HandOverCalls::abandon() {
  counting_.reset();
  count_.reset();
  sending_.clear();
}

Status HandOverCalls::tally(CallId call) {
  if (++rounds_ % kRoundsBetweenTallies != 0) return ok_status();
  if (counting_) {
    BRAID_TRY(counting_->wait());
    counting_.reset();
    few_left_ = count_.item<int64_t>() <= below_;
    if (few_left_) return ok_status();
  }
  const bool counts = step_.rows.leads_replica(call, step_.rank());
  count_ = at::tensor({counts ? generation_.left(step_.store) : int64_t{0}}, at::kLong);
  Communicator& group = *step_.models.groups(call).call;
  return audited(
      "a count of samples left", [&] { return all_reduce_of(group, kTallyBytes); },
      [&] {
        counting_ = group.all_reduce(count_, Reduce::kSum, "samples left");
        return ok_status();
      });
}

// Each sample is told by the rank that leads its replica: new tokens and 1, less than 0 of one that
// has not finished.
Result<std::vector<SampleProgress>> HandOverCalls::share_progress(CallId call) {
  const SampleStore& store = step_.store;
  const at::Tensor told = at::zeros({static_cast<int64_t>(store.size())}, at::kLong);
  auto* const numbers = told.mutable_data_ptr<int64_t>();
  if (step_.takes_part(call) && step_.rows.leads_replica(call, step_.rank()))
    for (const size_t row : step_.rows.mine(call, step_.position.step, step_.rank())) {
      const SampleProgress own = generation_.progress(store, row);
      numbers[row] = own.finished ? own.produced + 1 : -own.produced - 1;
    }
  Communicator& everyone = *step_.exchange.everyone();
  BRAID_TRY(audited(
      "what is handed over",
      [&] { return all_reduce_of(everyone, progress_bytes(static_cast<int64_t>(store.size()))); },
      [&] { return everyone.all_reduce(told, Reduce::kSum, "finished samples").wait(); }));
  const std::vector<int64_t> prompts = store.prompt_lens();
  const std::vector<int64_t>& predicted = step_.rows.predicted();
  std::vector<SampleProgress> out;
  for (size_t row = 0; row < store.size(); ++row)
    out.push_back({prompts[row], std::abs(numbers[row]) - 1, numbers[row] > 0,
                   predicted.empty() ? 0 : predicted[row]});
  return out;
}

Status HandOverCalls::hand_over(CallId id) {
  const WorkSection section;
  const Call& call = step_.call(id);
  const Strategy& strategy = step_.program.calls[id.value].strategy;
  BRAID_ASSIGN(const std::vector<SampleProgress> progress, share_progress(id));
  const RolloutConfig& rollout = step_.config.rollout;
  const auto samples = static_cast<int64_t>(step_.store.size());
  const ReplicaLimits limits =
      going_on({rollout.max_concurrent, rollout.kv_budget_tokens, rollout.max_response_length},
               samples, strategy.dp, step_.program.scoring.most);
  const HandOver handed = braid::hand_over(progress, step_.rows.requests(id), limits);
  std::vector<int64_t> lens(progress.size(), 0);
  for (const int32_t row : handed.early) lens[row] = progress[row].produced;
  step_.store.set_lens_of(call, std::move(lens));
  step_.rows.hand_over(handed);
  if (step_.rank() == 0) {
    step_.record.metrics["rollout/handed_over"].add(static_cast<double>(handed.late.size()));
    step_.record.metrics["rollout/migrated"].add(static_cast<double>(handed.moves.size()));
  }
  if (!step_.takes_part(id)) return ok_status();
  BRAID_TRY(generation_.write(
      step_.store, step_.rows.mine(id, step_.position.step, step_.rank(), SamplePart::kEarly)));
  return migrate(id, handed, progress);
}

Status HandOverCalls::migrate(CallId call, const HandOver& handed,
                              const std::vector<SampleProgress>& progress) {
  const CallPlacement& where = step_.program.calls[call.value];
  const int own = step_.rows.dp_rank(call, step_.rank());
  const DeviceId self{static_cast<int32_t>(step_.rank())};
  TransferAudit audit = TransferAudit::begin();
  {
    const TransferAudit::Counting counting(audit);
    Rows taken;
    for (const SampleMove& move : handed.moves) {
      const int64_t produced = progress[move.row].produced;
      if (move.from == own)
        BRAID_TRY(give(move.row, produced, counterpart(where, self, move.to), audit));
      if (move.to == own) taken.push_back(move.row);
    }
    BRAID_TRY(step_.reader.read(taken, step_.store).at("data.train"));
    for (const SampleMove& move : handed.moves)
      if (move.to == own)
        BRAID_TRY(take(move.row, progress[move.row].produced, counterpart(where, self, move.from),
                       audit));
    for (auto& [tensor, pending] : sending_) BRAID_TRY(pending.wait());
    sending_.clear();
  }
  audit.settle("samples of a generation that is handed over");
  return ok_status();
}

void HandOverCalls::expect(Transfer transfer, DeviceId peer, int64_t produced, int64_t cached,
                           TransferAudit& audit) const {
  if (!audit.on()) return;
  int64_t token_bytes = 0;
  for (const KvLayer& layer : generation_.room_for(1))
    token_bytes += static_cast<int64_t>(layer.keys.nbytes() + layer.values.nbytes());
  const std::vector<double> messages =
      moved_sample(produced, cached, static_cast<double>(token_bytes));
  constexpr int32_t kChannels[kMessagesOfSample] = {kTokensChannel, kCacheChannel};
  for (size_t i = 0; i < messages.size(); ++i)
    audit.expect({transfer, step_.exchange.everyone()->name(), peer.value, kChannels[i],
                  std::llround(messages[i])});
}

Status HandOverCalls::give(size_t row, int64_t produced, DeviceId to, TransferAudit& audit) {
  Communicator& everyone = *step_.exchange.everyone();
  BRAID_ASSIGN(Engine::Exported left, generation_.give(step_.store, row));
  if (!step_.program.scoring.cache) left.kv.clear();
  const int64_t cached = left.kv.empty() ? 0 : left.kv.front().keys.size(0);
  expect(Transfer::kSend, to, produced, cached, audit);
  const auto send = [&](const at::Tensor& tensor, int32_t channel, const char* name) {
    sending_.emplace_back(tensor, everyone.send(tensor, to.value, channel, name));
  };
  send(packed(left.progress, cached), kTokensChannel, "tokens of a sample");
  if (cached == 0) return ok_status();
  std::vector<at::Tensor> parts;
  for (const KvLayer& layer : left.kv)
    for (const at::Tensor& tensor : {layer.keys, layer.values}) parts.push_back(tensor.flatten());
  send(at::cat(parts), kCacheChannel, "cache of a sample");
  return ok_status();
}

Status HandOverCalls::take(size_t row, int64_t produced, DeviceId from, TransferAudit& audit) {
  Communicator& everyone = *step_.exchange.everyone();
  const at::Tensor tokens = at::empty({1 + 2 * produced}, at::kInt);
  BRAID_TRY(everyone.receive(tokens, from.value, kTokensChannel, "tokens of a sample").wait());
  Generated drawn;
  drawn.sample = step_.store.sample(row).id;
  drawn.prompt_ids = (**step_.store.tokens("prompt_ids"))[row];
  const int64_t cached = unpack(tokens, &drawn);
  expect(Transfer::kReceive, from, produced, cached, audit);
  std::vector<KvLayer> kv;
  if (cached > 0) {
    kv = generation_.room_for(cached);
    const int64_t each = kv.front().keys.numel();
    const at::Tensor all =
        at::empty({each * 2 * static_cast<int64_t>(kv.size())}, kv.front().keys.options());
    BRAID_TRY(everyone.receive(all, from.value, kCacheChannel, "cache of a sample").wait());
    int64_t begin = 0;
    for (KvLayer& layer : kv)
      for (at::Tensor* tensor : {&layer.keys, &layer.values}) {
        tensor->copy_(all.narrow(0, begin, each).view(tensor->sizes()));
        begin += each;
      }
  }
  return generation_.take(step_.store, row, std::move(drawn), std::move(kv));
}

}  // namespace braid::inline session
