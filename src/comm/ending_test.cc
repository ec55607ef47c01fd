#include "comm/ending.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace braid::inline comm {
namespace {

// Calls stay registered, also where the test is repeated.
TEST(Ending, AllAreCalledAndOneThatHangsHoldsNobodyUp) {
  static std::atomic<int> called = 0;
  static std::atomic<bool> hangs = false;
  static int counting = 0;
  const auto add = [] { at_ending([] { ++called; }), ++counting; };
  called = 0, add();
  EXPECT_TRUE(run_endings(60));
  EXPECT_EQ(called, counting);
  hangs = true;
  at_ending([] {
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  called = 0, add();
  EXPECT_FALSE(run_endings(0.2));
  EXPECT_EQ(called, counting);
  hangs = false;
  EXPECT_TRUE(run_endings(60));
}

}  // namespace
}  // namespace braid::inline comm
