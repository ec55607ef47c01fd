#include "runtime/call_rows.h"

#include <algorithm>

#include "program/layout.h"

namespace braid {

Rows rows_of(const SampleRows& rows) { return {rows.begin(), rows.end()}; }

int CallRows::dp_rank(CallId call, int64_t rank) const {
  if (!placed()) return 0;
  const CallPlacement& where = program_.calls[call.value];
  const auto& devices = where.mesh.devices;
  const auto found = std::find(devices.begin(), devices.end(), DeviceId{static_cast<int>(rank)});
  return found == devices.end() ? -1
                                : grid_position(where.strategy, found - devices.begin()).dp_rank;
}

Strategy CallRows::strategy(CallId call) const {
  if (placed()) return program_.calls[call.value].strategy;
  Strategy alone;
  alone.micro_tokens = config_.train.micro_tokens;
  return alone;
}

const Deal& CallRows::deal(CallId call, int64_t step) {
  const auto known = deals_.find(call.value);
  if (known != deals_.end()) return known->second;
  const TokenLists& prompts = **store_.tokens("prompt_ids");
  const std::vector<int64_t> lens = store_.response_lens();
  std::vector<DealSample> samples;
  for (size_t row = 0; row < store_.size(); ++row)
    samples.push_back({store_.sample(row).id, store_.sample(row).group,
                       static_cast<int64_t>(prompts[row].size()), lens[row], true});
  DealOptions options;
  options.trains = program_.graph.calls[call.value].kind == CallKind::kTrainStep;
  options.seed = static_cast<uint64_t>(config_.train.seed);
  options.step = step;
  options.epochs = config_.train.epochs_per_rollout;
  options.minibatches = config_.train.minibatches;
  // A loss over preference pairs compares the rows of a group. Groups of generated samples are
  // compared before, over the whole rollout.
  options.whole_groups = options.trains && !generates(program_.graph);
  return deals_.emplace(call.value, braid::deal(samples, strategy(call), options)).first->second;
}

std::vector<Rows> CallRows::by_rank(CallId call, int64_t step) {
  const Call& entry = program_.graph.calls[call.value];
  const size_t ranks = placed() ? program_.ranks.size() : 1;
  std::vector<SampleRows> owned;  // [dp rank]
  if (entry.kind == CallKind::kGenerate)
    owned = deal_requests(static_cast<int64_t>(store_.size()), strategy(call));
  else if (uses_model(entry))
    owned = deal(call, step).owned;
  std::vector<Rows> out(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int dp = dp_rank(call, static_cast<int64_t>(rank));
    if (dp >= 0) out[rank] = owned.empty() ? store_.all_rows() : rows_of(owned[dp]);
  }
  return out;
}

}  // namespace braid
