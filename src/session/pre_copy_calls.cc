#include "session/pre_copy_calls.h"

#include <ATen/ops/zeros.h>

#include "comm/channels.h"
#include "comm/transfer_audit.h"

namespace braid::inline session {

std::vector<SampleProgress> progress_heard(const StepContext& step, const int64_t* numbers) {
  const std::vector<int64_t> prompts = step.store.prompt_lens();
  const std::vector<int64_t>& predicted = step.rows.predicted();
  std::vector<SampleProgress> out;
  for (size_t row = 0; row < prompts.size(); ++row) {
    SampleProgress& sample = out.emplace_back();
    sample.prompt = prompts[row], sample.predicted = predicted.empty() ? 0 : predicted[row];
    hear(numbers[row], &sample);
  }
  return out;
}

void PreCopyCalls::begin_step() {
  abandon();
  shared_ = false;
  chosen_.clear();
  copied_.clear();
}

void PreCopyCalls::abandon() {
  sharing_.clear();
  on_their_way_.clear();
  came_.clear();
}

int64_t PreCopyCalls::copied(size_t row) const {
  const auto found = copied_.find(row);
  return found == copied_.end() ? 0 : found->second;
}

// What was told is not used where the generation is handed over at once.
Status PreCopyCalls::look(CallId call, int64_t left, int64_t below, const ReplicaLimits& limits) {
  if (!is_on()) return ok_status();
  if (!shared_)
    return left <= step_.program.scoring.pre_copy && left > below ? share(call) : ok_status();
  if (sharing_.empty()) return ok_status();
  BRAID_TRY(sharing_.front().second.wait());
  const at::Tensor told = std::move(sharing_.front().first);
  sharing_.clear();
  if (left <= below) return ok_status();
  const auto* const numbers = told.const_data_ptr<int64_t>();
  const std::vector<SampleProgress> samples = progress_heard(step_, numbers);
  const std::vector<int64_t> cached(numbers + samples.size(), numbers + 2 * samples.size());
  PreCopy decided = pre_copy(samples, cached, step_.rows.requests(call), limits, below);
  chosen_ = std::move(decided.chosen);
  return copy(call, decided.copies);
}

// Each sample is told by the rank that leads its replica.
Status PreCopyCalls::share(CallId call) {
  shared_ = true;
  const SampleStore& store = step_.store;
  const auto samples = static_cast<int64_t>(store.size());
  const at::Tensor told = at::zeros({2 * samples}, at::kLong);
  auto* const numbers = told.mutable_data_ptr<int64_t>();
  if (step_.rows.leads_replica(call, step_.rank()))
    for (const size_t row : step_.rows.mine(call, step_.position.step, step_.rank())) {
      numbers[row] = told_of(generation_.progress(store, row));
      numbers[samples + row] = generation_.cached(store, row);
    }
  Communicator& group = *step_.models.groups(call).call;
  return audited(
      "how far samples are",
      [&]() -> TransferCounts {
        return {{{Transfer::kAllReduce, group.name(), -1, -1, told_ahead_bytes(samples)}, 1}};
      },
      [&] {
        sharing_.emplace_back(told, group.all_reduce(told, Reduce::kSum, "samples so far"));
        return ok_status();
      });
}

TransferCounts PreCopyCalls::listed(const CallPlacement& where, int own,
                                    const std::vector<CacheCopy>& copies) const {
  const DeviceId self{static_cast<int32_t>(step_.rank())};
  const std::string& everyone = step_.exchange.everyone()->name();
  TransferCounts out;
  for (const CacheCopy& copy : copies) {
    const int64_t bytes = copy.tokens * token_bytes(generation_);
    if (copy.from == own)
      ++out[{Transfer::kSend, everyone, counterpart(where, self, copy.to).value, kCacheChannel,
             bytes}];
    if (copy.to == own)
      ++out[{Transfer::kReceive, everyone, counterpart(where, self, copy.from).value, kCacheChannel,
             bytes}];
  }
  return out;
}

Status PreCopyCalls::copy(CallId call, const std::vector<CacheCopy>& copies) {
  const CallPlacement& where = step_.program.calls[call.value];
  const DeviceId self{static_cast<int32_t>(step_.rank())};
  const int own = step_.rows.dp_rank(call, step_.rank());
  return audited(
      "caches that are copied ahead of a hand-over", [&] { return listed(where, own, copies); },
      [&] {
        for (const CacheCopy& copy : copies) {
          if (copy.from == own) send(copy, counterpart(where, self, copy.to));
          if (copy.to == own) receive(copy, counterpart(where, self, copy.from));
        }
        return ok_status();
      });
}

// As long as it was told. What has ended since, or lost its cache, is copied in vain.
void PreCopyCalls::send(const CacheCopy& copy, DeviceId to) {
  const std::vector<KvLayer> kv = generation_.copy_cache(step_.store, copy.row, copy.tokens);
  if (!kv.empty()) copied_[copy.row] = copy.tokens;
  const at::Tensor flat =
      kv.empty() ? room_for_flat(generation_, copy.tokens).zero_() : flat_cache(kv);
  on_their_way_.emplace_back(
      flat, step_.exchange.everyone()->send(flat, to.value, kCacheChannel, "cache copied ahead"));
}

void PreCopyCalls::receive(const CacheCopy& copy, DeviceId from) {
  const at::Tensor flat = room_for_flat(generation_, copy.tokens);
  came_[copy.row] = flat;
  on_their_way_.emplace_back(flat, step_.exchange.everyone()->receive(
                                       flat, from.value, kCacheChannel, "cache copied ahead"));
}

Status PreCopyCalls::arrive() { return wait_for_all(on_their_way_); }

}  // namespace braid::inline session
