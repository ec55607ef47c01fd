#include "samples/call_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "base/contains.h"
#include "plan/make_problem.h"
#include "program/layout.h"
#include "program/partition_options.h"
#include "program/placement.h"
#include "samples/call_groups.h"

namespace braid::inline samples {
namespace {

// What training learns of each response: as the ranks told each other, or as the masks say, which
// are all here then.
void note_learned(const SampleStore& store, std::vector<PartitionSample>& samples) {
  if (store.says(kLearnedTokens)) {
    const std::vector<int64_t> told = store.counts(kLearnedTokens);
    for (size_t row = 0; row < samples.size(); ++row) samples[row].learned = told[row];
    return;
  }
  for (size_t row = 0; row < samples.size(); ++row)
    samples[row].learned =
        static_cast<int64_t>(store.reals("loss_mask", {row}).value().sum().item<double>());
}

// Training leaves out responses that were cut.
void leave_out_truncated(const SampleStore& store, std::vector<PartitionSample>& samples) {
  const Result<at::Tensor> truncated_S = store.reals("truncated", store.all_rows());
  BRAID_CHECK(truncated_S.ok(), "generation says which responses were cut");
  const at::Tensor values = truncated_S->contiguous();
  for (size_t row = 0; row < samples.size(); ++row)
    samples[row].kept = values.const_data_ptr<float>()[row] == 0;
}

}  // namespace

Rows rows_of(const SampleRows& rows) { return {rows.begin(), rows.end()}; }

CallRows::CallRows(const Config& config, const Program& program, const SampleStore& store)
    : config_(config), program_(program), store_(store) {
  alone_.mesh = {{DeviceId{0}}};
  alone_.strategy.micro_tokens = config.train.micro_tokens;
}

GridPosition CallRows::at(CallId call, int64_t rank) const {
  return position_in(placement(call), DeviceId{static_cast<int>(rank)});
}

int64_t CallRows::first_rank(CallId call) const {
  const std::vector<DeviceId>& devices = placement(call).mesh.devices;
  BRAID_CHECK(!devices.empty(), "no rank takes part in the call");
  return std::min_element(devices.begin(), devices.end())->value;
}

CallFrame CallRows::frame(CallId call) const {
  if (placed() && alone_calls_.count(call.value) > 0) return alone(call_frame(program_, call));
  if (placed()) return call_frame(program_, call);
  return {call, program_.graph.calls[call.value].kind, &alone_, &whole_};
}

int64_t most_tokens(const MiniBatch& batch) {
  int64_t most = 0;
  for (const std::vector<int64_t>& rank : batch.tokens)
    for (const int64_t tokens : rank) most = std::max(most, tokens);
  return most;
}

void CallRows::forget() {
  partitions_.clear(), predicted_.clear(), computed_.clear();
  parts_ = {};
}

void CallRows::retain(const std::vector<bool>& kept, int64_t step, CallId end) {
  if (contains(kept, false))
    for (CallId call{0}; call.value < std::ssize(program_.graph.calls); ++call.value) {
      const bool begun = call < end || of_hand_over(program_, call, SamplePart::kEarly);
      const bool scores = program_.graph.calls[call.value].kind == CallKind::kInfer;
      if (begun && scores && in_parts(call)) note_given(call, step);
    }
  StepParts left = retained(std::move(parts_), kept);
  forget();
  parts_ = std::move(left);
}

void CallRows::note_given(CallId call, int64_t step) {
  for (const SamplePart part : parts_of_call(program_, call))
    parts_.given.try_emplace({call, part}, partition(call, step, part).owned);
}

// What was finished before is what it was.
void CallRows::hand_over(HandOver handed) {
  const size_t at = parts_.handed.size();
  parts_.handed.push_back(std::move(handed));
  computed_.clear();
  std::erase_if(partitions_, [&](const auto& known) {
    const auto& [call, part] = known.first;
    const bool stays = part != SamplePart::kAll && hand_over_of(part) < at;
    return runs_in_parts(program_, CallId{call}) && !stays;
  });
}

void CallRows::choose_parts(int64_t step) {
  const CallId update = program_.early_update.update;
  const std::vector<PartitionSample> samples = partitioned(update);
  parts_.scored = scored_in_parts(
      program_, {update, samples, placement(update).strategy, options_of(update, step)},
      static_cast<int64_t>(store_.size()));
}

const Partition& CallRows::partition(CallId call, int64_t step, SamplePart part) {
  const bool of_update = scores_beside(program_, call) && !of_hand_over(program_, call, part);
  if (of_update && in_parts(call) && parts_.scored.empty()) choose_parts(step);
  const auto known = partitions_.find({call.value, part});
  if (known != partitions_.end()) return known->second;
  if (part == SamplePart::kAll && in_parts(call)) {
    std::vector<Partition> parts;
    for (const SamplePart each : parts_of_call(program_, call))
      parts.push_back(partition(call, step, each));
    return partitions_
        .emplace(std::pair(call.value, part),
                 is_streamed(program_, call) ? joined_streamed(parts) : joined(parts))
        .first->second;
  }
  const auto lowered = micro_tokens_.find({call.value, prefix_part(program_, call, part)});
  const int64_t tokens = lowered == micro_tokens_.end() ? 0 : lowered->second;
  return partitions_.emplace(std::pair(call.value, part), partition_anew(call, step, tokens, part))
      .first->second;
}

std::vector<PartitionSample> CallRows::samples_of(const SampleStore& store, CallId call) const {
  const std::vector<int64_t> prompts = store.prompt_lens();
  const std::vector<int64_t> lens = store.lens_of(program_.graph.calls[call.value]);
  std::vector<PartitionSample> out;
  for (size_t row = 0; row < store.size(); ++row)
    out.push_back({store.sample(row).id, store.sample(row).group, prompts[row], lens[row]});
  return out;
}

Partition CallRows::partition_of(const SampleStore& read, CallId call, int64_t step, int64_t rank,
                                 SamplePart part) {
  Partition out = partition(call, step, part);
  if (const int own = dp_rank(call, rank); own >= 0)
    set_lengths(samples_of(read, call), own, shares_prompts(config_, program_.graph), &out);
  return out;
}

std::vector<PartitionSample> CallRows::partitioned(CallId call) const {
  std::vector<PartitionSample> samples = samples_of(store_, call);
  if (store_.has("loss_mask")) note_learned(store_, samples);
  const bool trains = program_.graph.calls[call.value].kind == CallKind::kTrainStep;
  if (trains && config_.algorithm.mask_truncated && generates(program_.graph))
    leave_out_truncated(store_, samples);
  return samples;
}

PartitionOptions CallRows::options_of(CallId call, int64_t step) const {
  return partition_options(program_.graph, program_.graph.calls[call.value],
                           {.seed = static_cast<uint64_t>(config_.train.seed),
                            .step = step,
                            .epochs = config_.train.epochs_per_rollout,
                            .minibatches = config_.train.minibatches,
                            .share_prompts = shares_prompts(config_, program_.graph),
                            .train_engine = config_.plan.train_engine});
}

Partition CallRows::partition_anew(CallId call, int64_t step, int64_t micro_tokens,
                                   SamplePart part) const {
  const std::vector<PartitionSample> samples = partitioned(call);
  const PartitionOptions options = options_of(call, step);
  Strategy strategy = placement(call).strategy;
  if (micro_tokens > 0) strategy.micro_tokens = micro_tokens;
  if (part != SamplePart::kAll)
    return partition_part(program_, {call, samples, strategy, options}, part, parts_);
  return partition_samples(samples, strategy, options);
}

Partition CallRows::partition_whole(CallId call, int64_t step) const {
  return partition_anew(call, step, 0, SamplePart::kAll);
}

void CallRows::train_again() {
  parts_.again = true;
  const int32_t update = program_.scoring.streamed.update.value;
  for (const SamplePart part : {SamplePart::kAll, parts_of_call(program_, CallId{update}).back()})
    partitions_.erase({update, part});
}

std::map<int32_t, int64_t> CallRows::lowered() const {
  std::map<int32_t, int64_t> out;
  for (const auto& [of_part, tokens] : micro_tokens_) {
    const auto [known, fresh] = out.emplace(of_part.first, tokens);
    if (!fresh) known->second = std::min(known->second, tokens);
  }
  return out;
}

std::optional<int64_t> CallRows::cut_smaller(CallId call, int64_t step, size_t minibatch,
                                             SamplePart part) {
  const MiniBatch& before = partition(call, step, part).minibatches[minibatch];
  int64_t most = most_tokens(before);
  const std::pair of_part(call.value, prefix_part(program_, call, part));
  const auto lowered = micro_tokens_.find(of_part);
  if (lowered != micro_tokens_.end()) most = std::min(most, lowered->second);
  for (int64_t tokens = most / 2; tokens > 0; tokens /= 2) {
    Partition smaller = partition_anew(call, step, tokens, part);
    if (smaller.minibatches[minibatch].micro_batches == before.micro_batches) continue;
    partitions_[{call.value, part}] = std::move(smaller);
    micro_tokens_[of_part] = tokens;
    return tokens;
  }
  return std::nullopt;
}

std::vector<SampleRows> CallRows::requests(CallId generate) const {
  const Strategy& strategy = placement(generate).strategy;
  if (predicted_.empty() || !program_.predicts_lengths)
    return partition_requests(static_cast<int64_t>(store_.size()), strategy);
  return partition_requests(predicted_, config_.rollout.samples_per_prompt, strategy);
}

std::vector<SampleRows> CallRows::owned(CallId call, int64_t step, SamplePart part) {
  const Call& entry = program_.graph.calls[call.value];
  if (entry.kind == CallKind::kGenerate)
    return in_parts(call) ? generated_rows(parts_.handed, part) : requests(call);
  return uses_model(entry) ? partition(call, step, part).owned : std::vector<SampleRows>();
}

std::vector<int64_t> CallRows::prefixes(CallId call, SamplePart part) const {
  if (prefix_part(program_, call, part) == PrefixPart::kNone) return {};
  return prefixes_scored(program_, call, samples_of(store_, call), parts_.handed);
}

std::vector<SampleRows> CallRows::compared_early(int64_t step, SamplePart part) {
  return braid::compared_early(program_, store_.counts("groups"),
                               partition(program_.scoring.streamed.update, step, part));
}

std::vector<SampleRows> CallRows::by_rank(CallId call, int64_t step, SamplePart part) {
  if (compares_early(call, part)) return compared_early(step, part);
  return on_ranks(call, owned(call, step, part));
}

std::vector<SampleRows> CallRows::on_ranks(CallId call, std::vector<SampleRows> owned) const {
  const auto samples = static_cast<int64_t>(store_.size());
  if (placed()) return rows_by_rank(program_, call, samples, std::move(owned));
  return owned.empty() ? partition_requests(samples, alone_.strategy) : std::move(owned);
}

bool CallRows::replays(CallId call) const {
  return program_.graph.calls[call.value].kind == CallKind::kReward &&
         !config_.rollout.replay.empty();
}

std::vector<SampleRows> CallRows::written_by_rank(CallId call, int64_t step, SamplePart part) {
  if (compares_early(call, part)) return compared_early(step, part);
  if (computes(call)) return computed(call, step);
  std::vector<SampleRows> rows = by_rank(call, step, part);
  if (!placed()) return rows;
  return braid::written_by_rank(program_, call, std::move(rows), scored_by_rank(call, step));
}

std::vector<SampleRows> CallRows::read_by_rank(CallId call, int64_t step, SamplePart part) {
  if (compares_early(call, part)) return compared_early(step, part);
  if (computes(call)) return computed(call, step);
  const bool begins = prefix_part(program_, call, part) == PrefixPart::kBeginnings;
  std::vector<SampleRows> rows =
      begins ? on_ranks(call, rows_read(partition(call, step, part))) : by_rank(call, step, part);
  if (replays(call)) return std::vector<SampleRows>(rows.size());
  if (!placed()) return rows;
  return braid::read_by_rank(program_, call, std::move(rows), scored_by_rank(call, step));
}

std::vector<SampleRows> CallRows::told_by_rank(CallId call, int64_t step) {
  return on_heads(program_, call, owned(call, step, SamplePart::kAll));
}

std::vector<SampleRows> CallRows::scored_by_rank(CallId call, int64_t step) {
  if (program_.graph.calls[call.value].kind != CallKind::kReward) return {};
  if (!placed()) return by_rank(call, step);
  const bool recorded = replays(call);
  const CallId beside =
      recorded ? generation_of(program_.graph, call) : asked_beside(program_.graph, call);
  const std::vector<SampleRows> owned = this->owned(beside, step, SamplePart::kAll);
  if (recorded) return on_heads(program_, beside, owned);
  std::vector<SampleRows> out =
      braid::scored_by_rank(program_, call, store_.counts("groups"), owned);
  if (!program_.scoring.streamed.has(call) || parts_.handed.empty()) return out;
  std::vector<std::vector<SampleRows>> early;
  for (const SamplePart part : parts_of_call(program_, call))
    if (of_hand_over(program_, call, part)) early.push_back(compared_early(step, part));
  return asked_with_early(std::move(out), early);
}

std::vector<SampleRows> CallRows::asked_last(CallId call, int64_t step) {
  std::vector<SampleRows> out = scored_by_rank(call, step);
  if (!program_.scoring.streamed.has(call) || parts_.handed.empty()) return out;
  for (const SamplePart part : parts_of_call(program_, call)) {
    if (!of_hand_over(program_, call, part)) continue;
    const std::vector<SampleRows> early = compared_early(step, part);
    for (size_t rank = 0; rank < out.size(); ++rank)
      std::erase_if(out[rank], [&](int32_t row) { return contains(early[rank], row); });
  }
  return out;
}

const std::vector<ComputedRows>& CallRows::computed_by_rank(CallId call, int64_t step) {
  const auto known = computed_.find(call);
  if (known != computed_.end()) return known->second;
  const Rows rows = store_.all_rows();
  const SampleRows all(rows.begin(), rows.end());
  if (!placed()) return computed_[call] = {{all, {}}};
  return computed_[call] = braid::computed_by_rank(
             program_, call, all, store_.counts("groups"),
             [&](CallId reader) { return read_by_rank(reader, step, SamplePart::kAll); });
}

std::vector<SampleRows> CallRows::computed(CallId call, int64_t step) {
  std::vector<SampleRows> out;
  for (const ComputedRows& of_rank : computed_by_rank(call, step)) out.push_back(all_of(of_rank));
  return out;
}

}  // namespace braid::inline samples
