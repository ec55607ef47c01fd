#include "runtime/call_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "plan/make_problem.h"
#include "program/layout.h"
#include "runtime/call_groups.h"

namespace braid {
namespace {

int64_t learned_tokens(const SampleStore& store, size_t row) {
  return static_cast<int64_t>(store.reals("loss_mask", {row}).value().sum().item<double>());
}

// Training leaves out responses that were cut.
void leave_out_truncated(const SampleStore& store, std::vector<DealSample>& samples) {
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

CallFrame CallRows::frame(CallId call) const {
  if (placed()) return call_frame(program_, call);
  return {call, program_.graph.calls[call.value].kind, &alone_, &whole_};
}

int64_t most_tokens(const MiniBatch& batch) {
  int64_t most = 0;
  for (const std::vector<int64_t>& rank : batch.tokens)
    for (const int64_t tokens : rank) most = std::max(most, tokens);
  return most;
}

const Deal& CallRows::deal(CallId call, int64_t step) {
  const auto known = deals_.find(call.value);
  if (known != deals_.end()) return known->second;
  const auto lowered = micro_tokens_.find(call.value);
  const int64_t tokens = lowered == micro_tokens_.end() ? 0 : lowered->second;
  return deals_.emplace(call.value, deal_anew(call, step, tokens)).first->second;
}

Deal CallRows::deal_anew(CallId call, int64_t step, int64_t micro_tokens) const {
  const TokenLists& prompts = **store_.tokens("prompt_ids");
  const std::vector<int64_t> lens = store_.response_lens();
  // The mask comes with the data, so that every rank has it.
  const bool masked = store_.has("loss_mask");
  std::vector<DealSample> samples;
  for (size_t row = 0; row < store_.size(); ++row) {
    samples.push_back({store_.sample(row).id, store_.sample(row).group,
                       static_cast<int64_t>(prompts[row].size()), lens[row]});
    if (masked) samples.back().learned = learned_tokens(store_, row);
  }
  DealOptions options;
  options.trains = program_.graph.calls[call.value].kind == CallKind::kTrainStep;
  if (options.trains && config_.algorithm.mask_truncated && generates(program_.graph))
    leave_out_truncated(store_, samples);
  options.seed = static_cast<uint64_t>(config_.train.seed);
  options.step = step;
  options.epochs = config_.train.epochs_per_rollout;
  options.minibatches = config_.train.minibatches;
  // A loss over preference pairs compares the rows of a group. Groups of generated samples are
  // compared before, over the whole rollout.
  options.whole_groups = options.trains && !generates(program_.graph);
  options.share_prompts = shares_prompts(config_, program_.graph);
  Strategy strategy = placement(call).strategy;
  if (micro_tokens > 0) strategy.micro_tokens = micro_tokens;
  return braid::deal(samples, strategy, options);
}

std::optional<int64_t> CallRows::cut_smaller(CallId call, int64_t step, size_t minibatch) {
  const MiniBatch& before = deal(call, step).minibatches[minibatch];
  int64_t most = most_tokens(before);
  const auto lowered = micro_tokens_.find(call.value);
  if (lowered != micro_tokens_.end()) most = std::min(most, lowered->second);
  for (int64_t tokens = most / 2; tokens > 0; tokens /= 2) {
    Deal smaller = deal_anew(call, step, tokens);
    if (smaller.minibatches[minibatch].micro_batches == before.micro_batches) continue;
    deals_[call.value] = std::move(smaller);
    micro_tokens_[call.value] = tokens;
    return tokens;
  }
  return std::nullopt;
}

std::vector<Rows> CallRows::by_rank(CallId call, int64_t step) {
  const Call& entry = program_.graph.calls[call.value];
  const size_t ranks = placed() ? program_.ranks.size() : 1;
  std::vector<SampleRows> owned;  // [dp rank]
  if (entry.kind == CallKind::kGenerate)
    owned = deal_requests(static_cast<int64_t>(store_.size()), placement(call).strategy);
  else if (uses_model(entry))
    owned = deal(call, step).owned;
  std::vector<Rows> out(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int dp = dp_rank(call, static_cast<int64_t>(rank));
    if (dp >= 0) out[rank] = owned.empty() ? store_.all_rows() : rows_of(owned[dp]);
  }
  return out;
}

std::vector<Rows> CallRows::written_by_rank(CallId call, int64_t step) {
  std::vector<Rows> out = by_rank(call, step);
  // All ranks of a generation replica are told the tokens.
  if (program_.graph.calls[call.value].kind == CallKind::kGenerate) return out;
  const int last = placement(call).strategy.pp - 1;
  for (size_t rank = 0; rank < out.size(); ++rank)
    if (at(call, static_cast<int64_t>(rank)).stage != last) out[rank].clear();
  return out;
}

}  // namespace braid
