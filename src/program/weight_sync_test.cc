// Weights of a generation that come over behind their update, beside other updates.
#include "program/weight_sync.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "program/early_update_testing.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PlanningProblem sync_problem() {
  return make_test_problem({.algorithm = "ppo", .devices = 4, .prompts = 16});
}

// Training on the first two devices, all else on the others; the actor trains in another layout
// than it generates in.
ExecutionPlan sync_plan(const PlanningProblem& problem, bool early = true) {
  ExecutionPlan plan = in_halves(problem, {"update_actor", "update_critic"}, 0);
  for (CallPlan& call : plan.calls)
    if (call.call == "update_actor") call.strategy.dp = 1, call.strategy.tp = 2;
  plan.fusion.sync_beside_training = early;
  return plan;
}

Program sync_program(bool early = true) {
  const PlanningProblem problem = sync_problem();
  auto program = compile(sync_plan(problem, early), problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

// Calls that a rank begins, and copies of the actor that come over.
std::vector<std::string> in_order(const Program& program, size_t rank) {
  std::vector<std::string> out;
  for (const Instruction& i : program.ranks[rank].instructions) {
    if (i.kind == OpKind::kReallocate) {
      const WeightCopy& copy = program.copies[program.reallocations[i.detail].copy];
      if (copy.role.value == "actor") out.emplace_back("weights");
    }
    if (starts_call(i.kind) && program.graph.calls[i.call.value].role.value != "reward")
      out.push_back(program.graph.calls[i.call.value].name);
  }
  return out;
}

TEST(WeightSync, StandsBehindItsUpdateAndBeforeOthers) {
  const Program early = sync_program(), late = sync_program(false);
  EXPECT_THAT(in_order(early, 0), ElementsAre("fetch", "update_actor", "weights", "update_critic"));
  EXPECT_THAT(in_order(late, 0), ElementsAre("fetch", "weights", "update_critic", "update_actor"));
  EXPECT_EQ(in_order(early, 3).back(), "weights");
  EXPECT_EQ(in_order(late, 3)[1], "weights");
  EXPECT_EQ(early.reallocations.size(), late.reallocations.size());
  EXPECT_NE(program_hash(early), program_hash(late));
}

// Where the generation's copy is as the last step left it, and nobody brings it for the next.
TEST(WeightSync, ListsThatLeaveNoWeightsForTheNextStepAreRefused) {
  Program program = sync_program();
  auto& list = program.ranks[3].instructions;
  ASSERT_EQ(list.back().kind, OpKind::kReallocate);
  ASSERT_TRUE(verify_list(program, DeviceId{3}).ok());
  program.synced_copy = -1;
  EXPECT_THAT(verify_list(program, DeviceId{3}).message(),
              HasSubstr("which nothing has filled since its weights changed"));
  program = sync_program(false);
  program.synced_copy = program.calls[1].copy;
  EXPECT_THAT(verify_list(program, DeviceId{3}).message(),
              HasSubstr("without the weights that the next step begins with"));
}

// A reference that follows the actor may read the same copy, behind the update too: it stays.
TEST(WeightSync, StaysWhoeverElseReadsIt) {
  PlanningProblem problem = sync_problem();
  problem.graph = with_moving_reference(std::move(problem.graph), 1);
  const auto program = compile(sync_plan(problem), problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  int read_again = 0, released = 0;
  for (size_t i = 0; i < program->graph.calls.size(); ++i)
    read_again += program->graph.calls[i].kind == CallKind::kFollow &&
                          program->calls[i].copy == program->synced_copy
                      ? 1
                      : 0;
  EXPECT_EQ(read_again, 1);
  for (const Instruction& i : program->ranks[3].instructions)
    released += i.kind == OpKind::kRelease && i.detail == program->synced_copy ? 1 : 0;
  EXPECT_EQ(released, 1);
}

std::string refusal(const PlanningProblem& problem, const ExecutionPlan& plan) {
  return compile(plan, problem).status().message();
}

TEST(WeightSync, IsRefusedWhereNothingComesOver) {
  const PlanningProblem problem = sync_problem();
  ExecutionPlan alike = uniform_plan(problem, 4, 1, 1);
  alike.fusion.sync_beside_training = true;
  EXPECT_THAT(refusal(problem, alike),
              HasSubstr("fusion.sync_beside_training: generate has the layout of its role's "
                        "training, so no weights come over; set it false"));
  const PlanningProblem none = make_test_problem({.algorithm = "sft", .devices = 4, .prompts = 16});
  ExecutionPlan sft = uniform_plan(none, 4, 1, 1);
  sft.fusion.sync_beside_training = true;
  EXPECT_THAT(refusal(none, sft), HasSubstr("generates nothing; set it false"));
}

}  // namespace
}  // namespace braid::inline program
