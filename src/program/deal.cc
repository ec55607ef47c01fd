#include "program/deal.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "base/rng.h"

namespace braid {
namespace {

constexpr uint64_t kPermutationStream = 0x9e47;

// Samples that stay together.
using Units = std::vector<SampleRows>;

void shuffle_units(Units* units, uint64_t seed, uint64_t stream) {
  RandomStream random(seed, stream);
  for (size_t i = units->size(); i > 1; --i) std::swap((*units)[i - 1], (*units)[random.below(i)]);
}

Units single_rows(const std::vector<DealSample>& samples) {
  Units out;
  for (size_t row = 0; row < samples.size(); ++row)
    if (samples[row].kept) out.push_back({static_cast<int32_t>(row)});
  return out;
}

// Kept samples by group, groups in the order of their first samples.
Units group_rows(const std::vector<DealSample>& samples) {
  Units groups;
  std::map<GroupId, size_t> place;
  for (size_t row = 0; row < samples.size(); ++row) {
    if (!samples[row].kept) continue;
    const auto [found, fresh] = place.emplace(samples[row].group, groups.size());
    if (fresh) groups.emplace_back();
    groups[found->second].push_back(static_cast<int32_t>(row));
  }
  return groups;
}

SampleRows flatten(const Units& units, size_t begin, size_t end) {
  SampleRows out;
  for (size_t i = begin; i < end; ++i) out.insert(out.end(), units[i].begin(), units[i].end());
  return out;
}

DealTotals totals_of(const SampleRows& rows, const std::vector<DealSample>& samples) {
  DealTotals out;
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
  return deal_evenly(tokens, room);
}

std::vector<int64_t> pick(const std::vector<int64_t>& tokens, const SampleRows& chosen) {
  std::vector<int64_t> out;
  for (const int32_t i : chosen) out.push_back(tokens[i]);
  return out;
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

MiniBatch deal_minibatch(SampleRows rows, const std::vector<DealSample>& samples,
                         const Strategy& strategy, bool whole_groups) {
  MiniBatch out;
  const Units units = deal_units(rows, samples, whole_groups);
  std::vector<int64_t> tokens;
  for (const SampleRows& unit : units) {
    tokens.push_back(0);
    for (const int32_t row : unit) tokens.back() += samples[row].prompt + samples[row].response;
  }
  for (const auto& batches : cut_shares(tokens, deal_shares(tokens, strategy), strategy)) {
    out.micro_batches.emplace_back();
    out.tokens.emplace_back();
    for (const SampleRows& batch : batches) {
      SampleRows rows_of_batch;
      int64_t sum = 0;
      for (const int32_t unit : batch) {
        rows_of_batch.insert(rows_of_batch.end(), units[unit].begin(), units[unit].end());
        sum += tokens[unit];
      }
      out.micro_batches.back().push_back(std::move(rows_of_batch));
      out.tokens.back().push_back(sum);
    }
  }
  out.totals = totals_of(rows, samples);
  out.rows = std::move(rows);
  return out;
}

}  // namespace

std::vector<SampleRows> deal_evenly(const std::vector<int64_t>& sizes,
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

std::vector<SampleRows> deal_minibatches(const std::vector<DealSample>& samples,
                                         const DealOptions& options) {
  Units singles = single_rows(samples);
  const auto all = static_cast<int64_t>(singles.size());
  if (!options.trains) return {flatten(singles, 0, singles.size())};
  if (all == 0) return {};
  const int64_t parts = std::max<int64_t>(1, std::min(options.minibatches, all));
  Units units = group_rows(samples);
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

std::vector<SampleRows> deal_shares(const std::vector<int64_t>& tokens, const Strategy& strategy) {
  return even_parts(tokens, strategy.dp, strategy.in_order);
}

std::vector<SampleRows> deal_units(const SampleRows& rows, const std::vector<DealSample>& samples,
                                   bool whole_groups) {
  Units units;
  for (const int32_t row : rows) {
    const bool joins =
        whole_groups && !units.empty() && samples[units.back().back()].group == samples[row].group;
    if (!joins) units.emplace_back();
    units.back().push_back(row);
  }
  return units;
}

std::vector<std::vector<SampleRows>> cut_shares(const std::vector<int64_t>& tokens,
                                                const std::vector<SampleRows>& shares,
                                                const Strategy& strategy) {
  const bool together = strategy.zero_stage == 3 && strategy.dp > 1;
  int64_t least = 0;
  for (size_t i = 0; together && i < shares.size(); ++i)
    least = std::max(least,
                     static_cast<int64_t>(cut_share(pick(tokens, shares[i]), strategy, 0).size()));
  std::vector<std::vector<SampleRows>> out;
  for (const SampleRows& share : shares) {
    out.push_back(cut_share(pick(tokens, share), strategy, least));
    for (SampleRows& batch : out.back())
      for (int32_t& unit : batch) unit = share[unit];
  }
  return out;
}

Deal deal(const std::vector<DealSample>& samples, const Strategy& strategy,
          const DealOptions& options) {
  Deal out;
  std::vector<std::set<int32_t>> owned(strategy.dp);
  const auto parts = deal_minibatches(samples, options);
  const int64_t each = options.trains ? static_cast<int64_t>(parts.size()) / options.epochs : 1;
  for (size_t i = 0; i < parts.size(); ++i) {
    MiniBatch batch = deal_minibatch(parts[i], samples, strategy, options.whole_groups);
    batch.epoch = static_cast<int64_t>(i) / each, batch.index = static_cast<int64_t>(i) % each;
    for (int dp_rank = 0; dp_rank < strategy.dp; ++dp_rank)
      for (const SampleRows& rows : batch.micro_batches[dp_rank])
        owned[dp_rank].insert(rows.begin(), rows.end());
    out.minibatches.push_back(std::move(batch));
  }
  for (const auto& rows : owned) out.owned.emplace_back(rows.begin(), rows.end());
  return out;
}

std::vector<SampleRows> deal_requests(int64_t samples, const Strategy& strategy) {
  return even_runs(samples, strategy.dp);
}

}  // namespace braid
