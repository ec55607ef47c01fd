// Fused schedules: the published instances, problems and their errors, bounds, search.
#include <gmock/gmock.h>

#include <limits>

#include "fuse/bounds.h"
#include "fuse/classic.h"
#include "fuse/fuse.h"
#include "fuse/gantt.h"
#include "fuse/greedy.h"
#include "fuse/problem_json.h"
#include "fuse/published_instances.h"
#include "fuse/swap_walk.h"
#include "fuse/unit.h"

namespace braid::inline fuse {
namespace {

using testing::HasSubstr;

double highest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

double makespan_of(const PipelineProblem& problem, const FusedOrder& order) {
  const OpGraph graph = compile_ops(problem);
  const PipelineTimeline timeline = timeline_of(graph, class_order(graph, order));
  EXPECT_EQ(verify(problem, timeline), ok_status());
  return makespan(timeline);
}

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
    EXPECT_NEAR(highest(peak_memory(problem, timeline)), instance.greedy_peak, 1e-9);
  }
}

// A random problem: V placements, copies, uneven stages, lag, split backwards; times in halves, of
// which no sum is rounded, in tenths and in thirds, and very small.
PipelineProblem random_problem(uint64_t seed) {
  RandomStream random(seed, 7);
  PipelineProblem problem;
  problem.nodes = int32_t(1 + random.below(4));
  static constexpr double kUnits[] = {0.5, 0.1, 1.0 / 3, 1e-13};
  const double unit = kUnits[random.below(4)];
  problem.communication = unit * double(random.below(3));
  const uint64_t pipelines = 1 + random.below(3);
  for (uint64_t p = 0; p < pipelines; ++p) {
    Pipeline pipeline;
    pipeline.name = cat("p", p);
    pipeline.micro_batches = int32_t(1 + random.below(4));
    const bool split = random.below(3) == 0;
    const uint64_t stages = 1 + random.below(5);
    for (uint64_t s = 0; s < stages; ++s) {
      pipeline.stages.push_back(int32_t(random.below(uint64_t(problem.nodes))));
      pipeline.forward.push_back(unit * double(1 + random.below(3)));
      pipeline.backward.push_back(unit * double(random.below(6)));
      if (split) pipeline.weight.push_back(unit * double(1 + random.below(6)));
      pipeline.memory.push_back(double(random.below(3)));
    }
    problem.pipelines.push_back(std::move(pipeline));
  }
  if (random.below(2) == 0) {
    problem.memory_limit = memory_lower_bound(compile_ops(problem)) + double(random.below(4));
  }
  return problem;
}

TEST(Fused, EveryFoundScheduleIsValidAndAboveTheBound) {
  int proven = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const PipelineProblem problem = random_problem(seed);
    FuseOptions options;
    options.units.max_units = 8;
    options.objective = seed % 2 == 0 ? FuseObjective::kMemory : FuseObjective::kLatency;
    const Result<FuseResult> result = fuse_pipelines(problem, options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(verify(problem, result->timeline), ok_status());
    EXPECT_LE(lower_bound(compile_ops(problem)), result->makespan + 1e-6);
    EXPECT_GE(result->peak_memory, memory_lower_bound(compile_ops(problem)) - 1e-9);
    proven += result->optimal ? 1 : 0;
  }
  EXPECT_GE(proven, 30);
}

// A V of N nodes with memory for N micro-batches is proven optimal: N - 1 above what the load and
// the ways to and from a node give.
TEST(Fused, TheBoundOfAVKnowsItsMemory) {
  for (const int32_t nodes : {4, 8}) {
    PipelineProblem problem;
    problem.nodes = nodes;
    Pipeline v{"v", {}, 2 * nodes, {}, {}, {}, {}};
    for (int32_t s = 0; s < 2 * nodes; ++s) v.stages.push_back(std::min(s, 2 * nodes - 1 - s));
    v.forward.assign(2 * nodes, 1);
    v.backward.assign(2 * nodes, 2);
    v.memory.assign(2 * nodes, 1);
    problem.pipelines = {v};
    const double without = lower_bound(compile_ops(problem));
    problem.memory_limit = 2 * nodes;
    EXPECT_EQ(lower_bound(compile_ops(problem)), without + nodes - 1);
    FuseOptions options;
    options.units.max_units = 20;
    const Result<FuseResult> result = fuse_pipelines(problem, options);
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result->optimal) << result->makespan;
  }
}

TEST(Fused, ThreadsDoNotChangeTheResult) {
  PipelineProblem problem = bidirectional_problem(4, 8, {});
  problem.memory_limit = 4;
  FuseOptions options;
  options.objective = FuseObjective::kMemory;
  options.units.max_units = 20;
  const Result<FuseResult> one = fuse_pipelines(problem, options);
  options.units.threads = 3;
  const Result<FuseResult> three = fuse_pipelines(problem, options);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(one->timeline, three->timeline);
  EXPECT_EQ(one->units, three->units);
}

// What a rule's run says of itself is what its order gives, and a cap of its own holds.
TEST(Fused, RulesKeepTheirCapAndKnowTheirPeak) {
  int capped = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const OpGraph graph = compile_ops(random_problem(seed));
    RandomStream random(seed, 3);
    ListSimulator simulator(graph);
    ListRule rule = random_rule(graph, random);
    const double no_limit = std::numeric_limits<double>::infinity();
    const ListOutcome loose = simulator.run(rule, no_limit);
    if (loose.missing > 0) continue;
    const FuseCandidate found = rated(graph, simulator.order());
    EXPECT_NEAR(loose.peak, found.peak, graph.memory_rounding);
    EXPECT_LE(found.makespan, loose.makespan + graph.rounding);  // less where it waits in vain
    rule.cap = 0.9 * loose.peak;
    const ListOutcome tight = simulator.run(rule, no_limit);
    EXPECT_LE(tight.peak, rule.cap + graph.memory_rounding);
    capped += tight.missing == 0 ? 1 : 0;
  }
  EXPECT_GT(capped, 10);
}

// At the least latency a twentieth less memory than the published schedule.
TEST(Fused, FindsLessMemoryThanPublished) {
  const PublishedInstance& one = published_instances()[6];
  FuseOptions options;
  options.objective = FuseObjective::kMemory;
  options.units.max_units = 12;
  const Result<FuseResult> found = fuse_pipelines(problem_of(one), options);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->makespan, one.bound);
  EXPECT_LE(found->peak_memory, 0.95 * one.peak);
}

TEST(Fused, ReversedScheduleIsOneOfTheProblem) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const OpGraph graph = compile_ops(random_problem(seed));
    const OpGraph mirror = reversed(graph);
    ClassOrder order = greedy_order(mirror);
    const double makespan = earliest_starts(mirror, order).makespan;
    for (auto& list : order) std::reverse(list.begin(), list.end());
    EXPECT_NEAR(earliest_starts(graph, order).makespan, makespan, 1e-9) << seed;
  }
}

TEST(Fused, WalksKnowTheirMakespanAndPeak) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const OpGraph graph = compile_ops(random_problem(seed));
    SwapWalk walk(graph);
    walk.load(greedy_order(graph));
    RandomStream random(seed, 1);
    const double deadline = walk.makespan();
    walk.lower_memory({.memory_cap = 0,
                       .deadline = deadline,
                       .work = 20'000,
                       .first_temperature = 4,
                       .last_temperature = 0.1},
                      random);
    EXPECT_LE(walk.makespan(), deadline + 1e-6);
    EXPECT_NEAR(walk.makespan(), earliest_starts(graph, walk.order()).makespan, 1e-9);
    EXPECT_NEAR(walk.peak(), highest(peak_of_order(graph, walk.order())), 1e-9);
    const double cap = walk.peak();
    walk.lower_makespan({.memory_cap = cap,
                         .deadline = 0,
                         .work = 20'000,
                         .first_temperature = 1,
                         .last_temperature = 0.1},
                        random);
    EXPECT_LE(walk.peak(), cap + 1e-6);
    EXPECT_NEAR(walk.makespan(), earliest_starts(graph, walk.order()).makespan, 1e-9);
  }
}

TEST(Fused, ClassicSchedulesHaveTheirPublishedLengths) {
  for (int32_t p = 2; p <= 8; p += 2)
    for (int32_t m = 2 * p; m <= 3 * p; m += p) {
      SCOPED_TRACE(cat(p, " ", m));
      const PipelineProblem whole = even_pipeline_problem(p, 1, m, {});
      EXPECT_EQ(makespan_of(whole, pipeline_order(gpipe(p, m))), 3.0 * (m + p - 1));
      EXPECT_EQ(makespan_of(whole, pipeline_order(one_f_one_b(p, m))), 3.0 * (m + p - 1));
      const PipelineProblem chunks = even_pipeline_problem(p, 2, m, {});
      EXPECT_EQ(makespan_of(chunks, pipeline_order(interleaved_one_f_one_b(p, 2, m))),
                6.0 * m + 3.0 * (p - 1));
      // (p - 1)(F + B - W) beyond the work, at 1F1B's memory (Qi et al., table 2).
      const EvenStage thirds{.forward = 1, .backward = 1, .weight = 1};
      const PipelineProblem split = even_pipeline_problem(p, 1, m, thirds);
      const FusedOrder zero_bubble = zero_bubble_h1(p, m);
      EXPECT_EQ(makespan_of(split, zero_bubble), 3.0 * m + (p - 1));
      const OpGraph graph = compile_ops(split);
      EXPECT_EQ(highest(peak_of_order(graph, class_order(graph, zero_bubble))), p);
    }
}

TEST(Fused, TwoDirectionsAreShorterThanOne) {
  const PipelineProblem problem = bidirectional_problem(8, 8, {});
  const double length = makespan_of(problem, one_f_one_b_of_all(problem));
  EXPECT_LT(length, 3.0 * (8 + 7));
  EXPECT_GE(length, lower_bound(compile_ops(problem)));
}

TEST(Fused, PublishedAnnealingImprovesOnGreedy) {
  const OpGraph graph = compile_ops(problem_of(published_instances()[2]));
  RandomStream random(1, 1);
  const ClassOrder order = published_annealing(graph, {.steps = 20'000}, random);
  EXPECT_LT(earliest_starts(graph, order).makespan, 239);
}

TEST(Fused, ProblemsPassThroughJson) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const PipelineProblem problem = random_problem(seed);
    const Result<PipelineProblem> read =
        parse_pipeline_problem(pipeline_problem_json(problem).dump(), "test");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, problem);
  }
}

TEST(Fused, BadProblemsSayWhereAndHowToMend) {
  const std::string good = R"({"nodes": 2, "pipelines": [{"name": "a", "stages": [0, 1],
    "micro_batches": 2, "forward": 1, "backward": 2, "memory": 3}], "memory_limit": 4})";
  struct Case {
    std::string from, to, says, remedy;
  };
  const std::vector<Case> cases = {
      {"[0, 1]", "[0, 2]", "stage 1 is on node 2", "nodes are 0 to 1"},
      {"[0, 1]", "[]", "'stages' is empty", "list the node"},
      {"\"forward\": 1", "\"forward\": -1", "'forward' of stage 0 is -1", "must not be negative"},
      {"\"backward\": 2", "\"backward\": [2]", "1 numbers for 2 stages", "one per stage"},
      {"\"micro_batches\": 2", "\"micro_batches\": 1000000000", "4000000000 ops",
       "lower micro_batches"},
      {"\"micro_batches\": 2", "\"micro_batches\": 1.5", "must be an integer", "1.5"},
      {"\"micro_batches\": 2", "\"micro_batches\": 0", "'micro_batches' is 0", "at least 1"},
      {"\"memory_limit\": 4", "\"memory_limit\": 2", "takes 3 on node 0", "raise the limit"},
      {"\"memory\"", "\"memroy\"", "unknown key 'memroy'", "did you mean 'memory'"},
      {"\"memory\": 3", "\"memory\": \"3\"", "'memory' must be a number", "string"},
      {"\"nodes\": 2", "\"nodes\": 0", "'nodes' is 0", "must be 1 to"},
      {"[0, 1]", "[0, -1]", "stage 1 is on node -1", "nodes are 0 to 1"},
      {"[0, 1]", "[0, 0.5]", "'stages[1]' must be an integer", "0.5"},
      {"\"backward\": 2", "\"backward\": [2, -0.5]", "stage 1 is -0.5", "must not be negative"},
      {"\"backward\": 2", "\"backward\": 1e300", "the most is 1e15", "larger unit"},
      {"\"backward\": 2", "\"backward\": NaN", "not valid JSON", "line"},
      {"\"backward\": 2", "\"backward\": 2, \"weight\": -1", "'weight' of stage 0", "negative"},
      {"\"backward\": 2", "\"backward\": 2, \"weight\": []", "'weight' is empty", "leave it out"},
      {"\"memory_limit\": 4", "\"memory_limit\": -1", "'memory_limit' is -1", "or null"},
      {"\"nodes\": 2", "\"nodes\": 1000000000", "'nodes' is 1000000000", "1 to 4096"},
      {"\"nodes\": 2", "\"nodes\": 2, \"nodes\": 2", "key 'nodes' occurs twice", "remove one"},
      {"\"memory_limit\": 4", "\"communication\": -1", "'communication' is -1", "0 to 1e15"},
      {"\"name\": \"a\", ", "", "missing key 'name'", "pipelines[0]"},
      {"}]", "}", "not valid JSON", "line"},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.to);
    std::string text = good;
    text.replace(text.find(bad.from), bad.from.size(), bad.to);
    const Result<PipelineProblem> read = parse_pipeline_problem(text, "problem.json");
    const Status status = read.ok() ? check_problem(*read) : read.status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(status.message(), testing::AllOf(HasSubstr(bad.says), HasSubstr(bad.remedy)));
  }
}

TEST(Fused, VerificationFindsEachBrokenRule) {
  PipelineProblem problem = even_pipeline_problem(2, 1, 2, {});
  problem.communication = 0.5;
  const OpGraph graph = compile_ops(problem);
  const PipelineTimeline good =
      timeline_of(graph, class_order(graph, pipeline_order(one_f_one_b(2, 2))));
  ASSERT_EQ(verify(problem, good), ok_status());
  PipelineTimeline bad = good;
  bad[1][0].start -= 0.5;
  bad[1][0].end -= 0.5;
  EXPECT_THAT(verify(problem, bad).message(), HasSubstr("but its input is there at 1.5"));
  bad = good;
  bad[0][1].end += 1;
  EXPECT_THAT(verify(problem, bad).message(), HasSubstr("runs for 2, not for 1"));
  bad = good;
  bad[0][1].op = bad[0][0].op;
  EXPECT_THAT(verify(problem, bad).message(), HasSubstr("runs twice"));
  bad = good;
  bad[0].pop_back();
  EXPECT_THAT(verify(problem, bad).message(), HasSubstr("schedule of 7 ops"));
  bad = good;
  std::swap(bad[0], bad[1]);
  EXPECT_THAT(verify(problem, bad).message(), HasSubstr("runs on node 0"));
  problem.memory_limit = 1;
  EXPECT_THAT(verify(problem, good).message(), HasSubstr("node 0 holds 2"));
}

TEST(Fused, DrawingsShowEveryOp) {
  const PipelineProblem problem = bidirectional_problem(2, 4, {});
  const OpGraph graph = compile_ops(problem);
  const PipelineTimeline timeline = timeline_of(graph, greedy_order(graph));
  const std::string page = timeline_page(problem, timeline, "a <title>");
  EXPECT_THAT(page, HasSubstr("a &lt;title&gt;"));
  size_t cells = 0;
  for (size_t at = page.find("<title>forward"); at != std::string::npos;
       at = page.find("<title>forward", at + 1))
    ++cells;
  EXPECT_EQ(cells, 8U);
}

}  // namespace
}  // namespace braid::inline fuse
