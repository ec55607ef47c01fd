#include "optimize/shared_memo.h"

#include <gtest/gtest.h>

#include <string>

namespace braid::optimize {
namespace {

TEST(SharedMemo, KeepsTheFirstValueOfAKey) {
  SharedMemo<int, std::string> memo;
  EXPECT_EQ(memo.find(1), nullptr);
  memo.keep(1, "one");
  memo.keep(1, "another");
  ASSERT_NE(memo.find(1), nullptr);
  EXPECT_EQ(*memo.find(1), "one");
}

// Who has a value may keep it.
TEST(SharedMemo, ForgetsAllWhereMoreIsKeptThanItMay) {
  SharedMemo<int, std::string> memo(5);
  memo.keep(1, "one", 3);
  memo.keep(2, "two", 2);
  const auto one = memo.find(1);
  memo.keep(3, "three", 1);
  EXPECT_EQ(memo.find(1), nullptr);
  EXPECT_EQ(memo.find(2), nullptr);
  ASSERT_NE(memo.find(3), nullptr);
  EXPECT_EQ(*one, "one");
}

}  // namespace
}  // namespace braid::optimize
