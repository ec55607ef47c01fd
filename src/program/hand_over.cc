#include "program/hand_over.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.h"
#include "program/expand.h"
#include "program/listed_messages.h"

namespace braid::inline program {
namespace {

// Names of what data and the generation give.
std::set<std::string> early_fields(const Graph& graph, CallId generate) {
  std::set<std::string> out;
  for (int32_t i = 0; i <= generate.value; ++i) {
    const Call& call = graph.calls[i];
    if (call.kind == CallKind::kFetch || i == generate.value)
      for (const Field& field : call.writes) out.insert(field.name);
  }
  return out;
}

// Of some replicas, those first that were chosen ahead.
std::vector<int32_t> by_most_left(const std::vector<SampleProgress>& samples,
                                  const std::vector<SampleRows>& left,
                                  const std::vector<bool>& among) {
  std::vector<int32_t> out;
  for (size_t replica = 0; replica < left.size(); ++replica)
    if (among.empty() || among[replica]) out.push_back(static_cast<int32_t>(replica));
  std::set<int32_t> chosen;
  for (const SampleProgress& sample : samples) chosen.insert(sample.chosen);
  std::stable_sort(out.begin(), out.end(), [&](int32_t a, int32_t b) {
    const size_t first = chosen.count(a), second = chosen.count(b);
    return first != second ? first > second : left[a].size() > left[b].size();
  });
  return out;
}

int64_t parts_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// How many tokens samples may come to.
int64_t most_tokens(const std::vector<SampleProgress>& samples, const SampleRows& rows,
                    const ReplicaLimits& limits) {
  int64_t out = 0;
  for (const int32_t row : rows) out += samples[row].prompt + limits.longest_response;
  return out;
}

// How many replicas go on with what is left, or with `most` samples that are like it.
int64_t needed_replicas(const std::vector<SampleProgress>& samples, const SampleRows& late,
                        const ReplicaLimits& limits, int64_t most) {
  if (late.empty()) return 0;
  const int64_t all = std::ssize(late), left = std::min(all, most);
  int64_t out = 1;
  if (limits.sequences > 0) out = std::max(out, parts_of(left, limits.sequences));
  const int64_t tokens = parts_of(most_tokens(samples, late, limits) * left, all);
  if (limits.cache_tokens > 0) out = std::max(out, parts_of(tokens, limits.cache_tokens));
  return out;
}

// Whether a replica that goes on with these rows may have one more.
bool has_room(const std::vector<SampleProgress>& samples, SampleRows rows, int32_t row,
              const ReplicaLimits& limits) {
  rows.push_back(row);
  return (limits.sequences == 0 || std::ssize(rows) <= limits.sequences) &&
         (limits.cache_tokens == 0 || most_tokens(samples, rows, limits) <= limits.cache_tokens);
}

// Gives samples whose replica does not go on one that does, in their order: first those that have
// one that was chosen ahead.
void give_homes(const std::vector<SampleProgress>& samples, const ReplicaLimits& limits,
                std::vector<SampleMove>* homeless, HandOver* out) {
  for (SampleMove& move : *homeless) {
    const SampleProgress& sample = samples[move.row];
    if (sample.chosen < 0 || !out->goes_on[sample.chosen] ||
        !has_room(samples, out->left[sample.chosen], move.row, limits))
      continue;
    move.to = sample.chosen, move.copied = sample.copied;
    out->left[move.to].push_back(move.row);
  }
  for (SampleMove& move : *homeless) {
    if (move.to >= 0) continue;
    for (size_t replica = 0; replica < out->left.size(); ++replica)
      if (out->goes_on[replica] &&
          (move.to < 0 || out->left[replica].size() < out->left[move.to].size()))
        move.to = static_cast<int32_t>(replica);
    out->left[move.to].push_back(move.row);
  }
}

// The partition of the samples that are marked, on the data-parallel ranks that are.
Partition partition_on(std::vector<PartitionSample> samples, const SampleRows& rows,
                       Strategy strategy, const PartitionOptions& options,
                       const std::vector<bool>& ranks) {
  const std::set<int32_t> meant(rows.begin(), rows.end());
  for (size_t row = 0; row < samples.size(); ++row)
    samples[row].kept = samples[row].kept && meant.count(static_cast<int32_t>(row)) > 0;
  strategy.dp = static_cast<int>(std::count(ranks.begin(), ranks.end(), true));
  Partition partition;
  if (strategy.dp > 0) partition = partition_samples(samples, strategy, options);
  if (partition.minibatches.empty()) partition.minibatches.emplace_back();
  Partition out = partition;
  out.owned.assign(ranks.size(), {});
  MiniBatch& all = out.minibatches.front();
  all.micro_batches.assign(ranks.size(), {});
  all.tokens.assign(ranks.size(), {});
  size_t next = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank] || next >= partition.owned.size()) continue;
    out.owned[rank] = partition.owned[next];
    all.micro_batches[rank] = partition.minibatches.front().micro_batches[next];
    all.tokens[rank] = partition.minibatches.front().tokens[next];
    ++next;
  }
  return out;
}

// The rows of both, in order.
std::vector<SampleRows> both(std::vector<SampleRows> a, const std::vector<SampleRows>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    a[i].insert(a[i].end(), b[i].begin(), b[i].end());
    std::sort(a[i].begin(), a[i].end());
  }
  return a;
}

bool any_of(const std::vector<bool>& ranks) {
  return std::find(ranks.begin(), ranks.end(), true) != ranks.end();
}

}  // namespace

std::vector<double> moved_sample(int64_t produced, int64_t cached, double cache_bytes) {
  std::vector<double> out = {static_cast<double>((1 + 2 * produced) * kNumberBytes)};
  if (cached > 0) out.push_back(static_cast<double>(cached) * cache_bytes);
  return out;
}

std::vector<CallId> reading_given(const Graph& graph, CallId generate) {
  const std::set<std::string> given = early_fields(graph, generate);
  std::vector<CallId> out;
  for (auto i = static_cast<size_t>(generate.value) + 1; i < graph.calls.size(); ++i) {
    const Call& call = graph.calls[i];
    const bool reads = std::all_of(call.reads.begin(), call.reads.end(),
                                   [&](const std::string& name) { return given.count(name) > 0; });
    if (call.kind == CallKind::kInfer && reads) out.push_back(CallId{static_cast<int32_t>(i)});
  }
  return out;
}

std::vector<CallId> early_scorers(const Graph& graph, CallId generate,
                                  const std::vector<CallPlacement>& calls) {
  std::vector<CallId> out = reading_given(graph, generate);
  std::erase_if(out, [&](CallId call) { return passes_meet(calls[call.value].strategy, false); });
  return out;
}

ReplicaLimits going_on(ReplicaLimits engine, int64_t samples, int64_t replicas, int64_t most) {
  const int64_t share = most > 0 ? most : std::max<int64_t>(1, parts_of(samples, replicas));
  engine.sequences = engine.sequences > 0 ? std::min(engine.sequences, share) : share;
  return engine;
}

HandOver hand_over(const std::vector<SampleProgress>& samples, const std::vector<SampleRows>& owned,
                   const ReplicaLimits& limits, const std::vector<bool>& among, int64_t most) {
  HandOver out;
  out.goes_on.assign(owned.size(), false);
  out.finished.resize(owned.size());
  out.left.resize(owned.size());
  for (size_t replica = 0; replica < owned.size(); ++replica)
    for (const int32_t row : owned[replica]) {
      (samples[row].finished ? out.finished : out.left)[replica].push_back(row);
      (samples[row].finished ? out.early : out.late).push_back(row);
    }
  std::sort(out.early.begin(), out.early.end());
  std::sort(out.late.begin(), out.late.end());
  for (const int32_t row : out.late) out.produced.push_back(samples[row].produced);
  const int64_t wanted = needed_replicas(samples, out.late, limits, most);
  const std::vector<int32_t> order = by_most_left(samples, out.left, among);
  for (int64_t i = 0; i < std::min<int64_t>(wanted, std::ssize(order)); ++i)
    out.goes_on[order[i]] = true;
  std::vector<SampleMove> homeless;
  for (size_t replica = 0; replica < owned.size(); ++replica)
    if (!out.goes_on[replica])
      for (const int32_t row : std::exchange(out.left[replica], {}))
        homeless.push_back({row, static_cast<int32_t>(replica), -1});
  // Where nothing is predicted, those with the fewest new tokens so far have the most before them.
  const auto done = [&](const SampleMove& move) {
    return samples[move.row].produced - samples[move.row].predicted;
  };
  std::stable_sort(homeless.begin(), homeless.end(),
                   [&](const SampleMove& a, const SampleMove& b) { return done(a) < done(b); });
  give_homes(samples, limits, &homeless, &out);
  std::sort(homeless.begin(), homeless.end(),
            [](const SampleMove& a, const SampleMove& b) { return a.row < b.row; });
  for (SampleRows& rows : out.left) std::sort(rows.begin(), rows.end());
  out.moves = std::move(homeless);
  return out;
}

std::vector<SampleRows> generated_rows(const std::vector<HandOver>& handed, SamplePart part) {
  if (part != SamplePart::kAll) {
    BRAID_CHECK(hand_over_of(part) <= handed.size(),
                cat("a generation has part ", static_cast<int>(part), " after hand-over ",
                    hand_over_of(part), ", and there were ", handed.size()));
    return hand_over_of(part) < handed.size() ? handed[hand_over_of(part)].finished
                                              : handed.back().left;
  }
  std::vector<SampleRows> out = handed.back().left;
  for (const HandOver& each : handed) out = both(std::move(out), each.finished);
  return out;
}

DeviceId counterpart(const CallPlacement& generate, DeviceId rank, int32_t replica) {
  GridPosition at = position_in(generate, rank);
  at.dp_rank = replica;
  return generate.mesh.devices[mesh_index(generate.strategy, at)];
}

std::vector<DeviceId> ranks_going_on(const CallPlacement& generate, const HandOver& handed) {
  std::vector<DeviceId> out;
  for (size_t i = 0; i < generate.mesh.devices.size(); ++i)
    if (handed.goes_on[grid_position(generate.strategy, i).dp_rank])
      out.push_back(generate.mesh.devices[i]);
  return out;
}

DeviceId speaker_of(const CallPlacement& generate, int32_t replica) {
  const GridPosition at{replica, 0, generate.strategy.pp - 1};
  return generate.mesh.devices[mesh_index(generate.strategy, at)];
}

FreeRanks free_ranks(const CallPlacement& scorer, const CallPlacement& generate,
                     const std::vector<HandOver>& handed) {
  FreeRanks out;
  for (const HandOver& each : handed) {
    const std::vector<DeviceId> going_on = ranks_going_on(generate, each);
    const std::set<DeviceId> busy(going_on.begin(), going_on.end());
    std::vector<bool>& free = out.emplace_back(scorer.strategy.dp, true);
    for (size_t i = 0; i < scorer.mesh.devices.size(); ++i)
      if (busy.count(scorer.mesh.devices[i]) > 0)
        free[grid_position(scorer.strategy, i).dp_rank] = false;
  }
  return out;
}

Partition partition_scored(const std::vector<PartitionSample>& samples, const Strategy& strategy,
                           const PartitionOptions& options, const FreeRanks& free,
                           const std::vector<HandOver>& handed, SamplePart part) {
  if (const size_t at = hand_over_of(part); at < handed.size())
    return partition_on(samples, any_of(free[at]) ? handed[at].early : SampleRows{}, strategy,
                        options, free[at]);
  return partition_rows(samples, scored_last(free, handed), strategy, options);
}

SampleRows scored_last(const FreeRanks& free, const std::vector<HandOver>& handed) {
  SampleRows out = handed.back().late;
  for (size_t at = 0; at < handed.size(); ++at)
    if (!any_of(free[at])) out.insert(out.end(), handed[at].early.begin(), handed[at].early.end());
  std::sort(out.begin(), out.end());
  return out;
}

Partition partition_rows(const std::vector<PartitionSample>& samples, const SampleRows& rows,
                         const Strategy& strategy, const PartitionOptions& options) {
  return partition_on(samples, rows, strategy, options, std::vector<bool>(strategy.dp, true));
}

Partition joined(const std::vector<Partition>& parts) {
  std::vector<SampleRows> owned = parts.front().owned;
  for (size_t i = 1; i < parts.size(); ++i) owned = both(std::move(owned), parts[i].owned);
  return {{}, std::move(owned)};
}

}  // namespace braid::inline program
