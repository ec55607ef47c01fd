// Emulated steps against the simulator, op by op, and changed lists that must show. Times are those
// of the devices' clocks, which a slow machine does not move.
#include "emulate/emulate.h"

#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "plan/test_problem.h"
#include "program/exchange.h"
#include "samples/listed_counts.h"

namespace braid::inline emulate {
namespace {

constexpr double kTenth = 0.1;
constexpr double kFast = 0.2;  // of the machine's time, where only order counts

PlanningProblem rl_problem(const std::string& algorithm, int devices) {
  return make_test_problem({.algorithm = algorithm,
                            .actor = "qwen2.5-0.5b",
                            .critic = "qwen2.5-0.5b",
                            .devices = devices,
                            .prompts = 32,
                            .minibatches = 2,
                            .prompt_tokens = 128,
                            .response_tokens = 128});
}

// One training call and nothing else.
PlanningProblem sft_problem(int devices) {
  return make_test_problem({.algorithm = "sft",
                            .actor = "qwen2.5-7b",
                            .devices = devices,
                            .prompts = 32,
                            .minibatches = 2,
                            .prompt_tokens = 512,
                            .response_tokens = 512});
}

void set_update(ExecutionPlan* plan, const std::string& call, const Strategy& strategy) {
  for (CallPlan& each : plan->calls)
    if (each.call == call) each.strategy = strategy;
}

Strategy pipeline(int dp, int tp, int pp, int64_t micro_batches) {
  Strategy out;
  out.dp = dp, out.tp = tp, out.pp = pp, out.micro_batches = micro_batches;
  return out;
}

// Every op and message of both traces, and none ends more than a tenth of the step apart.
void expect_alike(World& world, const Emulation& out) {
  EXPECT_THAT(out.misplaced, testing::IsEmpty());
  if (world.global_rank() != 0) return;
  const TraceDifference difference = compare_ops(out.predicted, out.emulated);
  EXPECT_GT(difference.ops, 0);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_LT(difference.largest, kTenth) << emulation_text(out);
}

RANK_TEST(Emulate, OneLayoutForAll, 2) {
  const PlanningProblem problem = rl_problem("grpo", 2);
  expect_alike(world,
               emulated(world, uniform_plan(problem, 2, 1, 1), problem, {.time_scale = kFast}));
}

// What ranks tell each other of the data that they have read is sent as real ranks send it.
RANK_TEST(Emulate, AFetchIsTold, 2) {
  const PlanningProblem problem = rl_problem("grpo", 2);
  const Call& fetch = problem.graph.calls.front();
  ASSERT_EQ(fetch.kind, CallKind::kFetch);
  TransferCounts sent;
  Emulation out;
  {
    const TransferWatch watch(&sent);
    out = emulated(world, uniform_plan(problem, 2, 1, 1), problem, {.time_scale = kFast});
  }
  const TransferCounts told =
      listed_of_fetch(fetch, problem.workload.prompts, problem.workload.samples_per_prompt, 2);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(sent[told.begin()->first], 1);
  for (const RankUse& use : out.use) {
    EXPECT_GE(use.received, static_cast<double>(told.begin()->first.bytes));
    EXPECT_GT(use.given, 0);
  }
}

PlanningProblem with_a_tail() {
  PlanningProblem problem = rl_problem("grpo", 2);
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 128, 1, 1024, {}};
  return problem;
}

// A step that leaves samples to the next one than one that waits for all.
void expect_shorter_where_left(World& world, PlanningProblem problem, const ExecutionPlan& plan) {
  const Emulation waits = emulated(world, plan, problem, {.time_scale = kFast});
  problem.graph = *carried_over(problem.graph, 1);
  problem.workload.prompts_in_flight = 48;
  const Emulation carries = emulated(world, plan, problem, {.time_scale = kFast});
  expect_alike(world, carries);
  EXPECT_LT(carries.emulated.step_s, waits.emulated.step_s);
}

// A generation that ends when it has enough, and leaves the others to the next step.
RANK_TEST(Emulate, SamplesAreLeftToTheNextStep, 2) {
  const PlanningProblem problem = with_a_tail();
  expect_shorter_where_left(world, problem, uniform_plan(problem, 2, 1, 1));
}

// The same on a rank of its own, beside training.
RANK_TEST(Emulate, SamplesAreLeftWhereTheyAreDrawnAhead, 2) {
  const PlanningProblem problem = with_a_tail();
  ExecutionPlan plan = uniform_plan(problem, 1, 1, 1);
  plan.staleness = 1;
  for (CallPlan& call : plan.calls)
    call.mesh.devices = {DeviceId{call.call == "update_actor" ? 0 : 1}};
  expect_shorter_where_left(world, problem, plan);
}

// Further prompts are drawn, and before the first draw slices become a copy that one device has.
RANK_TEST(Emulate, SlicesBeforeFurtherDraws, 2) {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo",
                                               .actor = "qwen2.5-0.5b",
                                               .devices = 2,
                                               .prompts = 32,
                                               .samples = 4,
                                               .minibatches = 2,
                                               .prompt_tokens = 128,
                                               .response_tokens = 128,
                                               .dynamic_sampling = true});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "update_actor") call.strategy.zero_stage = 3;
    if (call.call != "generate") continue;
    call.mesh.devices = {DeviceId{0}};
    call.strategy = pipeline(1, 1, 1, 1);
  }
  expect_alike(world, emulated(world, plan, problem, {.time_scale = kFast}));
}

// Weights move between layouts, activations between stages.
RANK_TEST(Emulate, WeightsAndStages, 4) {
  const PlanningProblem problem = rl_problem("grpo", 4);
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  set_update(&plan, "update_actor", pipeline(1, 2, 2, 4));
  expect_alike(world, emulated(world, plan, problem, {.time_scale = kFast}));
}

// Updates beside each other, a generation over two stages, and state that lies on the host.
RANK_TEST(Emulate, CallsSideBySide, 4) {
  const PlanningProblem problem = rl_problem("ppo", 4);
  ExecutionPlan plan = uniform_plan(problem, 2, 2, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "generate") call.strategy = pipeline(2, 1, 2, 1);
    if (call.call.rfind("update_", 0) != 0) continue;
    const int first = call.call == "update_actor" ? 0 : 2;
    call.mesh.devices = {DeviceId{first}, DeviceId{first + 1}};
    call.strategy = pipeline(first == 0 ? 1 : 2, 1, first == 0 ? 2 : 1, 4);
    call.strategy.zero_stage = first == 0 ? 0 : 1;
  }
  plan.roles.push_back({RoleId{"reference"}, Residency::kHost});
  const Emulation out = emulated(world, plan, problem, {.time_scale = kFast});
  expect_alike(world, out);
  // Rounds that are alike are one here. A rank that executes each has a message for each token.
  const auto calls_in_rounds = [](const RankUse& use) {
    return use.calls_of_each - (use.calls - use.round_calls);
  };
  ASSERT_EQ(out.use.size(), 4u);
  for (const RankUse& use : out.use) {
    EXPECT_GT(use.round_calls, 0);
    EXPECT_LT(use.round_calls, 128);
    EXPECT_GE(calls_in_rounds(use), 128);
  }
  EXPECT_EQ(calls_in_rounds(out.use[0]), calls_in_rounds(out.use[2]));  // of the other replica
}

// Weights and optimizers that come from the host layer by layer beside passes, of all roles.
RANK_TEST(Emulate, LayersFromTheHost, 2) {
  const PlanningProblem problem = rl_problem("ppo", 2);
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  set_update(&plan, "update_actor", pipeline(1, 1, 2, 4));
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost},
                {RoleId{"critic"}, Residency::kHost, Residency::kHost},
                {RoleId{"reference"}, Residency::kHost}};
  for (RolePlan& role : plan.roles)
    role.timing = OffloadTiming::kAfterEachCall, role.prefetch = true;
  expect_alike(world, emulated(world, plan, problem, {.time_scale = kFast}));
}

// Each pass of the two virtual stages of a rank gathers its weights, each backward reduces.
RANK_TEST(Emulate, SlicesOfSeveralRuns, 4) {
  const PlanningProblem problem = rl_problem("grpo", 4);
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  Strategy runs = pipeline(2, 1, 2, 4);
  runs.interleave = 2, runs.zero_stage = 3;
  set_update(&plan, "update_actor", runs);
  expect_alike(world, emulated(world, plan, problem, {.time_scale = kFast}));
}

// Slices that come together where weights move between layouts, on either side, and where a role
// is followed.
RANK_TEST(Emulate, SlicesThatMove, 4) {
  PlanningProblem problem = rl_problem("grpo", 4);
  problem.graph = with_moving_reference(problem.graph, 1);
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  Strategy sliced = pipeline(2, 1, 2, 4);
  sliced.zero_stage = 3;
  set_update(&plan, "update_actor", sliced);
  sliced = pipeline(4, 1, 1, 1);
  sliced.zero_stage = 3, sliced.zero_ranks = 2;
  set_update(&plan, "ref_logprob", sliced);
  set_update(&plan, "old_logprob", sliced);
  expect_alike(world, emulated(world, plan, problem, {.time_scale = kFast}));
}

RANK_TEST(Emulate, FusedUpdates, 4) {
  const PlanningProblem problem = rl_problem("ppo", 4);
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  set_update(&plan, "update_actor", pipeline(1, 1, 4, 4));
  set_update(&plan, "update_critic", pipeline(2, 1, 2, 4));
  plan.fusion.train_schedules = true;
  plan.fusion.units = 2;
  expect_alike(world, emulated(world, plan, problem, {.time_scale = kFast}));
}

// Without jitter as long as predicted, with it later: who is early waits for who is late.
RANK_TEST(Emulate, JitterDelaysTheStep, 4) {
  const PlanningProblem problem = sft_problem(4);
  const Emulation out = emulated(world, uniform_plan(problem, 1, 1, 4), problem,
                                 {.time_scale = kFast, .jitter = 0.5});
  EXPECT_THAT(out.misplaced, testing::IsEmpty());
  if (world.global_rank() != 0) return;
  const TraceDifference difference = compare_ops(out.predicted, out.emulated);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_GT(difference.largest, 0.02);
}

ExecutionPlan stages_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 1, 1, 4);
  set_update(&plan, problem.graph.calls.back().name, pipeline(1, 1, 4, 8));
  return plan;
}

// Forwards that do not wait for what the stage before sends.
RANK_TEST(Emulate, ADroppedWaitShows, 4) {
  const PlanningProblem problem = sft_problem(4);
  expect_alike(world, emulated(world, stages_plan(problem), problem, {.time_scale = kFast}));
  const auto drop = [](Expansion* ops) {
    for (Op& op : ops->ops)
      if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward) op.after = {-1, -1};
  };
  const Emulation out =
      emulated(world, stages_plan(problem), problem, {.time_scale = kFast, .change_ops = drop});
  if (world.global_rank() != 0) return;
  EXPECT_GT(compare_ops(out.predicted, out.emulated).largest, kTenth);
}

// The first stage sends its second micro-batch first.
RANK_TEST(Emulate, SwappedMessagesShow, 4) {
  const PlanningProblem problem = sft_problem(4);
  const auto swap = [](Expansion* ops) {
    if (ops->at.stage != 0) return;
    std::vector<Op*> sends;
    for (Op& op : ops->ops)
      if (op.kind == OpKind::kSend) sends.push_back(&op);
    std::swap(*sends[0], *sends[1]);
  };
  const Emulation out =
      emulated(world, stages_plan(problem), problem, {.time_scale = kFast, .change_ops = swap});
  EXPECT_THAT(out.misplaced, testing::Not(testing::IsEmpty()));
  if (world.global_rank() != 1) return;
  EXPECT_THAT(out.misplaced.front(), testing::HasSubstr("another message came"));
}

// One rank gives fields of an exchange in another order than those who receive them expect.
RANK_TEST(Emulate, FieldsInAnotherOrderShow, 4) {
  const PlanningProblem problem = rl_problem("grpo", 4);
  auto program = compile(uniform_plan(problem, 4, 1, 1), problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  bool swapped = false;
  for (Exchange& each : program->exchanges)
    if (!each.shared() && each.fields.size() > 1 && world.global_rank() == 0) {
      std::swap(each.fields[0], each.fields[1]);
      swapped = true;
    }
  EXPECT_EQ(swapped, world.global_rank() == 0);
  const auto out =
      emulate_step(world, *program, problem, committed_calibration(), {.time_scale = kFast});
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_THAT(out->misplaced, testing::Not(testing::IsEmpty()));
  if (world.global_rank() != 1) return;
  EXPECT_THAT(out->misplaced.front(), testing::HasSubstr("another message"));
}

// For which an update waits long.
PlanningProblem long_responses() {
  PlanningProblem problem = rl_problem("grpo", 4);
  problem.workload.response.mean = 1024;
  return problem;
}

// Two devices train, the other two do all else.
ExecutionPlan update_elsewhere(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  for (CallPlan& call : plan.calls) {
    const int first = call.call == "update_actor" ? 2 : 0;
    call.mesh.devices = {DeviceId{first}, DeviceId{first + 1}};
  }
  return plan;
}

// The place of the fault is found, and the prediction is that of the right lists.
RANK_TEST(Emulate, AFaultOfTheListsShows, 4) {
  const PlanningProblem problem = long_responses();
  const ExecutionPlan plan = update_elsewhere(problem);
  const Emulation early =
      emulated(world, plan, problem, {.time_scale = kFast, .fault = ListFault::kDroppedWait});
  EXPECT_THAT(early.misplaced, testing::IsEmpty());
  EXPECT_EQ(early.fault, "update_actor begins without what it waits for");
  if (world.global_rank() == 0) {
    EXPECT_GT(compare_ops(early.predicted, early.emulated).largest, kNear);
  }
  const Emulation swapped =
      emulated(world, plan, problem, {.time_scale = kFast, .fault = ListFault::kSwappedMessages});
  EXPECT_THAT(swapped.fault, testing::HasSubstr("swapped"));
  if (world.global_rank() == 0) {
    EXPECT_THAT(swapped.misplaced, testing::Not(testing::IsEmpty()));
  }
}

// An update that does not wait for what it reads: the simulator and the ranks follow the same list.
RANK_TEST(Emulate, AListWithoutAWaitShows, 4) {
  const PlanningProblem problem = long_responses();
  const ExecutionPlan plan = update_elsewhere(problem);
  auto program = compile(plan, problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  SimOptions simulation;
  simulation.events = true;
  const auto right = simulate(*program, problem, committed_calibration(), simulation);
  for (RankProgram& rank : program->ranks)
    for (Instruction& each : rank.instructions)
      if (each.kind == OpKind::kRegionBegin &&
          program->graph.calls[each.call.value].name == "update_actor")
        each.after.clear();
  const auto out =
      emulate_step(world, *program, problem, committed_calibration(), {.time_scale = kFast});
  ASSERT_TRUE(out.ok()) << out.status().message();
  expect_alike(world, *out);
  if (world.global_rank() != 0) return;
  EXPECT_GT(compare_ops(*right, out->emulated).largest, kTenth);
}

// Without data there are no samples: also a rank whose calls do not wait for the share of the fetch
// goes on when that has come, from the rank on which the step begins.
RANK_TEST(Emulate, NobodyGoesOnBeforeTheShareOfTheFetch, 4) {
  const PlanningProblem problem = rl_problem("grpo", 4);
  auto program = compile(uniform_plan(problem, 4, 1, 1), problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const int32_t fetch = share_of_fetch(*program);
  for (RankProgram& rank : program->ranks) {
    std::vector<Instruction>& list = rank.instructions;
    for (Instruction& each : list)
      std::erase_if(each.after, [&](InstructionId before) {
        const Instruction& i = list[before.value];
        return i.kind == OpKind::kShare && i.detail == fetch;
      });
  }
  const auto out =
      emulate_step(world, *program, problem, committed_calibration(), {.time_scale = kFast});
  ASSERT_TRUE(out.ok()) << out.status().message();
  expect_alike(world, *out);
  if (world.global_rank() != 0) return;
  const auto generates = [](const Trace& trace) {
    double first = trace.step_s;
    for (const TraceEvent& event : trace.events)
      if (event.kind == EventKind::kGenerate) first = std::min(first, event.start_s);
    return first;
  };
  EXPECT_GT(generates(out->predicted), kTenth * out->predicted.step_s);
  EXPECT_NEAR(generates(out->emulated), generates(out->predicted), kTenth * kTenth);
}

TEST(CompareOps, PairsEventsInTheirOrder) {
  Trace a;
  a.step_s = 10;
  TraceEvent event;
  event.kind = EventKind::kForward, event.device = DeviceId{0}, event.call = CallId{0};
  for (const double end : {1.0, 2.0, 4.0}) {
    event.start_s = end - 1, event.end_s = end;
    a.events.push_back(event);
  }
  Trace b = a;
  b.events[2].end_s = 6;
  TraceDifference difference = compare_ops(a, b);
  EXPECT_EQ(difference.ops, 3);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_DOUBLE_EQ(difference.largest, 0.2);
  EXPECT_DOUBLE_EQ(difference.mean, 0.2 / 3);
  b.events[1].device = DeviceId{1};
  difference = compare_ops(a, b);
  EXPECT_EQ(difference.ops, 2);
  EXPECT_EQ(difference.unpaired, 2);
}

TEST(ShapeOf, CountsWaitingAndWhatIsHidden) {
  Trace trace;
  trace.step_s = 10;
  trace.devices.resize(2);
  TraceEvent event;
  event.kind = EventKind::kForward, event.device = DeviceId{0};
  event.start_s = 0, event.end_s = 5;
  trace.events.push_back(event);
  event.kind = EventKind::kReallocation, event.track = TrackKind::kNvlinkOut;
  event.start_s = 4, event.end_s = 8;
  trace.events.push_back(event);
  const TraceShape shape = shape_of(trace);
  EXPECT_DOUBLE_EQ(shape.waiting, 0.75);     // 5 of 20 device seconds
  EXPECT_DOUBLE_EQ(shape.overlapped, 0.25);  // 1 of 4
}

}  // namespace
}  // namespace braid::inline emulate
