#include "rollout/length_history.h"

#include <cmath>

#include "base/rng.h"

namespace braid::inline rollout {
namespace {

constexpr double kNewest = 0.25;  // weight of the newest response

uint64_t key_of(const std::vector<int32_t>& prompt_ids) {
  uint64_t key = prompt_ids.size();
  for (const int32_t id : prompt_ids) key = mix_seed(key, static_cast<uint64_t>(id));
  return key;
}

}  // namespace

void LengthHistory::note(const std::vector<int32_t>& prompt_ids, int64_t tokens) {
  const auto [entry, first] = means_.emplace(key_of(prompt_ids), static_cast<double>(tokens));
  if (!first) entry->second += kNewest * (static_cast<double>(tokens) - entry->second);
  sum_ += static_cast<double>(tokens);
  ++noted_;
}

int64_t LengthHistory::expected(const std::vector<int32_t>& prompt_ids) const {
  if (noted_ == 0) return 0;
  const auto found = means_.find(key_of(prompt_ids));
  return std::llround(found != means_.end() ? found->second : sum_ / static_cast<double>(noted_));
}

}  // namespace braid::inline rollout
