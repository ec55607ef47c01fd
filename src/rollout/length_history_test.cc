#include "rollout/length_history.h"

#include <gtest/gtest.h>

namespace braid::inline rollout {
namespace {

TEST(LengthHistory, KnowsEachPromptAndTheMeanOfAll) {
  LengthHistory history;
  EXPECT_EQ(history.expected({1, 2}), 0);
  history.note({1, 2}, 100);
  history.note({2, 1}, 20);
  EXPECT_EQ(history.expected({1, 2}), 100);
  EXPECT_EQ(history.expected({2, 1}), 20);
  EXPECT_EQ(history.expected({1}), 60);
}

TEST(LengthHistory, FollowsWhatAPromptBecomes) {
  LengthHistory history;
  history.note({7}, 100);
  history.note({7}, 20);
  EXPECT_EQ(history.expected({7}), 80);
  for (int i = 0; i < 30; ++i) history.note({7}, 20);
  EXPECT_EQ(history.expected({7}), 20);
}

}  // namespace
}  // namespace braid::inline rollout
