// The numbers of a step that are no means.
#include "samples/step_metrics.h"

#include <gtest/gtest.h>

namespace braid::inline samples {
namespace {

TEST(TokenImbalance, IsTheMostOverTheMean) {
  EXPECT_DOUBLE_EQ(token_imbalance({30, 30, 30}), 1);
  EXPECT_DOUBLE_EQ(token_imbalance({10, 20, 60}), 2);
  EXPECT_DOUBLE_EQ(token_imbalance(std::vector<int64_t>{0, 0}), 1);
}

// Ranks wait for the fullest at the end of each mini-batch: what is even over the step is not.
TEST(TokenImbalance, CountsEachMiniBatch) {
  MiniBatch first, second;
  first.tokens = {{20, 40}, {20}};
  second.tokens = {{20}, {60}};
  EXPECT_DOUBLE_EQ(token_imbalance(Partition{{first, second}, {}}), 120.0 / 80);
  EXPECT_DOUBLE_EQ(token_imbalance(Partition{}), 1);
}

}  // namespace
}  // namespace braid::inline samples
