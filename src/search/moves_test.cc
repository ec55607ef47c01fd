// Prices of moving weights against the messages that the program really sends.
#include <gmock/gmock.h>

#include "base/rng.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "pricing/efficiency.h"
#include "program/program.h"
#include "program/reallocation.h"
#include "search/judge.h"
#include "sim/call_work.h"
#include "sim/simulate.h"

namespace braid::inline search {
namespace {

// Seconds of the busiest direction of a link when the messages of a move are sent.
double busiest_link_s(const PlanningProblem& problem, const ParamLayout& from,
                      const ParamLayout& to, const Efficiency& efficiency) {
  const ModelSize& model = model_of(problem, RoleId{"actor"}).spec;
  std::map<std::tuple<int32_t, bool, LinkKind>, double> load;
  double most = 0;
  for (const Message& message :
       plan_reallocation(tensor_kinds(model, false), model.layers, from, to, problem.cluster, {})) {
    const LinkTime time =
        link_time(problem.cluster, message.from, message.to, message.bytes, efficiency);
    for (const bool in : {false, true}) {
      double& sum = load[{(in ? message.to : message.from).value, in, time.link}];
      sum += time.seconds;
      most = std::max(most, sum);
    }
  }
  return most;
}

struct Moved {
  double priced_s = 0, planned_s = 0;
};

// Moves of the actor from its home to other layouts, drawn at random.
std::vector<Moved> random_moves(const PlanningProblem& problem, int count) {
  const auto pricer = CallPricer::make(problem, committed_calibration());
  const auto space = make_plan_space(problem, *pricer);
  BRAID_CHECK(space.ok(), space.status().message());
  const RoleSpace& role = space->roles[space->calls[0].role];
  const CallSpace &home = space->calls[role.home], &other = space->calls[role.calls.front()];
  const auto layout = [](const CallSpace& call, const PlanOption& option) {
    DeviceMesh mesh;
    for (int32_t d = option.first; d < option.end; ++d) mesh.devices.push_back(DeviceId{d});
    return param_layout(mesh, call.strategies[option.strategy]);
  };
  const Efficiency efficiency = pricer->train_efficiency(problem.cluster.nodes[0].gpu);
  RandomStream random(5, 1);
  std::vector<Moved> out;
  while (static_cast<int>(out.size()) < count) {
    const PlanOption& from = home.options[random.below(home.options.size())];
    const PlanOption& to = other.options[random.below(other.options.size())];
    if (from.layout == to.layout) continue;
    const int64_t messages_us = move_us(*space, role, from, to) - slices_us(from, to);
    out.push_back({1e-6 * static_cast<double>(messages_us),
                   busiest_link_s(problem, layout(home, from), layout(other, to), efficiency)});
  }
  return out;
}

TEST(PlanMoves, PricesAreTheLoadsOfThePlannedMessages) {
  for (const int nodes : {1, 3}) {
    const PlanningProblem problem = make_test_problem({.nodes = nodes, .prompts = 384});
    std::vector<double> errors;
    for (const Moved& moved : random_moves(problem, 100))
      errors.push_back(std::abs(moved.priced_s - moved.planned_s) / (moved.planned_s + 1e-3));
    std::sort(errors.begin(), errors.end());
    EXPECT_LT(errors[50], 0.05) << nodes;
    EXPECT_LT(errors[90], 0.25) << nodes;
  }
}

// Seconds in which a simulated step brings the critic's weights to another call than training.
double simulated_move_s(const PlanningProblem& problem, const ExecutionPlan& plan) {
  SimOptions options;
  options.events = true;
  const Program program = *compile(plan, problem);
  const Trace trace = *simulate(program, problem, committed_calibration(), options);
  double first = HUGE_VAL, last = 0;
  for (const TraceEvent& event : trace.events) {
    const Call& call = program.graph.calls[event.call.value];
    if (event.kind != EventKind::kReallocation || call.name != "values") continue;
    first = std::min(first, event.start_s);
    last = std::max(last, event.end_s);
  }
  return last - first;
}

// The home of a role in stages on eight nodes, and another layout over all of them: a device waits
// for others that wait for others no longer than the loads of the links say.
TEST(PlanMoves, PricesAreTheTimesInTheSimulation) {
  const PlanningProblem problem = make_test_problem({.nodes = 8, .prompts = 512});
  const auto pricer = CallPricer::make(problem, committed_calibration());
  for (const int tp : {1, 2, 8}) {
    ExecutionPlan plan = uniform_plan(problem, 64 / tp, tp, 1);
    for (CallPlan& call : plan.calls)
      if (call.call == "update_critic")
        call.strategy.dp = 4, call.strategy.tp = 2, call.strategy.pp = 8;
    const PlanSpace space = *space_of_plan(plan, problem, *pricer);
    const Assignment choice = assignment_of(space, Choice(space.num_coordinates(), 0));
    for (const RoleSpace& role : space.roles) {
      if (role.role != RoleId{"critic"}) continue;
      const double priced_s =
          1e-6 * static_cast<double>(move_us(space, role, *choice.option[role.home],
                                             *choice.option[role.calls.front()]));
      const double simulated_s = simulated_move_s(problem, plan);
      EXPECT_NEAR(priced_s / simulated_s, 1, 0.3) << tp;
    }
  }
}

TEST(PlanMoves, TheTableKeepsEachPair) {
  MoveMemo memo;
  EXPECT_EQ(memo.find(3, 4), -1);
  memo.keep(3, 4, 12345);
  EXPECT_EQ(memo.find(3, 4), 12345);
  EXPECT_EQ(memo.find(4, 3), -1);
  memo.keep(70000, 4, 1);  // a number that the table has no room for is priced each time
  EXPECT_EQ(memo.find(70000, 4), -1);
}

}  // namespace
}  // namespace braid::inline search
