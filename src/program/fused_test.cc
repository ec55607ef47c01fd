#include "program/fused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/text.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "program/fused_order.h"
#include "program/verify_ops.h"

namespace braid::inline program {
namespace {

using ::testing::HasSubstr;

DeviceMesh mesh_of(const std::vector<int>& devices) {
  DeviceMesh mesh;
  for (const int device : devices) mesh.devices.push_back(DeviceId{device});
  return mesh;
}

Strategy train(int dp, int tp, int pp, int64_t micro_batches) {
  Strategy s;
  s.dp = dp, s.tp = tp, s.pp = pp, s.micro_batches = micro_batches;
  return s;
}

// Actor and critic on eight devices, the critic's stages in reverse.
class FusedTest : public ::testing::Test {
 protected:
  FusedTest() : problem_(make_test_problem()), plan_(uniform_plan(problem_, 8, 1, 1)) {
    plan_.fusion.train_schedules = true;
    plan_.fusion.units = 4;
  }
  void layouts(const CallPlan& actor, const CallPlan& critic) {
    for (CallPlan& call : plan_.calls) {
      if (call.call == "update_actor") call.mesh = actor.mesh, call.strategy = actor.strategy;
      if (call.call == "update_critic") call.mesh = critic.mesh, call.strategy = critic.strategy;
    }
  }
  Partition partition_of(const Program& program, CallId id) const {
    std::vector<PartitionSample> samples;
    for (int64_t i = 0; i < call_samples(problem_, program.graph.calls[id.value]); ++i)
      samples.push_back({SampleId{i}, GroupId{i}, 100 + i % 7, 50 + i % 11, true});
    PartitionOptions options;
    options.trains = true, options.minibatches = problem_.workload.minibatches;
    return partition_samples(samples, program.calls[id.value].strategy, options);
  }

  PlanningProblem problem_;
  ExecutionPlan plan_;
};

// Each rank lists the ops that it would list for each call alone, in another order of passes: that
// of the pair, in which every call's passes are those that its list has.
void expect_same_ops(const Program& program, const std::array<Partition, 2>& partitions) {
  const FusedCalls& fused = program.fused.front();
  for (const DeviceId rank : program.calls[fused.calls[0].value].mesh.devices) {
    for (int c = 0; c < 2; ++c) {
      const CallFrame frame = call_frame(program, fused.calls[c]);
      const Expansion both = expand(frame, rank, partitions[c]),
                      apart = expand(alone(frame), rank, partitions[c]);
      using Key = std::tuple<OpKind, int32_t, int32_t, int32_t, int32_t, int32_t>;
      std::multiset<Key> expected, listed;
      for (const Op& op : apart.ops)
        expected.insert({op.kind, op.minibatch, op.micro_batch, op.body, op.cut, op.peer.value});
      for (const Op& op : both.ops)
        listed.insert({op.kind, op.minibatch, op.micro_batch, op.body, op.cut, op.peer.value});
      EXPECT_EQ(listed, expected) << "rank " << rank.value << ", call " << c;
      size_t at = 0;
      while (both.ops[at].kind == OpKind::kZero) ++at;
      for (const FusedPass& pass : fused_passes(program, fused, rank))
        while (pass.call == c && is_of_pass(both.ops[at], pass.op)) ++at;
      EXPECT_GT(at, 2u);
      for (; at < both.ops.size() && both.ops[at].minibatch == 0; ++at)
        EXPECT_TRUE(both.ops[at].kind != OpKind::kForward && both.ops[at].kind != OpKind::kBackward)
            << "a pass that the order leaves out";
    }
  }
}

TEST_F(FusedTest, ListsTheOpsOfBothCalls) {
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(1, 2, 4, 8)},
          {"", mesh_of({6, 7, 4, 5, 2, 3, 0, 1}), train(1, 2, 4, 8)});
  const auto program = compile(plan_, problem_);
  ASSERT_TRUE(program.ok()) << program.status().message();
  ASSERT_EQ(program->fused.size(), 1);
  EXPECT_EQ(program->fused[0].problem.nodes, 4);
  EXPECT_EQ(program->fused[0].problem.pipelines.size(), 2);
  expect_same_ops(*program, {partition_of(*program, program->fused[0].calls[0]),
                             partition_of(*program, program->fused[0].calls[1])});
}

// The critic has two replicas of half as many stages on the same devices: two copies of its
// pipeline in one fused group.
TEST_F(FusedTest, UnifiesDifferentPipelines) {
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(1, 2, 4, 8)},
          {"", mesh_of({2, 3, 6, 7, 0, 1, 4, 5}), train(2, 2, 2, 4)});
  const auto program = compile(plan_, problem_);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->fused[0].problem.nodes, 4);
  EXPECT_EQ(program->fused[0].problem.pipelines.size(), 3);
  expect_same_ops(*program, {partition_of(*program, program->fused[0].calls[0]),
                             partition_of(*program, program->fused[0].calls[1])});
}

// Replicas of the smaller tensor-parallel size run side by side on the nodes of the larger.
TEST_F(FusedTest, UnifiesDifferentTensorParallelSizes) {
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(1, 4, 2, 8)},
          {"", mesh_of({4, 5, 6, 7, 0, 1, 2, 3}), train(2, 2, 2, 4)});
  const auto program = compile(plan_, problem_);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->fused[0].problem.nodes, 2);
  EXPECT_EQ(program->fused[0].problem.pipelines.size(), 2);
  expect_same_ops(*program, {partition_of(*program, program->fused[0].calls[0]),
                             partition_of(*program, program->fused[0].calls[1])});
}

// Two messages of different parts between one pair of ranks are taken as they are sent, in whatever
// order the passes were found to be best.
TEST_F(FusedTest, MessagesOfInterleavedPartsMeet) {
  // Actor's and critic's micro-batches, and parts of a stage: orders that cross in both channels.
  const std::vector<std::array<int, 3>> cases = {{4, 2, 2}, {4, 2, 4}, {8, 4, 4}, {16, 2, 2}};
  for (const auto& [actor_batches, critic_batches, interleave] : cases) {
    Strategy actor = train(1, 4, 2, actor_batches), critic = train(1, 4, 2, critic_batches);
    actor.interleave = critic.interleave = interleave;
    plan_.fusion.units = 1;
    layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), actor},
            {"", mesh_of({4, 5, 6, 7, 0, 1, 2, 3}), critic});
    const auto program = compile(plan_, problem_);
    ASSERT_TRUE(program.ok()) << program.status().message();
    const std::array<Partition, 2> partitions = {
        partition_of(*program, program->fused[0].calls[0]),
        partition_of(*program, program->fused[0].calls[1])};
    expect_same_ops(*program, partitions);
    for (int c = 0; c < 2; ++c) {
      const CallFrame frame = call_frame(*program, program->fused[0].calls[c]);
      std::vector<Expansion> ranks;
      for (const DeviceId rank : frame.where->mesh.devices)
        ranks.push_back(expand(frame, rank, partitions[c]));
      const Status ok = verify_ops(frame, ranks, partitions[c]);
      EXPECT_TRUE(ok.ok()) << ok.message();
    }
  }
}

// One node runs parts 0 and 2, the other parts 1 and 3. The first sends its part 2 on before its
// part 0; the second wants them the other way round.
TEST(FusedOrder, TakesMessagesAsTheyAreSent) {
  PipelineProblem problem;
  problem.nodes = 2;
  Pipeline pipeline;
  pipeline.stages = {0, 1, 0, 1};
  pipeline.micro_batches = 2;
  pipeline.forward = pipeline.backward = pipeline.memory = {1, 1, 1, 1};
  problem.pipelines = {pipeline};
  const auto f = [](int stage, int micro_batch) {
    return PipelineOp{0, micro_batch, stage, PassKind::kForward};
  };
  const auto b = [](int stage, int micro_batch) {
    return PipelineOp{0, micro_batch, stage, PassKind::kBackward};
  };
  const FusedOrder fits = {
      {f(0, 0), f(2, 0), f(0, 1), f(2, 1), b(2, 0), b(2, 1), b(0, 0), b(0, 1)},
      {f(1, 0), f(3, 0), f(1, 1), f(3, 1), b(3, 0), b(3, 1), b(1, 0), b(1, 1)}};
  EXPECT_EQ(verify_order(problem, fits).message(), "");
  EXPECT_EQ(*order_of_messages(problem, fits), fits);
  FusedOrder crossed = fits;
  std::swap(crossed[1][1], crossed[1][2]);  // part 1 of the second micro-batch, then part 3
  EXPECT_THAT(verify_order(problem, crossed).message(),
              HasSubstr("node 1, pass 1: takes a message before one that was sent earlier"));
  EXPECT_EQ(*order_of_messages(problem, crossed), fits);
}

TEST_F(FusedTest, SeveralGroupsAreAlike) {
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(2, 1, 4, 8)},
          {"", mesh_of({6, 7, 4, 5, 2, 3, 0, 1}), train(2, 1, 4, 8)});
  const auto program = compile(plan_, problem_);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->fused[0].problem.nodes, 4);
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(2, 1, 4, 8)},
          {"", mesh_of({0, 4, 1, 3, 2, 6, 7, 5}), train(4, 1, 2, 8)});
  EXPECT_THAT(compile(plan_, problem_).status().message(), HasSubstr("do not meet alike"));
}

TEST_F(FusedTest, TheHashCoversTheOrder) {
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(1, 2, 4, 8)},
          {"", mesh_of({6, 7, 4, 5, 2, 3, 0, 1}), train(1, 2, 4, 8)});
  Program program = *compile(plan_, problem_);
  EXPECT_EQ(program_hash(program), program_hash(*compile(plan_, problem_)));
  const std::string before = program_hash(program);
  std::swap(program.fused[0].order[0][0], program.fused[0].order[0][1]);
  EXPECT_NE(program_hash(program), before);
  plan_.fusion = {};
  EXPECT_NE(program_hash(*compile(plan_, problem_)), before);
}

// Both calls are open in one region; what they make of their gradients alternates.
TEST_F(FusedTest, CallsShareARegion) {
  Strategy critic = train(2, 2, 2, 4);
  critic.zero_stage = 1;
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(1, 2, 4, 8)},
          {"", mesh_of({2, 3, 6, 7, 0, 1, 4, 5}), critic});
  const Program program = *compile(plan_, problem_);
  std::vector<std::string> kinds;
  const std::vector<Instruction>& list = program.ranks[3].instructions;
  for (const Instruction& each : list) {
    const Call& call = program.graph.calls[each.call.value];
    if (call.kind == CallKind::kTrainStep && !stands_between_calls(each.kind))
      kinds.push_back(cat(op_kind_name(each.kind), " ", call.role));
  }
  EXPECT_THAT(
      kinds, ::testing::ElementsAre("region_begin critic", "region_begin actor", "passes critic",
                                    "reduce critic", "agree critic", "agree actor", "update critic",
                                    "all_gather critic", "update actor", "region_end critic",
                                    "region_end actor"));
}

// Lists and orders that are changed are refused.
TEST_F(FusedTest, EveryChangeIsRefused) {
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(1, 2, 4, 8)},
          {"", mesh_of({6, 7, 4, 5, 2, 3, 0, 1}), train(1, 2, 4, 8)});
  const Program program = *compile(plan_, problem_);
  const auto refused = [&](const std::function<void(Program*)>& change) {
    Program other = program;
    change(&other);
    return verify(other).message();
  };
  EXPECT_EQ(refused([](Program*) {}), "");
  EXPECT_THAT(refused([](Program* p) { p->fused[0].order[1].pop_back(); }),
              HasSubstr("fused order"));
  EXPECT_THAT(refused([](Program* p) { std::swap(p->fused[0].nodes[0], p->fused[0].nodes[2]); }),
              HasSubstr("its stage lies on another node"));
  EXPECT_THAT(refused([](Program* p) { std::swap(p->fused[0].order[0], p->fused[0].order[1]); }),
              HasSubstr("another node than its stage"));
  EXPECT_THAT(refused([](Program* p) {
                auto& order = p->fused[0].order[0];
                std::swap(order.front(), order.back());
              }),
              HasSubstr("fused order: node"));
  EXPECT_THAT(refused([](Program* p) { p->fused[0].pipelines[1][0] = 5; }),
              HasSubstr("has no pipeline"));
  const auto in_list = [&](OpKind kind,
                           const std::function<void(std::vector<Instruction>*, size_t)>& change) {
    return refused([&](Program* p) {
      auto& list = p->ranks[0].instructions;
      size_t at = 0;
      while (list[at].kind != kind ||
             p->graph.calls[list[at].call.value].kind != CallKind::kTrainStep)
        ++at;
      change(&list, at);
    });
  };
  using List = std::vector<Instruction>;
  EXPECT_THAT(in_list(OpKind::kPasses, [](List* list, size_t at) { (*list)[at].detail = -1; }),
              HasSubstr("does not execute the passes of all calls"));
  EXPECT_THAT(in_list(OpKind::kAgree,
                      [](List* list, size_t at) {
                        std::swap((*list)[at].call, (*list)[at + 1].call);
                        std::swap((*list)[at].detail, (*list)[at + 1].detail);
                      }),
              HasSubstr("stands behind agree of"));
  EXPECT_THAT(
      in_list(OpKind::kRegionBegin,
              [](List* list, size_t at) { std::swap((*list)[at].call, (*list)[at + 1].call); }),
      HasSubstr("begins before the call that it is fused with"));
}

}  // namespace
}  // namespace braid::inline program
