#include "program/fused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "plan/plan_text.h"
#include "plan/test_problem.h"

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
  Deal deal_of(const Program& program, CallId id) const {
    std::vector<DealSample> samples;
    for (int64_t i = 0; i < call_samples(problem_, program.graph.calls[id.value]); ++i)
      samples.push_back({SampleId{i}, GroupId{i}, 100 + i % 7, 50 + i % 11, true});
    DealOptions options;
    options.trains = true, options.minibatches = problem_.workload.minibatches;
    return deal(samples, program.calls[id.value].strategy, options);
  }

  PlanningProblem problem_;
  ExecutionPlan plan_;
};

// Each rank lists the ops that it would list for each call alone, in another order of passes.
void expect_same_ops(const Program& program, const std::array<Deal, 2>& deals) {
  const FusedCalls& fused = program.fused.front();
  for (const DeviceId rank : program.calls[fused.calls[0].value].mesh.devices) {
    const FusedExpansion both = expand(program, fused, rank, deals);
    EXPECT_EQ(both.order.size(), both.calls[0].ops.size() + both.calls[1].ops.size());
    for (int c = 0; c < 2; ++c) {
      const Expansion alone = expand(program, fused.calls[c], rank, deals[c]);
      using Key = std::tuple<OpKind, int32_t, int32_t, int32_t, int32_t, int32_t>;
      std::multiset<Key> expected, listed;
      for (const Op& op : alone.ops)
        expected.insert({op.kind, op.minibatch, op.micro_batch, op.body, op.cut, op.peer.value});
      for (const Op& op : both.calls[c].ops)
        listed.insert({op.kind, op.minibatch, op.micro_batch, op.body, op.cut, op.peer.value});
      EXPECT_EQ(listed, expected) << "rank " << rank.value << ", call " << c;
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
  expect_same_ops(*program, {deal_of(*program, program->fused[0].calls[0]),
                             deal_of(*program, program->fused[0].calls[1])});
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
  expect_same_ops(*program, {deal_of(*program, program->fused[0].calls[0]),
                             deal_of(*program, program->fused[0].calls[1])});
}

// Replicas of the smaller tensor-parallel size run side by side on the nodes of the larger.
TEST_F(FusedTest, UnifiesDifferentTensorParallelSizes) {
  layouts({"", mesh_of({0, 1, 2, 3, 4, 5, 6, 7}), train(1, 4, 2, 8)},
          {"", mesh_of({4, 5, 6, 7, 0, 1, 2, 3}), train(2, 2, 2, 4)});
  const auto program = compile(plan_, problem_);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->fused[0].problem.nodes, 2);
  EXPECT_EQ(program->fused[0].problem.pipelines.size(), 2);
  expect_same_ops(*program, {deal_of(*program, program->fused[0].calls[0]),
                             deal_of(*program, program->fused[0].calls[1])});
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

}  // namespace
}  // namespace braid::inline program
