// The tabulated search: the fast evaluator against the literal one, the solver against enumeration,
// pruning, determinism, and every way a problem file can be wrong.
#include <gmock/gmock.h>

#include <numeric>

#include "tabular/domain.h"
#include "tabular/price.h"
#include "tabular/solver.h"
#include "tabular/testing.h"

namespace braid::tabular {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const optimize::UnitOptions kOneThread = {
    .threads = 1, .max_units = INT64_MAX, .stop = {}, .elapsed_s = {}};

SolveOptions solve_options(uint64_t seed) { return {.seed = seed, .units = kOneThread}; }

// Fast price of a plan: the segments of one iteration, times the iterations.
int64_t segments_cost_us(const Model& model, const Plan& plan) {
  std::vector<Candidate> chosen;
  for (int c = 0; c < model.num_calls; ++c)
    for (const Candidate& candidate : model.candidates[c])
      if (candidate.option == plan[c]) chosen.push_back(candidate);
  SegmentScratch scratch;
  int64_t total_us = 0;
  for (const CompiledSegment& segment : model.segments)
    total_us += segment_time_us(model, segment, chosen, scratch);
  return total_us * model.problem->iterations;
}

TEST(TablePrice, SegmentsAgreeWithTheLiteralEvaluator) {
  for (int shape = 0; shape < kNumShapes; ++shape)
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Problem problem = random_problem({.shape = shape, .seed = seed, .devices = 8});
      const Result<Model> model = compile_model(problem, Pruning::kNone);
      ASSERT_TRUE(model.ok()) << model.status().message();
      RandomStream random(seed, 100);
      for (int i = 0; i < 25; ++i) {
        const Plan plan = random_plan(problem, random);
        ASSERT_EQ(segments_cost_us(*model, plan), price_plan(problem, plan).cost_us)
            << "shape " << shape << " seed " << seed;
      }
    }
}

TEST(TableDomain, IncrementalPricesEqualFullOnes) {
  const Problem problem = random_problem({.shape = 0, .seed = 4, .options = 8, .devices = 8});
  const Result<Model> model = compile_model(problem);
  ASSERT_TRUE(model.ok());
  const PlanDomain domain(*model);
  RandomStream random(5, 0);
  PlanState state = domain.random_state(random);
  for (int i = 0; i < 500; ++i) {
    const PlanChange change = domain.propose(state, random);
    const PlanCost announced = domain.cost_after(state, change);
    domain.apply(state, change);
    ASSERT_EQ(announced, domain.cost(state));
    const Price price = price_plan(problem, plan_of(state.chosen));
    ASSERT_EQ(state.cost.time_us * problem.iterations, price.cost_us);
    ASSERT_EQ(state.cost.excess_bytes,
              std::max<int64_t>(0, price.peak_bytes - problem.device_memory_bytes));
  }
}

// Exhaustive truth for all shapes, with and without room in memory: cost, proof, bound, and that
// the plan handed out has the price reported.
TEST(TableSolver, EqualsEnumerationOnSmallProblems) {
  int infeasible = 0;
  for (int shape = 0; shape < kNumShapes; ++shape)
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const int64_t capacity = seed % 3 == 0 ? 11 : 24;
      const Problem problem = random_problem(
          {.shape = shape, .seed = seed, .options = 4, .devices = 4, .capacity = capacity});
      const Result<Solution> solution = solve(problem, solve_options(seed));
      ASSERT_TRUE(solution.ok()) << solution.status().message();
      const std::optional<int64_t> truth = enumerate_optimum(problem);
      SCOPED_TRACE(testing::Message() << "shape " << shape << " seed " << seed);
      ASSERT_TRUE(solution->proven);
      if (!truth) {
        ++infeasible;
        EXPECT_THAT(solution->infeasible_reason, HasSubstr("fits"));
        continue;
      }
      ASSERT_TRUE(solution->price && solution->price->feasible);
      EXPECT_EQ(solution->price->cost_us, *truth);
      EXPECT_EQ(solution->lower_bound_us, *truth);
      EXPECT_EQ(price_plan(problem, *solution->plan), *solution->price);
    }
  EXPECT_GT(infeasible, 0) << "the problems should include some without a solution";
}

TEST(TableSolver, PruningKeepsAnOptimum) {
  int dropped = 0;
  for (int shape = 0; shape < kNumShapes; ++shape)
    for (uint64_t seed = 50; seed < 56; ++seed) {
      const Problem problem =
          random_problem({.shape = shape, .seed = seed, .options = 5, .devices = 4});
      const std::optional<int64_t> truth = enumerate_optimum(problem);
      const Result<Model> model = compile_model(problem);
      ASSERT_EQ(model.ok(), truth.has_value());
      if (!truth) continue;
      Problem pruned = problem;
      for (int c = 0; c < model->num_calls; ++c) {
        pruned.calls[c].options.clear();
        for (const Candidate& kept : model->candidates[c])
          pruned.calls[c].options.push_back(problem.calls[c].options[kept.option]);
        dropped +=
            static_cast<int>(problem.calls[c].options.size() - pruned.calls[c].options.size());
      }
      EXPECT_EQ(enumerate_optimum(pruned), truth) << "shape " << shape << " seed " << seed;
    }
  EXPECT_GT(dropped, 50) << "the problems should give pruning something to do";
}

// Whatever the number of units: the bound is below the truth, the cost above it and that of the
// plan handed out.
TEST(TableSolver, BoundsHoldWhereverTheSearchStops) {
  for (int shape = 0; shape < kNumShapes; ++shape)
    for (uint64_t seed = 200; seed < 212; ++seed) {
      const Problem problem = random_problem(
          {.shape = shape, .seed = seed, .options = 5, .devices = 8, .capacity = 22});
      const std::optional<int64_t> truth = enumerate_optimum(problem);
      if (!truth) continue;
      SolveOptions options = solve_options(seed);
      options.units.max_units = 1 + static_cast<int64_t>(seed % 3) * 8;
      const Result<Solution> solution = solve(problem, options);
      ASSERT_TRUE(solution.ok()) << solution.status().message();
      SCOPED_TRACE(testing::Message() << "shape " << shape << " seed " << seed);
      EXPECT_LE(solution->lower_bound_us, *truth);
      ASSERT_TRUE(solution->price && solution->plan);
      EXPECT_EQ(price_plan(problem, *solution->plan), *solution->price);
      if (solution->price->feasible) {
        EXPECT_GE(solution->price->cost_us, *truth);
      }
    }
}

// What a segment takes at least in plans below a limit must not exceed what it takes in the best.
TEST(TableRoot, SegmentsAloneTakeNoLongerThanInTheOptimum) {
  int above_first_bounds = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Problem problem =
        random_problem({.shape = 0, .seed = seed, .options = 12, .devices = 8, .capacity = 26});
    const Result<Model> model = compile_model(problem);
    ASSERT_TRUE(model.ok());
    const Result<Solution> best = solve(problem, solve_options(seed));
    ASSERT_TRUE(best.ok() && best->proven);
    if (!best->price->feasible) continue;
    const int64_t limit_us = best->price->cost_us / problem.iterations + 1;
    PlanRoot root(*model, limit_us, nullptr);
    const int64_t first_us =
        std::accumulate(root.least_us.begin(), root.least_us.end(), int64_t{0});
    root.raise_segments(*model, limit_us);
    const int64_t sum_us = std::accumulate(root.least_us.begin(), root.least_us.end(), int64_t{0});
    EXPECT_LT(sum_us, limit_us) << seed;
    EXPECT_FALSE(root.empty) << seed;
    EXPECT_LT(root.bound, limit_us) << seed;
    above_first_bounds += sum_us > first_us;
  }
  EXPECT_GT(above_first_bounds, 0) << "searching segments alone should raise some bound";
}

TEST(TableDemand, WhatFitsSideBySideIsAtMostTheWholeCluster) {
  for (const int32_t num_devices : {1, 7, 16, 24, 128}) {
    const std::vector<Demand> shares = demand_shares(num_devices);
    const int64_t whole = kDeviceShare * num_devices;
    // The largest sum of shares over all ways to fill the cluster, by dynamic programming.
    for (size_t k = 0; k < kDemands; ++k) {
      std::vector<int64_t> most(num_devices + 1, 0);
      for (int32_t used = 1; used <= num_devices; ++used)
        for (int32_t last = 1; last <= used; ++last)
          most[used] = std::max(most[used], most[used - last] + shares[last][k]);
      EXPECT_LE(most[num_devices], whole) << num_devices << " devices, way " << k;
      EXPECT_EQ(shares[num_devices][k], whole) << num_devices << " devices, way " << k;
    }
  }
}

TEST(TableSolver, EarlyBoundsAreBelowTheOptimum) {
  const Problem problem = random_problem({.shape = 3, .seed = 8, .options = 40, .devices = 8});
  const Result<Solution> full = solve(problem, solve_options(1));
  ASSERT_TRUE(full.ok() && full->proven);
  for (const int64_t units : {1, 4, 16, 18}) {
    SolveOptions options = solve_options(1);
    options.units.max_units = units;
    const Result<Solution> early = solve(problem, options);
    ASSERT_TRUE(early.ok());
    EXPECT_EQ(early->units, std::min(units, full->units));
    EXPECT_LE(early->lower_bound_us, full->price->cost_us);
    EXPECT_GE(early->price->cost_us, full->price->cost_us);
  }
}

TEST(TableSolver, ResultIsAFunctionOfUnitsForAnyNumberOfThreads) {
  const Problem problem = random_problem({.shape = 5, .seed = 2, .options = 60, .devices = 8});
  for (const auto method : {optimize::Method::kAuto, optimize::Method::kAnnealing}) {
    SolveOptions options{.method = method, .seed = 3, .walk_steps = 1000, .units = kOneThread};
    options.units.max_units = method == optimize::Method::kAuto ? 19 : 2;
    const Result<Solution> alone = solve(problem, options);
    ASSERT_TRUE(alone.ok());
    for (const int threads : {2, 3, 8}) {
      options.units.threads = threads;
      const Result<Solution> together = solve(problem, options);
      ASSERT_TRUE(together.ok());
      EXPECT_EQ(together->plan, alone->plan);
      EXPECT_EQ(together->plans_priced, alone->plans_priced);
      EXPECT_EQ(together->bounds_computed, alone->bounds_computed);
      EXPECT_EQ(together->lower_bound_us, alone->lower_bound_us);
      EXPECT_EQ(together->units, alone->units);
    }
  }
}

// ---- Bad input

struct BadProblem {
  const char* what;
  std::function<void(OrderedJson&)> damage;
  std::vector<std::string> message_parts;
};

OrderedJson& option_of(OrderedJson& json) { return json["calls"][1]["options"][0]; }

const std::vector<BadProblem>& bad_problems() {
  static const std::vector<BadProblem> kAll = {
      {"negative time", [](auto& j) { option_of(j)["time_us"] = -4; }, {"option 0", "time_us"}},
      {"fractional time", [](auto& j) { option_of(j)["time_us"] = 1.5; }, {"integer", "1.5"}},
      {"text for a time", [](auto& j) { option_of(j)["time_us"] = "7"; }, {"integer"}},
      {"null time", [](auto& j) { option_of(j)["time_us"] = nullptr; }, {"integer", "null"}},
      {"huge time",
       [](auto& j) { option_of(j)["time_us"] = 1'000'000'000'000'001; },
       {"'rew'", "option 0", "'time_us' is 1000000000000001", "0 to 1000000000000000"}},
      {"time beyond 64 bits",
       [](auto& j) { option_of(j)["time_us"] = UINT64_MAX; },
       {"option 0", "0 to 1000000000000000"}},
      {"unknown key of a problem",
       [](auto& j) { j["iteration"] = 3; },
       {"unknown key 'iteration'", "did you mean 'iterations'"}},
      {"unknown key of a call",
       [](auto& j) { j["calls"][1]["model"] = 7; },
       {"call 'rew'", "unknown key 'model'", "known are name, role"}},
      {"unknown key of an option",
       [](auto& j) { option_of(j)["ep"] = 2; },
       {"call 'rew'", "option 0", "unknown key 'ep' (did you mean"}},
      {"unknown key of a move",
       [](auto& j) { j["realloc_us"][0]["times_us"] = 1; },
       {"realloc_us[0]", "did you mean 'time_us'"}},
      {"no options", [](auto& j) { j["calls"][1]["options"].clear(); }, {"'rew'", "empty"}},
      {"no calls", [](auto& j) { j["calls"] = OrderedJson::array(); }, {"'calls' is empty"}},
      {"outside", [](auto& j) { option_of(j)["first_device"] = 99; }, {"option 0", "first_device"}},
      {"past the end",
       [](auto& j) { option_of(j)["first_device"] = 3, option_of(j)["num_devices"] = 4; },
       {"not in the cluster"}},
      {"product", [](auto& j) { option_of(j)["tp"] = 3; }, {"pp*tp*dp", "num_devices"}},
      {"peak below static", [](auto& j) { option_of(j)["static_bytes"] = 999; }, {"static part"}},
      {"unknown kind", [](auto& j) { j["calls"][1]["kind"] = "inferr"; }, {"did you mean 'infer'"}},
      {"unknown dependency",
       [](auto& j) { j["calls"][1]["depends_on"] = {"genn"}; },
       {"genn", "did you mean 'gen'"}},
      {"cycle", [](auto& j) { j["calls"][0]["depends_on"] = {"rew"}; }, {"cycle"}},
      {"two of a name", [](auto& j) { j["calls"][1]["name"] = "gen"; }, {"'gen'", "rename"}},
      {"no iterations", [](auto& j) { j["iterations"] = 0; }, {"iterations"}},
      {"negative move", [](auto& j) { j["realloc_us"][0]["time_us"] = -1; }, {"realloc_us[0]"}},
      {"short layout",
       [](auto& j) {
         j["realloc_us"][0]["src"] = {1, 1};
       },
       {"[pp, tp, dp]"}},
      {"missing key", [](auto& j) { j.erase("num_devices"); }, {"num_devices"}},
      {"devices of a planet", [](auto& j) { j["num_devices"] = 1 << 20; }, {"num_devices"}}};
  return kAll;
}

TEST(TableProblem, ErrorsNamePlaceAndRemedy) {
  for (const BadProblem& bad : bad_problems()) {
    OrderedJson json = random_problem_json({.shape = 0, .seed = 1});
    bad.damage(json);
    const Result<Problem> problem = parse_problem(json.dump(), "p.json");
    ASSERT_FALSE(problem.ok()) << bad.what;
    EXPECT_EQ(exit_code(problem.status().code()), 2) << bad.what;
    EXPECT_THAT(problem.status().message(), HasSubstr("p.json")) << bad.what;
    for (const std::string& part : bad.message_parts)
      EXPECT_THAT(problem.status().message(), HasSubstr(part)) << bad.what;
  }
}

TEST(TableProblem, RemarksAndTheLongestTimeAreRead) {
  OrderedJson json = random_problem_json({.shape = 0, .seed = 1});
  json["note"] = "made by hand";
  json["metadata"] = {{"any", 1}};
  json["calls"][0]["note"] = "slow";
  option_of(json)["time_us"] = 1'000'000'000'000'000;
  const Result<Problem> problem = parse_problem(json.dump(), "p.json");
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  EXPECT_EQ(problem->calls[1].options[0].time_us, 1'000'000'000'000'000);
}

TEST(TableProblem, TextThatIsNotJson) {
  for (const char* text : {"", "{", "[1, 2]", "{\"calls\": NaN}", "null", "{\"calls\": {}}"}) {
    const Result<Problem> problem = parse_problem(text, "p.json");
    ASSERT_FALSE(problem.ok()) << text;
    EXPECT_THAT(problem.status().message(), HasSubstr("p.json")) << text;
  }
}

TEST(TablePlan, RoundTripAndErrors) {
  const Problem problem = random_problem({.shape = 1, .seed = 3});
  const Plan plan = {4, 0, 2, 1};
  const Result<Plan> read = parse_plan(problem, plan_text(problem, plan), "plan");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, plan);
  const auto error = [&](const char* text) {
    return parse_plan(problem, text, "plan").status().message();
  };
  EXPECT_THAT(error(R"({"choices": {"gen": 0, "rew": 0, "ref": 0}})"), HasSubstr("atrain"));
  EXPECT_THAT(error(R"({"choices": {"gen": 5, "rew": 0, "ref": 0, "atrain": 0}})"),
              AllOf(HasSubstr("gen"), HasSubstr("0 to 4")));
  EXPECT_THAT(error(R"({"choices": {"gen": 0, "rew": 0, "ref": 0, "atrain": 0, "x": 1}})"),
              HasSubstr("unknown call 'x'"));
}

}  // namespace
}  // namespace braid::tabular
