// Generators satisfy the rules of schedules; verification finds each way to break them.
#include "schedule/schedule.h"

#include <gmock/gmock.h>

namespace braid::inline schedule {
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

double unit_time(const ScheduleOp& op) { return op.kind == Kind::kForward ? 1 : 2; }

// Fill and drain cost stages - 1 passes: makespan = (m + p - 1)(f + b) (Narayanan et al., arXiv
// 2104.04473, §2.2.1).
TEST(Schedule, BubbleOfGpipeAndOneFOneBIsTheFormula) {
  for (int32_t p = 1; p <= 6; ++p)
    for (int32_t m = p; m <= 12; ++m) {
      EXPECT_DOUBLE_EQ(replay(one_f_one_b(p, m), unit_time).makespan, 3.0 * (m + p - 1));
      EXPECT_DOUBLE_EQ(replay(gpipe(p, m), unit_time).makespan, 3.0 * (m + p - 1));
    }
}

// Interleaving divides the bubble by the number of chunks: (m + (p - 1) / v)(f + b), a chunk taking
// 1 / v of the stage (the same, §2.2.2).
TEST(Schedule, InterleavingDividesTheBubble) {
  for (int32_t p = 1; p <= 4; ++p)
    for (int32_t v = 1; v <= 4; ++v)
      for (int32_t groups = 1; groups <= 4; ++groups) {
        const Schedule schedule = interleaved_one_f_one_b(p, v, p * groups);
        ASSERT_TRUE(verify(schedule).ok()) << p << " " << v << " " << groups;
        const double span =
            replay(schedule, [&](const ScheduleOp& op) { return unit_time(op) / v; }).makespan;
        EXPECT_NEAR(span, 3.0 * (p * groups + (p - 1.0) / v), 1e-9) << p << v << groups;
      }
}

TEST(Schedule, InterleavingKeepsMoreChunksAlive) {
  // Warm-up of 2 (p - 1 - s) + (v - 1) p forwards, plus the one in progress.
  const Schedule schedule = interleaved_one_f_one_b(4, 2, 16);
  for (int32_t stage = 0; stage < 4; ++stage)
    EXPECT_EQ(peak_in_flight(schedule, stage), 2 * (3 - stage) + 4 + 1);
}

TEST(Schedule, ForwardOnlyTakesOnePassPerStageMore) {
  const Schedule schedule = forward_only(3, 1, 5);
  ASSERT_TRUE(verify(schedule).ok());
  EXPECT_DOUBLE_EQ(replay(schedule, unit_time).makespan, 5 + 2);
  EXPECT_DOUBLE_EQ(replay(schedule, unit_time, 0.5).makespan, 5 + 2 + 2 * 0.5);
  ASSERT_TRUE(verify(forward_only(3, 2, 7)).ok());
  Schedule broken = schedule;
  broken.per_stage[0][0].kind = Kind::kBackward;
  EXPECT_THAT(verify(broken).message(), HasSubstr("list of stage 0"));
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
}  // namespace braid::inline schedule
