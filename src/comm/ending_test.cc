#include "comm/ending.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace braid::inline comm {
namespace {

// One process: calls stay registered, so one test tries both.
TEST(Ending, AllAreCalledAndOneThatHangsHoldsNobodyUp) {
  static std::atomic<int> called = 0;
  static std::atomic<bool> hangs = false;
  at_ending([] { ++called; });
  EXPECT_TRUE(run_endings(60));
  EXPECT_EQ(called, 1);
  hangs = true;
  at_ending([] {
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  at_ending([] { ++called; });
  EXPECT_FALSE(run_endings(0.2));
  EXPECT_EQ(called, 3);
  hangs = false;
  EXPECT_TRUE(run_endings(60));
}

}  // namespace
}  // namespace braid::inline comm
