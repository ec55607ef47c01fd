// Lists with one fault that verify() does not find, simulated: they do the work of the lists
// without it, as runs do (session/list_mutants_test.cc).
#include "program/list_mutants.h"

#include <gmock/gmock.h>

#include <map>
#include <tuple>

#include "program/early_update_testing.h"
#include "sim/simulate.h"

namespace braid::inline sim {
namespace {

// How often each device computes what of a call; bytes of all messages by kind, whoever sends them.
using WorkOfDevices = std::map<std::tuple<int32_t, EventKind, int32_t>, double>;
WorkOfDevices work_of(const Trace& trace) {
  WorkOfDevices out;
  for (const TraceEvent& event : trace.events) {
    const bool computes = event.track == TrackKind::kCompute;
    out[{computes ? event.device.value : -1, event.kind, event.call.value}] +=
        computes ? 1 : event.bytes;
  }
  return out;
}

// Four devices, 16 samples in two mini-batches.
PlanningProblem mutated_problem(bool looks_at_groups = false) {
  TestProblem sizes;
  sizes.looks_at_groups = looks_at_groups;
  sizes.algorithm = "grpo", sizes.devices = 4, sizes.actor = "qwen2.5-0.5b";
  sizes.prompts = 16, sizes.minibatches = 2;
  return make_test_problem(sizes);
}

void expect_the_same_work(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const Program program = *compile(plan, problem);
  SimOptions options;
  options.events = true;
  const Trace whole = *simulate(program, problem, committed_calibration(), options);
  const std::vector<Partition> partitions = drawn_partitions(program, 16, 2);
  int ran = 0, changed = 0;
  for (const Mutant& mutant : MutantSites(program, ops_of(program, partitions)).draw(200, 27)) {
    if (!mutant.change_lists || !refusal(program, mutant, partitions).empty()) continue;
    const auto trace = simulate(mutant.lists(program), problem, committed_calibration(), options);
    ASSERT_TRUE(trace.ok()) << mutant.what << ": " << trace.status().message();
    EXPECT_EQ(work_of(*trace), work_of(whole)) << mutant.what;
    ++ran, changed += trace->step_s != whole.step_s;
  }
  EXPECT_GT(ran, 3);
  testing::Test::RecordProperty("inputs", ran);
  testing::Test::RecordProperty("other_step_time", changed);
}

TEST(ListMutants, ThatNothingRefusesAreSimulatedAsTheSameWork) {
  const PlanningProblem problem = mutated_problem();
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "generate") call.strategy.dp = call.strategy.tp = 2;
    if (call.call == "update_actor")
      call.strategy = {}, call.strategy.tp = call.strategy.pp = 2, call.strategy.micro_batches = 4;
  }
  expect_the_same_work(plan, problem);
}

TEST(ListMutants, OfAnEarlyUpdateToo) {
  const PlanningProblem problem = mutated_problem();
  expect_the_same_work(in_halves(problem, {"update_actor"}, 1), problem);
}

TEST(ListMutants, OfAnUpdateBesideTheGenerationToo) {
  const PlanningProblem problem = mutated_problem(true);
  ExecutionPlan plan = in_halves(problem, {"update_actor"}, 0);
  plan.fusion.migrate_below_samples = 4;
  plan.fusion.train_beside_generation = true;
  expect_the_same_work(plan, problem);
}

}  // namespace
}  // namespace braid::inline sim
