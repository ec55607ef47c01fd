#include "program/partition.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/rng.h"
#include "program/near_parts.h"

namespace braid::inline program {
namespace {

constexpr uint64_t kPermutationStream = 0x9e47;

// Samples that stay together.
using Units = std::vector<SampleRows>;

void shuffle_units(Units* units, uint64_t seed, uint64_t stream) {
  RandomStream random(seed, stream);
  for (size_t i = units->size(); i > 1; --i) std::swap((*units)[i - 1], (*units)[random.below(i)]);
}

Units single_rows(const std::vector<PartitionSample>& samples) {
  Units out;
  for (size_t row = 0; row < samples.size(); ++row)
    if (samples[row].kept) out.push_back({static_cast<int32_t>(row)});
  return out;
}

// Rows by group, groups in the order of their first samples.
Units group_rows(const SampleRows& rows, const std::vector<PartitionSample>& samples) {
  Units groups;
  std::map<GroupId, size_t> place;
  for (const int32_t row : rows) {
    const auto [found, fresh] = place.emplace(samples[row].group, groups.size());
    if (fresh) groups.emplace_back();
    groups[found->second].push_back(row);
  }
  return groups;
}

SampleRows flatten(const Units& units, size_t begin, size_t end) {
  SampleRows out;
  for (size_t i = begin; i < end; ++i) out.insert(out.end(), units[i].begin(), units[i].end());
  return out;
}

LossTotals totals_of(const SampleRows& rows, const std::vector<PartitionSample>& samples) {
  LossTotals out;
  std::set<GroupId> groups;
  for (const int32_t row : rows) {
    out.tokens += samples[row].learned.value_or(samples[row].response);
    groups.insert(samples[row].group);
  }
  out.samples = static_cast<int64_t>(rows.size());
  out.groups = static_cast<int64_t>(groups.size());
  return out;
}

SampleRows sequence(int64_t begin, int64_t end) {
  SampleRows out(end - begin);
  std::iota(out.begin(), out.end(), static_cast<int32_t>(begin));
  return out;
}

// Runs of about equal numbers, in order.
std::vector<SampleRows> even_runs(int64_t size, int64_t count) {
  std::vector<SampleRows> out;
  for (int64_t k = 0; k < count; ++k)
    out.push_back(sequence(run_begin(size, k, count), run_begin(size, k + 1, count)));
  return out;
}

// As many in each, and about as many tokens unless they stay in order.
std::vector<SampleRows> even_parts(const std::vector<int64_t>& tokens, int64_t count,
                                   bool in_order) {
  const auto all = static_cast<int64_t>(tokens.size());
  if (in_order || count == 1) return even_runs(all, count);
  std::vector<int64_t> room;
  for (int64_t k = 0; k < count; ++k)
    room.push_back(run_begin(all, k + 1, count) - run_begin(all, k, count));
  return balance_load(tokens, room);
}

// The micro-batches of one rank's units, at least `least`: later ones may be empty.
std::vector<SampleRows> cut_share(const std::vector<int64_t>& tokens, const Strategy& s,
                                  int64_t least) {
  if (tokens.empty() && least == 0) return {};
  const int64_t together = s.interleave > 1 ? s.pp : 1;  // interleaving passes them in such groups
  const auto most = std::max<int64_t>(1, static_cast<int64_t>(tokens.size()));
  auto out = s.micro_tokens > 0
                 ? cut_by_tokens(tokens, s.micro_tokens)
                 : even_parts(tokens, std::clamp<int64_t>(s.micro_batches, 1, most), s.in_order);
  const int64_t wanted = std::max(static_cast<int64_t>(out.size()), least);
  const int64_t count = (wanted + together - 1) / together * together;
  return count == static_cast<int64_t>(out.size()) ? out : even_parts(tokens, count, s.in_order);
}

int64_t packed_tokens(const SampleRows& rows, const std::vector<PartitionSample>& samples,
                      bool share) {
  int64_t sum = 0;
  for (const PackedLength& length : packed_lengths(rows, samples, share))
    sum += length.tokens - length.shared;
  return sum;
}

// Units that are partitioned, and the tokens of each.
struct SizedUnits {
  Units rows;
  std::vector<int64_t> tokens;
  // The rows of each part, which lists units.
  std::vector<SampleRows> rows_of(const std::vector<SampleRows>& parts) const {
    std::vector<SampleRows> out(parts.size());
    for (size_t i = 0; i < parts.size(); ++i)
      for (const int32_t unit : parts[i])
        out[i].insert(out[i].end(), rows[unit].begin(), rows[unit].end());
    return out;
  }
};

int64_t most_tokens(const std::vector<SampleRows>& parts, const std::vector<int64_t>& tokens) {
  int64_t most = 0;
  for (const SampleRows& part : parts)
    most = std::max(most,
                    std::accumulate(part.begin(), part.end(), int64_t{0},
                                    [&](int64_t sum, int32_t unit) { return sum + tokens[unit]; }));
  return most;
}

// Units in the order of a step's `samples` over ranks that have even runs of these.
std::vector<SampleRows> kept_near(const SizedUnits& units, int64_t samples, int64_t ranks) {
  if (std::ssize(units.tokens) < ranks) return even_parts(units.tokens, ranks, false);
  std::vector<int32_t> homes;
  for (const SampleRows& rows : units.rows)
    homes.push_back(static_cast<int32_t>(((rows.front() + 1) * ranks - 1) / samples));
  std::vector<SampleRows> near = near_parts(units.tokens, homes, ranks);
  const int64_t most = most_tokens(near, units.tokens);
  const int64_t least =
      std::max(*std::max_element(units.tokens.begin(), units.tokens.end()),
               std::accumulate(units.tokens.begin(), units.tokens.end(), int64_t{0}) / ranks);
  const auto empty = [](const SampleRows& part) { return part.empty(); };
  const bool all_work = std::none_of(near.begin(), near.end(), empty);
  if (all_work && most <= least + least / kGoodShare) return near;
  std::vector<SampleRows> by_load = even_parts(units.tokens, ranks, false);
  const int64_t evenest = most_tokens(by_load, units.tokens);
  return all_work && most <= evenest + evenest / kGoodShare ? near : by_load;
}

// A group in so many pieces, or as many more as none needs more than `budget` tokens (0: any).
void add_pieces(const SampleRows& group, int64_t pieces, int64_t budget,
                const std::vector<PartitionSample>& samples, SizedUnits* out) {
  const auto size = static_cast<int64_t>(group.size());
  for (int64_t count = std::min(pieces, size); count <= size; ++count) {
    SizedUnits units;
    for (int64_t k = 0; k < count; ++k) {
      units.rows.emplace_back(group.begin() + run_begin(size, k, count),
                              group.begin() + run_begin(size, k + 1, count));
      units.tokens.push_back(packed_tokens(units.rows.back(), samples, true));
    }
    const int64_t most = *std::max_element(units.tokens.begin(), units.tokens.end());
    if (budget > 0 && most > budget && count < size) continue;
    out->rows.insert(out->rows.end(), units.rows.begin(), units.rows.end());
    out->tokens.insert(out->tokens.end(), units.tokens.begin(), units.tokens.end());
    return;
  }
}

// How rows are parted.
struct Parting {
  int64_t parts = 1;   // their number
  int64_t budget = 0;  // most tokens of a piece of several samples; 0: any
  std::function<std::vector<SampleRows>(const SizedUnits& units)> part;
  std::function<int64_t(const std::vector<int64_t>& tokens)> work;  // of parts
};

// Tries pieces of groups, from the largest whose number is a multiple of the parts to single
// samples; the first with the least work counts.
std::vector<SampleRows> part_shared(const SampleRows& rows,
                                    const std::vector<PartitionSample>& samples,
                                    const Parting& parting) {
  const Units groups = group_rows(rows, samples);
  int64_t largest = 1;
  for (const SampleRows& group : groups)
    largest = std::max(largest, static_cast<int64_t>(group.size()));
  std::vector<SampleRows> best;
  int64_t least_work = 0;
  const auto count = static_cast<int64_t>(groups.size());
  for (int64_t pieces = parting.parts / std::gcd(parting.parts, count); true; pieces *= 2) {
    SizedUnits units;
    for (const SampleRows& group : groups)
      add_pieces(group, pieces, parting.budget, samples, &units);
    std::vector<SampleRows> found = units.rows_of(parting.part(units));
    std::vector<int64_t> tokens;
    for (const SampleRows& part : found) tokens.push_back(packed_tokens(part, samples, true));
    const int64_t work = parting.work(tokens);
    if (best.empty() || work < least_work) best = std::move(found), least_work = work;
    if (pieces >= largest) return best;
  }
}

// Rows parted by units that are whole groups or single samples.
std::vector<SampleRows> part_apart(const SampleRows& rows,
                                   const std::vector<PartitionSample>& samples, bool whole_groups,
                                   const Parting& parting) {
  SizedUnits units;
  if (whole_groups)
    units.rows = group_rows(rows, samples);
  else
    for (const int32_t row : rows) units.rows.push_back({row});
  for (const SampleRows& unit : units.rows) {
    units.tokens.push_back(0);
    for (const int32_t row : unit)
      units.tokens.back() += samples[row].prompt + samples[row].response;
  }
  return units.rows_of(parting.part(units));
}

std::vector<SampleRows> part_rows(const SampleRows& rows,
                                  const std::vector<PartitionSample>& samples,
                                  const PartitionOptions& options, const Parting& parting) {
  if (options.share_prompts) return part_shared(rows, samples, parting);
  return part_apart(rows, samples, options.whole_groups, parting);
}

// The micro-batches of one rank. A pipeline waits for the largest at each of its other stages.
std::vector<SampleRows> cut_rows(const SampleRows& rows,
                                 const std::vector<PartitionSample>& samples,
                                 const Strategy& strategy, const PartitionOptions& options,
                                 int64_t least) {
  Parting parting;
  parting.parts = strategy.micro_tokens > 0 ? 1 : strategy.micro_batches;
  parting.budget = strategy.micro_tokens;
  parting.part = [&](const SizedUnits& units) { return cut_share(units.tokens, strategy, least); };
  parting.work = [&](const std::vector<int64_t>& tokens) {
    if (tokens.empty()) return int64_t{0};
    return std::accumulate(tokens.begin(), tokens.end(), int64_t{0}) +
           (strategy.pp - 1) * *std::max_element(tokens.begin(), tokens.end());
  };
  return part_rows(rows, samples, options, parting);
}

// Of the rows that each rank has.
MiniBatch cut_minibatch(SampleRows rows, const std::vector<SampleRows>& shares,
                        const std::vector<PartitionSample>& samples, const Strategy& strategy,
                        const PartitionOptions& options) {
  MiniBatch out;
  out.micro_batches = cut_shares(shares, samples, strategy, options);
  for (const std::vector<SampleRows>& batches : out.micro_batches) {
    out.tokens.emplace_back();
    for (const SampleRows& batch : batches)
      out.tokens.back().push_back(packed_tokens(batch, samples, options.share_prompts));
  }
  out.totals = totals_of(rows, samples);
  out.rows = std::move(rows);
  return out;
}

MiniBatch partition_minibatch(SampleRows rows, const std::vector<PartitionSample>& samples,
                              const Strategy& strategy, const PartitionOptions& options) {
  const auto shares = partition_over_ranks(rows, samples, strategy, options);
  return cut_minibatch(std::move(rows), shares, samples, strategy, options);
}

// What each rank has of the mini-batches of an epoch, together.
std::vector<SampleRows> shares_of_training(const std::vector<PartitionSample>& samples,
                                           const Strategy& strategy, PartitionOptions options) {
  options.trains = true;
  const auto minibatches = partition_minibatches(samples, options);
  const size_t of_epoch = minibatches.size() / static_cast<size_t>(options.epochs);
  std::vector<SampleRows> out(strategy.dp);
  for (size_t i = 0; i < of_epoch; ++i) {
    const auto shares = partition_over_ranks(minibatches[i], samples, strategy, options);
    for (int dp_rank = 0; dp_rank < strategy.dp; ++dp_rank)
      out[dp_rank].insert(out[dp_rank].end(), shares[dp_rank].begin(), shares[dp_rank].end());
  }
  for (SampleRows& rows : out) std::sort(rows.begin(), rows.end());
  return out;
}

}  // namespace

std::vector<SampleRows> balance_load(const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& room) {
  SampleRows order = sequence(0, static_cast<int64_t>(sizes.size()));
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return sizes[a] > sizes[b]; });
  using Filled = std::pair<int64_t, size_t>;  // size, bin
  std::priority_queue<Filled, std::vector<Filled>, std::greater<>> least;
  for (size_t bin = 0; bin < room.size(); ++bin)
    if (room[bin] > 0) least.push({0, bin});
  std::vector<SampleRows> bins(room.size());
  for (const int32_t item : order) {
    const auto [filled, bin] = least.top();
    least.pop();
    bins[bin].push_back(item);
    if (static_cast<int64_t>(bins[bin].size()) < room[bin]) least.push({filled + sizes[item], bin});
  }
  for (auto& bin : bins) std::sort(bin.begin(), bin.end());
  return bins;
}

std::vector<SampleRows> partition_minibatches(const std::vector<PartitionSample>& samples,
                                              const PartitionOptions& options) {
  Units singles = single_rows(samples);
  const auto all = static_cast<int64_t>(singles.size());
  if (!options.trains) return {flatten(singles, 0, singles.size())};
  if (all == 0) return {};
  Units units = group_rows(flatten(singles, 0, singles.size()), samples);
  // An empty mini-batch would be an update without gradients, which moves the moments all the same.
  const int64_t most = options.whole_groups ? static_cast<int64_t>(units.size()) : all;
  const int64_t parts = std::max<int64_t>(1, std::min(options.minibatches, most));
  if (!options.whole_groups && static_cast<int64_t>(units.size()) % parts != 0)
    units = std::move(singles);
  std::vector<SampleRows> out;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const auto stream = static_cast<uint64_t>(options.step * options.epochs + epoch);
    if (parts > 1) shuffle_units(&units, mix_seed(options.seed, kPermutationStream), stream);
    const auto size = static_cast<int64_t>(units.size());
    for (int64_t part = 0; part < parts; ++part)
      out.push_back(flatten(units, run_begin(size, part, parts), run_begin(size, part + 1, parts)));
  }
  return out;
}

std::vector<SampleRows> cut_by_tokens(const std::vector<int64_t>& tokens, int64_t budget) {
  std::vector<SampleRows> out;
  int64_t filled = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (out.empty() || filled + tokens[i] > budget) {
      out.emplace_back();
      filled = 0;
    }
    out.back().push_back(static_cast<int32_t>(i));
    filled += tokens[i];
  }
  return out;
}

void set_lengths(const std::vector<PartitionSample>& samples, int dp_rank, bool share_prompts,
                 Partition* partition) {
  for (MiniBatch& minibatch : partition->minibatches) {
    const std::vector<SampleRows>& cut = minibatch.micro_batches[dp_rank];
    for (size_t i = 0; i < cut.size(); ++i)
      minibatch.tokens[dp_rank][i] = packed_tokens(cut[i], samples, share_prompts);
  }
}

std::vector<PackedLength> packed_lengths(const SampleRows& rows,
                                         const std::vector<PartitionSample>& samples,
                                         bool share_prompts) {
  std::vector<PackedLength> out;
  std::unordered_set<GroupId> known;
  for (const int32_t row : rows) {
    const PartitionSample& sample = samples[row];
    const bool shared = share_prompts && !known.insert(sample.group).second;
    out.push_back({sample.prompt + sample.response, shared ? sample.prompt : 0});
  }
  return out;
}

std::vector<SampleRows> partition_over_ranks(const SampleRows& rows,
                                             const std::vector<PartitionSample>& samples,
                                             const Strategy& strategy,
                                             const PartitionOptions& options) {
  if (strategy.dp == 1) return {rows};
  const bool near = options.keep_near && !strategy.in_order && strategy.dp > kApartRanks;
  if (near && !options.trains && options.minibatches > 1)
    return shares_of_training(samples, strategy, options);
  Parting parting;
  parting.parts = strategy.dp;
  parting.part = [&](const SizedUnits& units) {
    return near ? kept_near(units, std::ssize(samples), strategy.dp)
                : even_parts(units.tokens, strategy.dp, strategy.in_order);
  };
  parting.work = [](const std::vector<int64_t>& tokens) {
    return *std::max_element(tokens.begin(), tokens.end());
  };
  if (!near) return part_rows(rows, samples, options, parting);
  SampleRows by_place = rows;
  std::sort(by_place.begin(), by_place.end());
  return part_rows(by_place, samples, options, parting);
}

bool passes_meet(const Strategy& strategy, bool trains) {
  if (strategy.dp == 1) return false;
  return strategy.zero_stage == 3 || (trains && strategy.zero_stage == 2) || strategy.ep > 1;
}

std::vector<std::vector<SampleRows>> cut_shares(const std::vector<SampleRows>& shares,
                                                const std::vector<PartitionSample>& samples,
                                                const Strategy& strategy,
                                                const PartitionOptions& options) {
  const auto cut = [&](int64_t least) {
    std::vector<std::vector<SampleRows>> out;
    for (const SampleRows& share : shares)
      out.push_back(cut_rows(share, samples, strategy, options, least));
    return out;
  };
  std::vector<std::vector<SampleRows>> out = cut(0);
  if (!passes_meet(strategy, options.trains)) return out;
  // To a larger number other pieces of groups may be the best, and give more of them again.
  const auto differ = [](const auto& a, const auto& b) { return a.size() != b.size(); };
  while (std::adjacent_find(out.begin(), out.end(), differ) != out.end()) {
    size_t most = 0;
    for (const auto& batches : out) most = std::max(most, batches.size());
    out = cut(static_cast<int64_t>(most));
  }
  return out;
}

Partition partition_samples(const std::vector<PartitionSample>& samples, const Strategy& strategy,
                            const PartitionOptions& options) {
  Partition out;
  std::vector<std::set<int32_t>> owned(strategy.dp);
  const auto parts = partition_minibatches(samples, options);
  const int64_t each = options.trains ? static_cast<int64_t>(parts.size()) / options.epochs : 1;
  for (size_t i = 0; i < parts.size(); ++i) {
    MiniBatch batch = partition_minibatch(parts[i], samples, strategy, options);
    batch.epoch = static_cast<int64_t>(i) / each, batch.index = static_cast<int64_t>(i) % each;
    for (int dp_rank = 0; dp_rank < strategy.dp; ++dp_rank)
      for (const SampleRows& rows : batch.micro_batches[dp_rank])
        owned[dp_rank].insert(rows.begin(), rows.end());
    out.minibatches.push_back(std::move(batch));
  }
  for (const auto& rows : owned) out.owned.emplace_back(rows.begin(), rows.end());
  return out;
}

Partition partition_shares(const std::vector<SampleRows>& shares,
                           const std::vector<PartitionSample>& samples, const Strategy& strategy,
                           const PartitionOptions& options) {
  SampleRows all;
  for (const SampleRows& rows : shares) all.insert(all.end(), rows.begin(), rows.end());
  std::sort(all.begin(), all.end());
  return {{cut_minibatch(std::move(all), shares, samples, strategy, options)}, shares};
}

std::vector<SampleRows> partition_requests(int64_t samples, const Strategy& strategy) {
  return even_runs(samples, strategy.dp);
}

std::vector<SampleRows> partition_requests(const std::vector<int64_t>& predicted, int64_t group,
                                           const Strategy& strategy) {
  const int64_t samples = std::ssize(predicted);
  const bool even = samples % strategy.dp == 0 && samples % group == 0;
  const int64_t piece = even ? std::gcd(group, samples / strategy.dp) : 1;
  std::vector<int64_t> tokens(samples / piece), room;
  for (int64_t row = 0; row < samples; ++row) tokens[row / piece] += predicted[row];
  for (const SampleRows& run : even_runs(std::ssize(tokens), strategy.dp))
    room.push_back(std::ssize(run));
  std::vector<SampleRows> out;
  for (const SampleRows& pieces : balance_load(tokens, room)) {
    SampleRows& rows = out.emplace_back();
    for (const int32_t each : pieces)
      for (int64_t i = 0; i < piece; ++i) rows.push_back(static_cast<int32_t>(each * piece + i));
  }
  return out;
}

}  // namespace braid::inline program
