#include "scoring/scoring.h"

#include <gtest/gtest.h>

namespace braid::inline scoring {
namespace {

RewardTotalOptions totals(double clip, double missing_eos, int64_t buffer, double overlong) {
  RewardTotalOptions options;
  options.clip = clip, options.missing_eos_penalty = missing_eos;
  options.overlong_buffer = buffer, options.overlong_penalty = overlong;
  return options;
}

// Of 20 tokens at most the last 4 cost a quarter of the penalty each: nothing up to 16, half of it
// at 18, all of it at the limit (DAPO, eq. 13).
TEST(Penalized, GrowsOverTheLastTokens) {
  const struct {
    int64_t tokens;
    double total;
  } cases[] = {{1, 2}, {15, 2}, {16, 2}, {17, 1.6}, {18, 1.2}, {19, 0.8}, {20, 0.4}, {21, 0.4}};
  for (const auto& test : cases) {
    EXPECT_NEAR(penalized(2, test.tokens, false, totals(0, 0, 4, 1.6), 20), test.total, 1e-12)
        << test.tokens;
    EXPECT_EQ(penalized(2, test.tokens, false, totals(0, 0, 0, 1.6), 20), 2) << test.tokens;
  }
}

TEST(Penalized, ClipsBeforeItSubtracts) {
  const RewardTotalOptions options = totals(1.5, 0.25, 4, 1);
  EXPECT_EQ(penalized(3, 5, false, options, 20), 1.5);
  EXPECT_EQ(penalized(-3, 5, false, options, 20), -1.5);
  EXPECT_EQ(penalized(1, 5, false, options, 20), 1);
  EXPECT_EQ(penalized(3, 5, true, options, 20), 1.25);   // cut by something else than the limit
  EXPECT_EQ(penalized(3, 20, true, options, 20), 0.25);  // 1.5 - 0.25 - 1
  EXPECT_EQ(penalized(3, 20, true, totals(0, 0, 0, 1), 20), 3);
}

}  // namespace
}  // namespace braid::inline scoring
