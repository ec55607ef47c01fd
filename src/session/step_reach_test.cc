#include "session/step_reach.h"

#include <gtest/gtest.h>

namespace braid::inline session {
namespace {

StepProgress at(int64_t cursor, size_t next = 0) {
  StepProgress out;
  out.position.cursor = cursor, out.next = next;
  return out;
}

TEST(StepReach, AStepThatChangedNothingHasNotBegun) {
  StepReach reach;
  reach.begin(at(8), 3);
  EXPECT_FALSE(reach.passed(3, false));
  reach.move_start(at(12).position);
  EXPECT_EQ(reach.kept().position.cursor, 12);
  EXPECT_FALSE(reach.open());
}

TEST(StepReach, GoesOnBehindTheLastUpdate) {
  StepReach reach;
  reach.begin(at(8), 3);
  EXPECT_TRUE(reach.passed(4, false));
  EXPECT_FALSE(reach.has_noted(5)) << "an update that failed after weights had changed";
  reach.set_open(at(16, 9));
  // Taken up again: where it began says nothing any more.
  reach.begin(at(16), 4);
  EXPECT_TRUE(reach.passed(4, false)) << "it stays open";
  EXPECT_TRUE(reach.has_noted(4));
  EXPECT_EQ(reach.kept().next, 9u);
  reach.end();
  EXPECT_EQ(reach.kept().position.cursor, 8);
}

TEST(StepReach, AMovedRoleIsAChangeToo) {
  StepReach reach;
  reach.begin(at(0), 0);
  EXPECT_TRUE(reach.passed(0, true));
}

}  // namespace
}  // namespace braid::inline session
