#include "advise/placements.h"

#include <gmock/gmock.h>

#include "plan/placement.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "search/judge.h"
#include "search/priced_parts.h"

namespace braid::inline advise {
namespace {

using testing::HasSubstr;

PlacementAdvice advice_on(const PlanningProblem& problem, const PlanConstraints& stated = {}) {
  SearchOptions options;
  options.units.max_units = 1;
  options.units.threads = 1;
  options.judged = 2;
  options.polish = false;
  return compare_placements(problem, committed_calibration(), stated, options);
}

TEST(Placements, RowsAreTheBestInTheirPlacement) {
  const PlanningProblem problem = make_test_problem();
  const PlacementAdvice advice = advice_on(problem);
  ASSERT_EQ(advice.rows.size(), placement_names().size() + 1);
  double fastest = INFINITY;
  const CallPricer pricer = *CallPricer::make(problem, committed_calibration());
  const PartSizing sizing{{}, fastest_seconds(pricer, executed_options(problem).allowed)};
  for (const PlacementRow& row : advice.rows) {
    SCOPED_TRACE(row.name);
    ASSERT_TRUE(row.best) << row.reason;
    fastest = std::min(fastest, row.best->verdict.step_s);
    EXPECT_EQ(row.peak_bytes.size(), 8u);
    EXPECT_GT(row.field_bytes, 0);
    EXPECT_GT(row.inside_bytes, 0);
    if (row.name == "auto") continue;
    const CallMeshes meshes = *placement_meshes(row.name, problem, sizing);
    for (const CallPlan& call : row.best->plan.calls)
      EXPECT_EQ(mesh_text(call.mesh), mesh_text(meshes.at(call.call))) << call.call;
  }
  ASSERT_TRUE(advice.recommended);
  EXPECT_LE(advice.rows[*advice.recommended].best->verdict.step_s, 1.03 * fastest);
  const std::string text = placements_text(problem, advice);
  EXPECT_THAT(text, HasSubstr("recommended: placement="));
  EXPECT_EQ(placements_json(advice)["recommended"], advice.rows[*advice.recommended].name);
}

TEST(Placements, WhatDoesNotGoIsARowThatSaysWhy) {
  const PlanningProblem one =
      make_test_problem({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 1});
  const PlacementAdvice advice = advice_on(one);
  EXPECT_TRUE(advice.rows.front().best);
  for (const PlacementRow& row : advice.rows)
    if (row.name == "disaggregated" || row.name == "interleaved") {
      EXPECT_FALSE(row.best);
      EXPECT_THAT(row.reason, HasSubstr("2 disjoint parts need at least 2 devices"));
    }
  const PlanningProblem large =
      make_test_problem({.algorithm = "grpo", .actor = "llama2-70b", .devices = 1});
  const PlacementAdvice none = advice_on(large);
  EXPECT_FALSE(none.recommended);
  EXPECT_THAT(placements_text(large, none), HasSubstr("recommended: none, no placement fits"));
}

}  // namespace
}  // namespace braid::inline advise
