// Fused schedules: the published instances, bounds, verification.
#include <gmock/gmock.h>

#include "schedule/bounds.h"
#include "schedule/fused_greedy.h"
#include "schedule/published_instances.h"

namespace braid {
namespace {

TEST(Fused, GreedyAndBoundsOfThePublishedInstances) {
  for (const PublishedInstance& instance : published_instances()) {
    SCOPED_TRACE(instance.name);
    const PipelineProblem problem = problem_of(instance);
    ASSERT_TRUE(check_problem(problem).ok());
    const OpGraph graph = compile_ops(problem);
    EXPECT_EQ(lower_bound(graph), instance.bound);
    const PipelineTimeline timeline = timeline_of(graph, greedy_order(graph));
    ASSERT_EQ(verify(problem, timeline), ok_status());
    EXPECT_EQ(makespan(timeline), instance.greedy_makespan);
    const std::vector<double> peaks = peak_memory(problem, timeline);
    EXPECT_NEAR(*std::max_element(peaks.begin(), peaks.end()), instance.greedy_peak, 1e-9);
  }
}

}  // namespace
}  // namespace braid
