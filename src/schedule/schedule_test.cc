// Generators satisfy the rules of schedules; verification finds each way to break them.
#include "schedule/schedule.h"

#include <gmock/gmock.h>

namespace braid {
namespace {

using Kind = ScheduleOp::Kind;
using testing::HasSubstr;

TEST(Schedule, GeneratorsAreValidForAllSizes) {
  for (int32_t stages = 1; stages <= 6; ++stages) {
    for (int32_t micro_batches = 0; micro_batches <= 9; ++micro_batches) {
      EXPECT_TRUE(verify(gpipe(stages, micro_batches)).ok()) << stages << " " << micro_batches;
      EXPECT_TRUE(verify(one_f_one_b(stages, micro_batches)).ok())
          << stages << " " << micro_batches;
    }
  }
}

TEST(Schedule, OneStageOfOneFOneBAlternates) {
  const Schedule expected{1,
                          2,
                          {{{Kind::kForward, 0, 0},
                            {Kind::kBackward, 0, 0},
                            {Kind::kForward, 0, 1},
                            {Kind::kBackward, 0, 1}}}};
  EXPECT_EQ(one_f_one_b(1, 2), expected);
  EXPECT_NE(gpipe(1, 2), expected);
}

TEST(Schedule, OneFOneBBoundsActivationsByTheStagesBelow) {
  const int32_t stages = 4, micro_batches = 8;
  for (int32_t stage = 0; stage < stages; ++stage) {
    EXPECT_EQ(peak_in_flight(one_f_one_b(stages, micro_batches), stage), stages - stage);
    EXPECT_EQ(peak_in_flight(gpipe(stages, micro_batches), stage), micro_batches);
  }
}

TEST(Schedule, VerificationNamesTheBrokenOp) {
  Schedule schedule = gpipe(2, 2);
  std::swap(schedule.per_stage[1][0], schedule.per_stage[1][3]);
  EXPECT_THAT(verify(schedule).message(),
              HasSubstr("backward of micro-batch 0 on stage 1 comes before its forward"));
  schedule = gpipe(2, 2);
  schedule.per_stage[0][1].micro_batch = 0;
  EXPECT_THAT(verify(schedule).message(),
              HasSubstr("forward of micro-batch 0 on stage 0 comes twice"));
  schedule = gpipe(2, 2);
  schedule.per_stage[0].pop_back();
  EXPECT_THAT(verify(schedule).message(),
              HasSubstr("backward of micro-batch 0 on stage 0 is missing"));
  schedule = gpipe(2, 2);
  schedule.per_stage[0][1].micro_batch = 2;
  EXPECT_THAT(verify(schedule).message(), HasSubstr("list of stage 0"));
  schedule = gpipe(2, 2);
  schedule.per_stage.pop_back();
  EXPECT_THAT(verify(schedule).message(), HasSubstr("has 1 lists"));
}

TEST(Schedule, VerificationFindsStagesThatWaitForEachOther) {
  // Stage 0 wants a gradient of micro-batch 0 before it sends micro-batch 1, which stage 1 wants
  // before it returns any gradient.
  Schedule schedule{2, 2, {{}, gpipe(2, 2).per_stage[1]}};
  schedule.per_stage[0] = {{Kind::kForward, 0, 0},
                           {Kind::kBackward, 0, 0},
                           {Kind::kForward, 0, 1},
                           {Kind::kBackward, 0, 1}};
  EXPECT_THAT(verify(schedule).message(), HasSubstr("waits forever"));
}

}  // namespace
}  // namespace braid
