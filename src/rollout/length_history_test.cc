#include "rollout/length_history.h"

#include <gtest/gtest.h>

namespace braid::inline rollout {
namespace {

TEST(LengthHistory, KnowsEachPromptAndTheMeanOfAll) {
  LengthHistory history;
  EXPECT_EQ(history.expected(12), 0);
  history.note(12, 100);
  history.note(21, 20);
  EXPECT_EQ(history.expected(12), 100);
  EXPECT_EQ(history.expected(21), 20);
  EXPECT_EQ(history.expected(1), 60);
}

TEST(LengthHistory, FollowsWhatAPromptBecomes) {
  LengthHistory history;
  history.note(7, 100);
  history.note(7, 20);
  EXPECT_EQ(history.expected(7), 80);
  for (int i = 0; i < 30; ++i) history.note(7, 20);
  EXPECT_EQ(history.expected(7), 20);
}

TEST(LengthHistory, ComesBackFromACheckpoint) {
  LengthHistory history, other;
  history.note(7, 100);
  history.note(7, 20);
  history.note(8, 5);
  ASSERT_TRUE(other.load(*parse_json(history.json().dump(), "state.json")).ok());
  for (LengthHistory* each : {&history, &other}) each->note(7, 3);
  for (const int64_t prompt : {7, 8, 1})
    EXPECT_EQ(other.expected(prompt), history.expected(prompt));
  Json torn = history.json();
  torn["means"].erase(0);
  EXPECT_EQ(other.load(torn).code(), Code::kDataLoss);
}

}  // namespace
}  // namespace braid::inline rollout
