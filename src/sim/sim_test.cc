// The simulator against sums by hand.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/rng.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "pricing/memory.h"
#include "sim/batching.h"
#include "sim/call_cost.h"
#include "sim/simulate.h"
#include "sim/task_graph.h"
#include "sim/testing.h"
#include "sim/trace_output.h"

namespace braid::inline sim {
namespace {

using testing::HasSubstr;

DeviceMesh range(int first, int count) {
  DeviceMesh mesh;
  for (int i = 0; i < count; ++i) mesh.devices.push_back(DeviceId{first + i});
  return mesh;
}

Strategy grid(int dp, int tp) {
  Strategy strategy;
  strategy.dp = dp, strategy.tp = tp;
  return strategy;
}

CallPlan& entry(ExecutionPlan& plan, const std::string& call) {
  for (CallPlan& candidate : plan.calls)
    if (candidate.call == call) return candidate;
  ADD_FAILURE() << call;
  return plan.calls[0];
}

Trace simulated(const ExecutionPlan& plan, const PlanningProblem& problem,
                const SimOptions& options = {}) {
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  auto trace = simulate(*program, problem, committed_calibration(), options);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return *trace;
}

CallId call_id(const PlanningProblem& problem, const std::string& name) {
  for (size_t i = 0; i < problem.graph.calls.size(); ++i)
    if (problem.graph.calls[i].name == name) return CallId{static_cast<int32_t>(i)};
  ADD_FAILURE() << name;
  return {};
}

TEST(TaskGraph, ChainsJoinsAndContention) {
  TaskGraph graph(2);
  const TaskId a = graph.add(2), b = graph.add(3), join = graph.add(1);
  graph.wait(join, a), graph.wait(join, b);
  // Two messages through port 0: the one that is ready first goes first, whatever its number.
  const TaskId late = graph.add(5, {0, 1}), early = graph.add(4, {0});
  graph.wait(late, b), graph.wait(early, a);
  graph.run();
  EXPECT_DOUBLE_EQ(graph.end(join), 4);
  EXPECT_DOUBLE_EQ(graph.start(early), 2);
  EXPECT_DOUBLE_EQ(graph.start(late), 6);
  EXPECT_DOUBLE_EQ(graph.makespan(), 11);
}

// A message that waits for its receiver does not keep its sender from serving another one.
TEST(TaskGraph, WaitingTasksHoldNoPort) {
  TaskGraph graph(4);
  const TaskId busy = graph.add(10, {0, 3});    // into port 3
  const TaskId blocked = graph.add(5, {1, 3});  // waits for port 3
  const TaskId other = graph.add(2, {1, 2});    // from the same sender to a free receiver
  const TaskId next = graph.add(1, {0, 2});
  graph.run();
  EXPECT_DOUBLE_EQ(graph.start(busy), 0);
  EXPECT_DOUBLE_EQ(graph.start(other), 0);
  EXPECT_DOUBLE_EQ(graph.start(blocked), 10);
  EXPECT_DOUBLE_EQ(graph.start(next), 10);
  EXPECT_DOUBLE_EQ(graph.makespan(), 15);
}

// A collective waits for a message on any of its devices, and messages wait for it.
TEST(TaskGraph, CollectivesContendWithMessages) {
  TaskGraph graph(4);
  const TaskId message = graph.add(3, {1, 2});
  const TaskId start = graph.add(1), reduce = graph.add(5, {0, 1, 2, 3}), later = graph.add(2, {3});
  graph.wait(reduce, start), graph.wait(later, message);
  const TaskId last = graph.add(1, {0});
  graph.wait(last, later);
  graph.run();
  EXPECT_DOUBLE_EQ(graph.start(reduce), 3);  // ready before `later`, hence first
  EXPECT_DOUBLE_EQ(graph.start(later), 8);
  EXPECT_DOUBLE_EQ(graph.start(last), 10);
}

// Rounds of one request: a prefill that gives the first token, then one round per token.
TEST(Batching, CountsRounds) {
  const auto ignore = [](const BatchRound&) {};
  EXPECT_EQ(run_batches({{10, 7, 0}}, {}, ignore), 7);
  // Two with different prompts run together: as long as the longer one.
  EXPECT_EQ(run_batches({{10, 7, 0}, {12, 5, 1}}, {}, ignore), 7);
  // One at a time: 7 + 5.
  BatchOptions single;
  single.max_concurrent = 1;
  EXPECT_EQ(run_batches({{10, 7, 0}, {12, 5, 1}}, single, ignore), 12);
  // A prompt of 100 in forwards of 40 tokens takes three rounds, the last gives the first token.
  BatchOptions chunks;
  chunks.max_batch_tokens = 40;
  EXPECT_EQ(run_batches({{100, 1, 0}}, chunks, ignore), 3);
}

// Rounds that are alike come together: a page's worth at most, up to the end of the shortest.
TEST(Batching, TakesEqualRoundsTogether) {
  std::vector<BatchRound> seen;
  const int64_t rounds = run_batches({{10, 101, 0}, {12, 40, 1}}, {},
                                     [&](const BatchRound& round) { seen.push_back(round); });
  EXPECT_EQ(rounds, 101);
  ASSERT_EQ(seen.size(), 5u);  // prefill, 32 + 7 rounds of two, 32 + 29 of one
  EXPECT_EQ(seen[1].rounds, 32);
  EXPECT_EQ(seen[1].decoding, 2);
  EXPECT_EQ(seen[1].cached_tokens, (11 + 42 + 13 + 44) * 32 / 2);  // 11 to 42 and 13 to 44
  EXPECT_EQ(seen[2].rounds, 7);
  EXPECT_EQ(seen[2].unfinished, 1);
  EXPECT_EQ(seen[3].decoding, 1);
  EXPECT_EQ(seen[4].rounds, 29);
  EXPECT_EQ(seen[4].pages, 4);  // 110 tokens have a place
}

TEST(Batching, SharesThePagesOfAPrompt) {
  // 65 prompt tokens: two full pages are shared, the third is each one's own.
  int64_t prefill = 0, most_pages = 0;
  run_batches({{65, 2, 0}, {65, 2, 0}}, {}, [&](const BatchRound& round) {
    prefill += round.prefill_tokens;
    most_pages = std::max(most_pages, round.pages);
  });
  EXPECT_EQ(prefill, 65);  // the twin computes one token, which counts as decoding
  EXPECT_EQ(most_pages, 4);
}

TEST(Batching, TightBudgetsPreemptAndStillFinish) {
  RandomStream random(5, 0);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<BatchRequest> requests;
    int64_t longest = 0, tokens = 0;
    for (int i = 0; i < 12; ++i) {
      const int64_t group = i / 3;
      requests.push_back({20 + 30 * group, 1 + static_cast<int64_t>(random.below(150)), group});
      longest = std::max(longest, requests.back().prompt + requests.back().response);
      tokens += requests.back().response;
    }
    BatchOptions options;
    options.kv_budget_tokens = (longest / 32 + 1 + static_cast<int64_t>(random.below(8))) * 32;
    int64_t unfinished = 12, most = 0;
    const int64_t rounds = run_batches(requests, options, [&](const BatchRound& round) {
      EXPECT_LE(round.unfinished, unfinished);
      unfinished = round.unfinished;
      most = std::max(most, round.pages);
    });
    EXPECT_EQ(unfinished, 0);
    EXPECT_LE(most * 32, options.kv_budget_tokens);
    EXPECT_LE(rounds, 3 * tokens + 400);
  }
}

PlanningProblem sft_problem(int devices, int64_t prompts) {
  TestProblem test;
  test.algorithm = "sft", test.devices = devices, test.prompts = prompts, test.minibatches = 1;
  return make_test_problem(test);
}

// Two stages and four micro-batches of equal lengths on one node: fill, steady state and drain of
// 1F1B, with messages between.
TEST(Simulate, PipelineIsTheFormula) {
  const PlanningProblem problem = sft_problem(2, 8);
  ExecutionPlan plan = uniform_plan(problem, 1, 1, 2);
  plan.calls[0].strategy.micro_batches = 4;
  const Program program = *compile(plan, problem);
  const CallId train{static_cast<int32_t>(problem.graph.calls.size()) - 1};
  const CallCost cost = *CallCost::make(program, train, problem, committed_calibration());
  const MicroBatch batch = cost.micro_batch({{512}, {512}});
  // The last stage has the head: it paces the steady state.
  const double f0 = cost.forward_s(batch, 0), f1 = cost.forward_s(batch, 1);
  const double b0 = cost.backward_s(batch, 0), b1 = cost.backward_s(batch, 1);
  ASSERT_GT(f1, f0);
  const Link link = link_between(problem.cluster, DeviceId{0}, DeviceId{1});
  const CollectiveGroup pair = make_group(problem.cluster.nodes[0].gpu, 2, 1, 2, 0);
  ASSERT_EQ(link.kind, LinkKind::kNvlink);
  const double message = send_s(cost.stage_bytes(batch), true, pair, cost.device().efficiency);
  const double expected =
      f0 + message + 4 * (f1 + b1) + message + b0 + cost.optimizer_step_s(0) + cost.step_host_s();
  const Trace trace = simulated(plan, problem);
  const CallSummary& call = trace.calls[train.value];
  const double slower_update = std::max(cost.optimizer_step_s(0), cost.optimizer_step_s(1));
  EXPECT_NEAR(call.seconds(), expected - cost.optimizer_step_s(0) + slower_update, 1e-9);
  EXPECT_EQ(call.rounds, 1);
}

// A single message is latency and bytes over rate; two from one sender queue.
TEST(Simulate, ReallocationTakesTheLinkTime) {
  TestProblem test;
  test.algorithm = "grpo", test.nodes = 2, test.prompts = 8, test.samples = 4;
  test.actor = "qwen2.5-0.5b", test.minibatches = 1;
  const PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = uniform_plan(problem, 16, 1, 1);
  for (CallPlan& call : plan.calls) call.mesh = range(0, 1), call.strategy = {};
  entry(plan, "generate").mesh = range(8, 1);
  const Program program = *compile(plan, problem);
  const Trace trace = traced(program, problem);
  double bytes = 0, seconds = 0, last = 0, first = trace.step_s;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != EventKind::kReallocation || event.track != TrackKind::kNetworkOut) continue;
    EXPECT_EQ(event.device, DeviceId{0});
    EXPECT_EQ(event.peer, DeviceId{8});
    bytes += event.bytes, seconds += event.end_s - event.start_s;
    last = std::max(last, event.end_s), first = std::min(first, event.start_s);
  }
  EXPECT_DOUBLE_EQ(bytes, 2.0 * static_cast<double>(total_params(*find_model("qwen2.5-0.5b"))));
  // One after another, once all ranks know which samples the step has.
  EXPECT_GT(first, trace.calls[call_id(problem, "fetch").value].end_s);
  EXPECT_NEAR(last - first, seconds, 1e-9);
  // Generation waits for the last message.
  const CallSummary& generate = trace.calls[call_id(problem, "generate").value];
  EXPECT_GE(generate.start_s, last);
}

// Weights, optimizer and gradients of one device that trains with Adam in mixed precision.
TEST(Simulate, MemoryIsTheSumByHand) {
  TestProblem test;
  test.algorithm = "sft", test.devices = 1, test.prompts = 4, test.minibatches = 1;
  test.actor = "qwen2.5-0.5b", test.gpu = "h100-80g";
  const PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = trivial_plan(problem);
  plan.calls[0].strategy.recompute = Recompute::kFull;
  SimOptions options;
  options.memory_curve = true;
  const Trace trace = simulated(plan, problem, options);
  const Program program = *compile(plan, problem);
  const CallId train{static_cast<int32_t>(problem.graph.calls.size()) - 1};
  const CallCost cost = *CallCost::make(program, train, problem, committed_calibration());
  const auto params = static_cast<double>(total_params(*find_model("qwen2.5-0.5b")));
  const MemoryUse& peak = trace.devices[0].peak.use;
  EXPECT_DOUBLE_EQ(peak[MemoryOwner::kWeights], 2 * params);
  EXPECT_DOUBLE_EQ(peak[MemoryOwner::kOptimizer], 12 * params);
  EXPECT_DOUBLE_EQ(peak[MemoryOwner::kGradients],
                   cost.device().efficiency.mem_gradient_bytes * params);
  const MicroBatch batch = cost.micro_batch({{512}, {512}, {512}, {512}});
  // Full recomputation keeps the input of each layer: 24 layers x 896 numbers x 2 bytes.
  EXPECT_DOUBLE_EQ(cost.activation_bytes(batch, 0), 2048.0 * 24 * 896 * 2);
  EXPECT_NEAR(peak[MemoryOwner::kActivations],
              cost.activation_bytes(batch, 0) + cost.working_bytes(batch), 1);
  // Everything that a call took is given back.
  const MemoryUse& end = trace.devices[0].memory.back().use;
  for (const MemoryOwner owner : {MemoryOwner::kActivations, MemoryOwner::kLogits,
                                  MemoryOwner::kGradients, MemoryOwner::kStaging})
    EXPECT_NEAR(end[owner], 0, 1);
}

// Weights, gradients and activations of 32 bit take twice as much as in 16 bit; they are their own
// master copy.
TEST(CallCost, SinglePrecisionDoublesTheWidths) {
  TestProblem test;
  test.algorithm = "sft";
  PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = uniform_plan(problem, 1, 2, 4);
  for (CallPlan& call : plan.calls) call.strategy.micro_batches = 4;
  const auto cost_in = [&](Precision precision) {
    for (auto& [role, model] : problem.models) model.precision = precision;
    const CallId train{static_cast<int32_t>(problem.graph.calls.size()) - 1};
    return *CallCost::make(*compile(plan, problem), train, problem, committed_calibration());
  };
  const CallCost half = cost_in(Precision::kBf16), single = cost_in(Precision::kF32);
  const MicroBatch batch = half.micro_batch({{512}, {512}});
  EXPECT_DOUBLE_EQ(single.activation_bytes(batch, 0), 2 * half.activation_bytes(batch, 0));
  EXPECT_DOUBLE_EQ(single.working_bytes(batch), 2 * half.working_bytes(batch));
  EXPECT_DOUBLE_EQ(single.stage_bytes(batch), 2 * half.stage_bytes(batch));
  EXPECT_DOUBLE_EQ(single.weight_bytes(0), 2 * half.weight_bytes(0));
  EXPECT_DOUBLE_EQ(single.cache_bytes_per_token(), 2 * half.cache_bytes_per_token());
  EXPECT_DOUBLE_EQ(single.optimizer_bytes(0) / half.optimizer_bytes(0), 8.0 / 12);
  EXPECT_GE(single.gradient_bytes(0), single.weight_bytes(0));
  EXPECT_GT(single.logit_bytes(batch), half.logit_bytes(batch));
}

// The closed form counts the same blocks and ends of the model.
TEST(CallCost, GathersWhatTheClosedFormCounts) {
  TestProblem test;
  test.algorithm = "sft";
  const PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  plan.calls[0].strategy.zero_stage = 3;
  const CallId train{static_cast<int32_t>(problem.graph.calls.size()) - 1};
  const CallCost cost =
      *CallCost::make(*compile(plan, problem), train, problem, committed_calibration());
  TrainLayout layout;
  layout.dp = 8, layout.zero_stage = 3;
  TrainStepWork work;
  work.seq_len = 512, work.global_batch = 8;
  const MemoryParts parts =
      train_memory(cost.model().spec, layout, work, {}, cost.device().efficiency);
  EXPECT_NEAR(cost.gathered_bytes(0) / parts.gathered, 1, 1e-3);
}

TEST(Simulate, RefusesWithTheInstructionAndTheSum) {
  TestProblem test;
  test.devices = 1;
  const PlanningProblem problem = make_test_problem(test);
  const Trace trace = simulated(trivial_plan(problem), problem);
  ASSERT_TRUE(trace.overflow.has_value());
  const Status status = check_memory(trace);
  EXPECT_EQ(status.code(), Code::kInfeasible);
  EXPECT_THAT(status.message(), HasSubstr("device 0 runs out of memory"));
  EXPECT_THAT(status.message(), HasSubstr("optimizer"));
  EXPECT_THAT(status.message(), HasSubstr(" = "));
}

TEST(Simulate, IsAFunctionOfItsArguments) {
  PlanningProblem problem = make_test_problem();
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 384, 0.8, 1024, {}};
  const ExecutionPlan plan = uniform_plan(problem, 4, 2, 1);
  SimOptions options;
  options.events = options.memory_curve = true;
  const Trace a = simulated(plan, problem, options), b = simulated(plan, problem, options);
  EXPECT_EQ(a, b);
  options.seed = 1;
  EXPECT_NE(simulated(plan, problem, options).step_s, a.step_s);
}

// The longest of many responses decides when generation ends: a long tail at equal mean length.
TEST(Simulate, LongTailIsVisible) {
  TestProblem test;
  test.algorithm = "grpo", test.prompts = 64, test.samples = 4, test.actor = "qwen2.5-0.5b";
  PlanningProblem problem = make_test_problem(test);
  const ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  const size_t generate = call_id(problem, "generate").value;
  const Trace fixed = simulated(plan, problem);
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 384, 1.0, 4096, {}};
  const Trace tail = simulated(plan, problem);
  EXPECT_GT(tail.calls[generate].seconds(), 2 * fixed.calls[generate].seconds());
  EXPECT_EQ(fixed.calls[generate].rounds, 384 + 1);  // twins wait one round for their prompt
}

TEST(Simulate, DisjointCallsOverlap) {
  const PlanningProblem problem = make_test_problem();
  ExecutionPlan together = uniform_plan(problem, 8, 1, 1), apart = together;
  for (ExecutionPlan* plan : {&together, &apart})
    for (const char* call : {"values", "update_critic", "old_logprob", "update_actor"}) {
      const bool critic = call == std::string("values") || call == std::string("update_critic");
      CallPlan& target = entry(*plan, call);
      target.mesh = range(plan == &apart && critic ? 4 : 0, 4);
      target.strategy.dp = 4;
    }
  const auto end = [&](const Trace& trace, const char* name) {
    return trace.calls[call_id(problem, name).value].end_s;
  };
  const Trace a = simulated(together, problem), b = simulated(apart, problem);
  EXPECT_LT(end(b, "update_actor"), end(a, "update_actor"));
  const size_t actor = call_id(problem, "update_actor").value,
               critic = call_id(problem, "update_critic").value;
  EXPECT_LT(std::abs(b.calls[actor].start_s - b.calls[critic].start_s),
            0.5 * b.calls[critic].seconds());
}

TEST(Simulate, OffloadIsPaidOverTheHostLink) {
  TestProblem test;
  test.actor = test.critic = "qwen2.5-0.5b", test.devices = 1, test.prompts = 16;
  const PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = trivial_plan(problem), offloaded = plan;
  offloaded.roles = {{RoleId{"critic"}, Residency::kHost, Residency::kHost}};
  const Trace a = simulated(plan, problem), b = simulated(offloaded, problem);
  EXPECT_GT(b.step_s, a.step_s);
  EXPECT_LT(
      b.devices[0].peak.use[MemoryOwner::kWeights] + b.devices[0].peak.use[MemoryOwner::kOptimizer],
      a.devices[0].peak.use[MemoryOwner::kWeights] +
          a.devices[0].peak.use[MemoryOwner::kOptimizer] + 1);
  offloaded.roles[0].prefetch = true;
  EXPECT_LE(simulated(offloaded, problem).step_s, b.step_s);
}

TEST(Simulate, PeaksOfACallAreThoseOfItsDevices) {
  const PlanningProblem problem = make_test_problem(
      {.actor = "qwen2.5-0.5b", .critic = "qwen2.5-0.5b", .devices = 4, .prompts = 16});
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  entry(plan, "values").mesh = range(2, 2);
  entry(plan, "values").strategy.dp = 2;
  SimOptions options;
  options.memory_curve = true;
  const Trace trace = simulated(plan, problem, options);
  const auto peaks = peaks_by_call(trace)[call_id(problem, "values").value];
  EXPECT_EQ(peaks[0], 0);
  EXPECT_EQ(peaks[1], 0);
  EXPECT_GT(peaks[2], 0);
  EXPECT_LE(peaks[3], trace.devices[3].peak_bytes);
}

// Twelve sequences on eight devices: some have two, some one.
TEST(Simulate, DataParallelSizesNeedNotDivideTheBatch) {
  const auto step_s = [](int prompts) {
    const PlanningProblem problem =
        make_test_problem({.algorithm = "sft", .prompts = prompts, .minibatches = 1});
    const ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
    EXPECT_TRUE(validate(plan, problem).ok()) << validate(plan, problem).message();
    return simulated(plan, problem).step_s;
  };
  EXPECT_GT(step_s(12), step_s(8));
  EXPECT_LE(step_s(12), 1.0001 * step_s(16));
}

// What may be drawn again takes its time as often as the workload says, and nothing else does.
TEST(Simulate, DrawsArePriced) {
  PlanningProblem problem = make_test_problem(
      {.algorithm = "grpo", .devices = 2, .samples = 4, .dynamic_sampling = true});
  const ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  const auto seconds = [&](const Trace& trace, const char* call) {
    const CallSummary& found = trace.calls[call_id(problem, call).value];
    return found.end_s - found.start_s;
  };
  const Trace one = simulated(plan, problem);
  problem.workload.draws = 1.5;
  const Trace more = simulated(plan, problem);
  EXPECT_NEAR(seconds(more, "generate"), 1.5 * seconds(one, "generate"), 1e-9);
  for (const char* call : {"ref_logprob", "update_actor"})
    EXPECT_NEAR(seconds(more, call), seconds(one, call), 1e-9) << call;
  EXPECT_GT(more.step_s, one.step_s + 0.49 * seconds(one, "generate"));
  PlanningProblem other = make_test_problem({.algorithm = "grpo", .devices = 2, .samples = 4});
  const Trace plain = simulated(uniform_plan(other, 2, 1, 1), other);
  EXPECT_NEAR(plain.step_s, one.step_s, 1e-3 * one.step_s);
  other.workload.draws = 1.5;  // nothing is drawn again
  EXPECT_EQ(simulated(uniform_plan(other, 2, 1, 1), other).step_s, plain.step_s);
}

TEST(Simulate, RecordedLengthsGiveTheOrder) {
  TestProblem test;
  test.algorithm = "grpo", test.devices = 1, test.prompts = 2, test.samples = 1;
  test.actor = "qwen2.5-0.5b", test.minibatches = 2;
  const PlanningProblem problem = make_test_problem(test);
  SimOptions options;
  options.lengths = SampleLengths{{10, 20}, {3, 2}};
  const Program program = *compile(trivial_plan(problem), problem);
  const Trace trace = *simulate(program, problem, committed_calibration(), options);
  EXPECT_EQ(trace.calls[call_id(problem, "generate").value].rounds, 3);
  EXPECT_EQ(trace.calls[call_id(problem, "update_actor").value].rounds, 2);
  const std::string order = executed_order(program, trace, 0);
  EXPECT_THAT(order, HasSubstr("3 round generate\n4 agree generate\n5 region_end generate\n"
                               "3 round generate\n"));
  const auto lines = std::count(order.begin(), order.end(), '\n');
  // fetch, begin + 3 x 3, reward, infer calls and advantages, begin + 2 x 4; four shares.
  const auto infers = static_cast<int64_t>(problem.graph.calls.size()) - 5;
  EXPECT_EQ(lines, 1 + 1 + 9 + 1 + infers + 1 + 1 + 8 + 4);
  options.lengths->response.pop_back();
  EXPECT_THAT(simulate(program, problem, committed_calibration(), options).status().message(),
              HasSubstr("1 response lengths are given"));
}

// What no instruction of a list executes takes no time.
TEST(Simulate, PricesWhatTheListsExecute) {
  TestProblem test;
  test.algorithm = "grpo", test.devices = 4, test.minibatches = 2, test.response_tokens = 512;
  const PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = uniform_plan(problem, 2, 2, 1);
  entry(plan, "update_actor").strategy.zero_stage = 1;
  const Program whole = *compile(plan, problem);
  const Trace trace = *simulate(whole, problem, committed_calibration(), {});
  const std::map<OpKind, const char*> kinds = {
      {OpKind::kRound, "generate"},      {OpKind::kAgree, "generate"},
      {OpKind::kPasses, "update_actor"}, {OpKind::kReduce, "update_actor"},
      {OpKind::kUpdate, "update_actor"}, {OpKind::kAllGather, "update_actor"}};
  for (const auto& [kind, name] : kinds) {
    Program program = whole;
    const CallId call = call_id(problem, name);
    size_t erased = 0;
    for (RankProgram& rank : program.ranks)
      for (size_t i = 0; i < rank.instructions.size(); ++i)
        if (rank.instructions[i].kind == kind && rank.instructions[i].call == call)
          rank.instructions[i].kind = OpKind::kRegionEnd, ++erased;  // keeps the places of others
    EXPECT_EQ(erased, program.ranks.size()) << op_kind_name(kind);
    EXPECT_LT(simulate(program, problem, committed_calibration(), {})->step_s, trace.step_s)
        << op_kind_name(kind) << " " << name;
  }
}

TEST(TraceOutput, ChromeTraceGanttAndPage) {
  const PlanningProblem problem = make_test_problem();
  SimOptions options;
  options.events = options.memory_curve = true;
  const Trace trace = simulated(uniform_plan(problem, 2, 2, 2), problem, options);
  const Json chrome = chrome_trace_json(trace);
  size_t complete = 0;
  for (const Json& event : chrome["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++complete;
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_LE(event["ts"].get<double>() + event["dur"].get<double>(),
              trace.step_s * 1e6 * 1.000001);
  }
  EXPECT_EQ(complete, trace.events.size());
  const std::string gantt = gantt_text(trace, 40);
  EXPECT_THAT(gantt, HasSubstr("   7 |"));
  EXPECT_THAT(gantt, HasSubstr("update_actor"));
  const std::string page = timeline_html(trace, "a </script> b");
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
  EXPECT_EQ(page.find("</script> b"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);  // nothing from elsewhere
  const Json summary = trace_summary_json(trace);
  EXPECT_DOUBLE_EQ(summary["step_s"].get<double>(), trace.step_s);
  EXPECT_EQ(summary["devices"].size(), 8U);
}

// A device computes one thing at a time, and links carry one message at a time.
TEST(Simulate, EventsOfATrackDoNotOverlap) {
  TestProblem test;
  test.nodes = 2;
  const PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = uniform_plan(problem, 4, 2, 2);
  entry(plan, "generate").strategy = grid(4, 4);
  entry(plan, "values").mesh = range(8, 8);
  entry(plan, "values").strategy = grid(8, 1);
  SimOptions options;
  options.events = true;
  const Trace trace = simulated(plan, problem, options);
  std::map<std::pair<DeviceId, TrackKind>, double> free;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kReduce) continue;  // beside the last backward
    double& until = free[{event.device, event.track}];
    EXPECT_GE(event.start_s, until - 1e-12) << event_name(event.kind);
    until = event.end_s;
  }
}

}  // namespace
}  // namespace braid::inline sim
