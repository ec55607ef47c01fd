// What a step gains where an update begins while the samples of its later mini-batches are scored.
#include "search/early_update.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "program/early_update_testing.h"

namespace braid::inline search {
namespace {

using testing::HasSubstr;

TEST(EarlyUpdateGain, IsThatOfTheFastestNumberOfMinibatches) {
  const PlanningProblem problem = scored_beside(64, 4);
  ExecutionPlan together = uniform_plan(problem, 4, 1, 1);
  EXPECT_EQ(early_update_text(early_update_gain(together, problem, committed_calibration())),
            "training beside scoring: not possible: no call can score samples beside an update: "
            "old_logprob shares devices with update_actor; ref_logprob shares devices with "
            "update_actor\n");
  ExecutionPlan apart = in_halves(problem, {"update_actor"}, 0);
  const auto gain = early_update_gain(apart, problem, committed_calibration());
  ASSERT_TRUE(gain.ok()) << gain.status().message();
  EXPECT_LT(gain->early_s, gain->whole_s);
  std::map<int64_t, double> steps;
  for (const int64_t first : {1, 2}) {
    apart.fusion.train_beside_scoring = first;
    const auto verdict = simulate_plan(apart, problem, committed_calibration(), {});
    ASSERT_TRUE(verdict.ok()) << verdict.status().message();
    steps[first] = verdict->step_s;
  }
  EXPECT_EQ(steps.at(gain->minibatches), gain->early_s);
  EXPECT_EQ(std::min(steps.at(1), steps.at(2)), gain->early_s);
  EXPECT_THAT(early_update_text(gain), HasSubstr("fusion: {train_beside_scoring: "));
  PlanningProblem many = problem;
  many.workload.prompts = 128, many.workload.minibatches = 256;
  apart.fusion.train_beside_scoring = 2;
  EXPECT_THAT(simulate_plan(apart, many, committed_calibration(), {}).status().message(),
              HasSubstr("are 128 parts, which must be 2 to 100; set it to at least 3, or to 0"));
  EXPECT_THAT(early_update_text(EarlyUpdateGain{1, 9.99, 10}),
              HasSubstr("not worth it: the step takes 9.990 s"));
}

}  // namespace
}  // namespace braid::inline search
