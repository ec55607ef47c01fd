#include "checkpoint/save_schedule.h"

#include <gtest/gtest.h>

namespace braid::inline checkpoint {
namespace {

CheckpointConfig every(int64_t steps, double minutes) {
  CheckpointConfig config;
  config.every_steps = steps;
  config.every_minutes = minutes;
  return config;
}

TEST(SaveSchedule, StepsAlone) {
  const SaveSchedule schedule(every(3, 0), 0);
  for (int64_t step = 1; step <= 7; ++step)
    EXPECT_EQ(schedule.is_due(step, 1e9), step == 3 || step == 6) << step;
}

TEST(SaveSchedule, MinutesCountFromTheStartAndFromTheLastSave) {
  SaveSchedule schedule(every(0, 10), 1000);
  EXPECT_FALSE(schedule.is_due(1, 1000));
  EXPECT_FALSE(schedule.is_due(2, 1599.9));
  EXPECT_TRUE(schedule.is_due(3, 1600));
  schedule.note_save(1700);
  EXPECT_FALSE(schedule.is_due(4, 2200));
  EXPECT_TRUE(schedule.is_due(5, 2300));
}

TEST(SaveSchedule, EitherIsEnoughAndNeitherIsNever) {
  SaveSchedule both(every(5, 1), 0);
  EXPECT_TRUE(both.is_due(5, 1));
  EXPECT_TRUE(both.is_due(6, 60));
  EXPECT_FALSE(both.is_due(6, 59));
  both.note_save(59);
  EXPECT_FALSE(both.is_due(7, 100)) << "a save by steps begins the minutes anew";
  EXPECT_FALSE(SaveSchedule(every(0, 0), 0).is_due(5, 1e12));
}

}  // namespace
}  // namespace braid::inline checkpoint
