#include "program/carried_groups.h"

#include <gtest/gtest.h>

namespace braid::inline program {
namespace {

using Taken = std::optional<std::vector<bool>>;

constexpr GroupInFlight kRuns = {}, kDone = {true, false}, kDueRuns = {false, true},
                        kDueDone = {true, true};

TEST(TakenGroups, AreTheFirstThatHaveFinished) {
  EXPECT_EQ(taken_groups({kRuns, kDone, kRuns}, 2), Taken());
  EXPECT_EQ(taken_groups({kRuns, kDone, kDone, kDone}, 2), Taken({false, true, true, false}));
}

TEST(TakenGroups, WaitForThoseThatAreDue) {
  EXPECT_EQ(taken_groups({kDueRuns, kDone, kDone}, 2), Taken());
  EXPECT_EQ(taken_groups({kDone, kDone, kDueDone, kDone}, 2), Taken({true, false, true, false}));
}

}  // namespace
}  // namespace braid::inline program
