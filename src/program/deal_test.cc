// Cutting a list of samples into micro-batches by a token budget.
#include "program/deal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace braid {
namespace {

using testing::ElementsAre;

// A reproducible number in [-1, 1].
double wave(int64_t seed, int64_t index) {
  return std::sin(12.9898 * static_cast<double>(index) + 78.233 * static_cast<double>(seed));
}

TEST(CutByTokens, FillsInOrderWithinTheBudget) {
  EXPECT_THAT(cut_by_tokens({3, 3, 2, 9, 1, 1, 6}, 8),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3), ElementsAre(4, 5, 6)));
  EXPECT_TRUE(cut_by_tokens({}, 8).empty());
  EXPECT_THAT(cut_by_tokens({20, 30}, 8), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(CutByTokens, KeepsItsPropertiesOnManyInputs) {
  for (int64_t seed = 0; seed < 50; ++seed) {
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < 40; ++i)
      counts.push_back(1 + static_cast<int64_t>(60 * std::abs(wave(seed, i))));
    int32_t next = 0;
    int64_t previous_total = 0;
    for (const auto& micro_batch : cut_by_tokens(counts, 64)) {
      int64_t total = 0;
      for (const int32_t sample : micro_batch) {
        EXPECT_EQ(sample, next++);
        total += counts[sample];
      }
      EXPECT_TRUE(total <= 64 || micro_batch.size() == 1);
      // Greedy: the first sample did not fit into the micro-batch before.
      if (previous_total > 0) {
        EXPECT_GT(previous_total + counts[micro_batch[0]], 64);
      }
      previous_total = total;
    }
    EXPECT_EQ(next, static_cast<int32_t>(counts.size()));
  }
}

}  // namespace
}  // namespace braid
