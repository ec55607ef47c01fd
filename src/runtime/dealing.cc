#include "runtime/dealing.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "runtime/step_metrics.h"
#include "train/packing.h"

namespace braid {
namespace {

constexpr uint64_t kPermutationStream = 0x9e47;

template <typename T>
void shuffle(std::vector<T>& items, uint64_t seed, uint64_t stream) {
  RandomStream random(seed, stream);
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

// Rows of equal group kept together, in order.
std::vector<Rows> group_rows(const SampleStore& store, const Rows& rows) {
  std::vector<Rows> groups;
  std::map<int64_t, size_t> place;
  for (const size_t row : rows) {
    const auto [found, fresh] = place.emplace(store.sample(row).group.value, groups.size());
    if (fresh) groups.emplace_back();
    groups[found->second].push_back(row);
  }
  return groups;
}

// Cuts items into `parts` runs whose sizes differ by at most one, and flattens each.
std::vector<Rows> cut(const std::vector<Rows>& items, size_t parts) {
  std::vector<Rows> out(parts);
  for (size_t part = 0; part < parts; ++part)
    for (size_t i = items.size() * part / parts; i < items.size() * (part + 1) / parts; ++i)
      out[part].insert(out[part].end(), items[i].begin(), items[i].end());
  return out;
}

}  // namespace

std::vector<Rows> mini_batches(const SampleStore& store, const Rows& rows,
                               const TrainConfig& options, int64_t step) {
  if (rows.empty()) return {};
  const auto parts = static_cast<size_t>(
      std::min<int64_t>(options.minibatches, static_cast<int64_t>(rows.size())));
  std::vector<Rows> units = group_rows(store, rows);
  if (units.size() % parts != 0) {
    units.clear();
    for (const size_t row : rows) units.push_back({row});
  }
  std::vector<Rows> out;
  const uint64_t seed = mix_seed(static_cast<uint64_t>(options.seed), kPermutationStream);
  for (int64_t epoch = 0; epoch < options.epochs_per_rollout; ++epoch) {
    if (parts > 1)
      shuffle(units, seed, static_cast<uint64_t>(step * options.epochs_per_rollout + epoch));
    for (Rows& part : cut(units, parts)) out.push_back(std::move(part));
  }
  return out;
}

std::vector<Rows> micro_batches(const SampleStore& store, const Rows& rows, int64_t micro_tokens,
                                bool whole_groups) {
  std::vector<Rows> units;
  for (const size_t row : rows) {
    const bool joins = whole_groups && !units.empty() &&
                       store.sample(units.back().back()).group == store.sample(row).group;
    if (!joins) units.emplace_back();
    units.back().push_back(row);
  }
  std::vector<int64_t> counts;
  for (const Rows& unit : units) counts.push_back(row_tokens(store, unit));
  std::vector<Rows> out;
  for (const auto& packed : pack_micro_batches(counts, micro_tokens)) {
    out.emplace_back();
    for (const size_t unit : packed)
      out.back().insert(out.back().end(), units[unit].begin(), units[unit].end());
  }
  return out;
}

Denominators denominators(const SampleStore& store, const Rows& rows) {
  const TokenLists& responses = **store.tokens("response_ids");
  const bool masked = store.has("loss_mask");
  Denominators out{0, static_cast<double>(rows.size()), 0};
  std::set<int64_t> groups;
  for (const size_t row : rows) {
    if (!masked) out.tokens += static_cast<double>(responses[row].size());
    groups.insert(store.sample(row).group.value);
  }
  if (masked) out.tokens = store.reals("loss_mask", rows).value().sum().item<double>();
  out.groups = static_cast<double>(groups.size());
  return out;
}

}  // namespace braid
