#include "search/priced_parts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/test_problem.h"
#include "pricing/efficiency.h"

namespace braid::inline search {
namespace {

TEST(FastestSeconds, FallWithDevicesAndAreInfiniteWhereNothingFits) {
  const PlanningProblem problem = make_test_problem({.actor = "llama2-70b"});
  const CallPricer pricer = *CallPricer::make(problem, committed_calibration());
  const MeshSeconds seconds = fastest_seconds(pricer);
  const auto on = [&](const char* call, int devices) {
    return seconds(*find_call(problem.graph, call), *contiguous_mesh(problem.cluster, 0, devices));
  };
  EXPECT_EQ(on("update_actor", 1), INFINITY);
  EXPECT_LT(on("values", 8), on("values", 4));
  EXPECT_TRUE(std::isfinite(on("values", 1)));
  const MeshSeconds whole =
      fastest_seconds(pricer, [](const CallPlan& entry) { return entry.strategy.tp == 1; });
  EXPECT_GE(whole(*find_call(problem.graph, "values"), whole_cluster(problem.cluster)),
            on("values", 8));
}

// Each call fits alone on the devices that prices give it, all of them together do not.
TEST(PricedConstraints, AreThoseByWorkWhereNoPlanFits) {
  const PlanningProblem problem = make_test_problem({.actor = "llama2-70b", .nodes = 2});
  const CallPricer pricer = *CallPricer::make(problem, committed_calibration());
  const auto on = [&](int by_price) {
    const MakeConstraints make = [&, by_price](const MeshSeconds& seconds) {
      PlanConstraints out;
      const int devices = seconds ? by_price : 16;
      for (const Call& call : problem.graph.calls)
        if (uses_model(call)) out.meshes[call.name] = *contiguous_mesh(problem.cluster, 0, devices);
      return Result<PlanConstraints>(out);
    };
    return priced_constraints(make, pricer, {})->meshes.at("generate").devices.size();
  };
  EXPECT_EQ(on(1), 16U);
  EXPECT_EQ(on(16), 16U);
  const PlanningProblem small =
      make_test_problem({.actor = "llama3.2-1b", .critic = "llama3.2-1b"});
  const CallPricer of_small = *CallPricer::make(small, committed_calibration());
  const MakeConstraints half = [&](const MeshSeconds& seconds) {
    PlanConstraints out;
    for (const Call& call : small.graph.calls)
      if (uses_model(call))
        out.meshes[call.name] = *contiguous_mesh(small.cluster, 0, seconds ? 4 : 8);
    return Result<PlanConstraints>(out);
  };
  EXPECT_EQ(priced_constraints(half, of_small, {})->meshes.at("generate").devices.size(), 4U);
}

}  // namespace
}  // namespace braid::inline search
