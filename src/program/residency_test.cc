// State in host memory and copies of weights leave a device when all that reads them has ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "program/program.h"

namespace braid {
namespace {

// Generation on the second half of a node with weights that training keeps on the first.
ExecutionPlan generation_apart(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  for (CallPlan& call : plan.calls)
    call.mesh = *contiguous_mesh(problem.cluster, call.call == "generate" ? 4 : 0, 4);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost}};
  return plan;
}

// Instructions of a rank that an instruction waits for, directly or not.
std::set<int32_t> ancestors(const RankProgram& rank, int32_t index) {
  std::set<int32_t> out;
  for (const InstructionId before : rank.instructions[index].after) {
    out.insert(before.value);
    out.merge(ancestors(rank, before.value));
  }
  return out;
}

// Whether `instruction` reads the weights that a role's offload frees, or brings them.
bool touches_home(const Program& program, const Instruction& instruction, const RoleState& state) {
  if (instruction.code == OpCode::kLoad) return program.states[instruction.detail] == state;
  if (instruction.code != OpCode::kSend) return false;
  const Message& message = program.messages[instruction.detail];
  return message.kind == MessageKind::kParameters && message.depth == 0 &&
         program.copies[message.owner].role == state.role;
}

TEST(Residency, WeightsLeaveAfterTheMessagesThatReadThem) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo"});
  ExecutionPlan plan = generation_apart(problem);
  for (const OffloadTiming timing :
       {OffloadTiming::kAfterEachCall, OffloadTiming::kAfterLastCall}) {
    plan.roles[0].timing = timing;
    const Program program = *compile(plan, problem);
    int checked = 0;
    for (const RankProgram& rank : program.ranks)
      for (size_t i = 0; i < rank.instructions.size(); ++i) {
        if (rank.instructions[i].code != OpCode::kOffload) continue;
        const RoleState& state = program.states[rank.instructions[i].detail];
        if (state.optimizer) continue;
        const std::set<int32_t> waits = ancestors(rank, static_cast<int32_t>(i));
        for (int32_t before = 0; before < static_cast<int32_t>(i); ++before) {
          if (!touches_home(program, rank.instructions[before], state)) continue;
          EXPECT_EQ(waits.count(before), 1U) << "offload " << i << " does not wait for " << before;
          ++checked;
        }
      }
    EXPECT_GE(checked, 8);  // on each of four devices the load and messages
  }
}

// A device that passes weights on keeps its copy until they have left.
TEST(Residency, CopiesAreReleasedAfterTheMessagesThatReadThem) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .nodes = 4});
  ExecutionPlan plan = uniform_plan(problem, 4, 2, 1);
  for (CallPlan& call : plan.calls) {
    const bool generates = call.call == "generate";
    call.mesh = *contiguous_mesh(problem.cluster, generates ? 8 : 0, generates ? 24 : 8);
    if (generates) call.strategy.dp = 3, call.strategy.tp = 8;
  }
  const Program program = *compile(plan, problem);
  int checked = 0;
  for (const RankProgram& rank : program.ranks)
    for (size_t i = 0; i < rank.instructions.size(); ++i) {
      if (rank.instructions[i].code != OpCode::kRelease) continue;
      const std::set<int32_t> waits = ancestors(rank, static_cast<int32_t>(i));
      for (int32_t before = 0; before < static_cast<int32_t>(i); ++before) {
        const Instruction& sent = rank.instructions[before];
        if (sent.code != OpCode::kSend) continue;
        const Message& message = program.messages[sent.detail];
        if (message.kind != MessageKind::kParameters || message.depth == 0) continue;
        EXPECT_EQ(waits.count(before), 1U);
        ++checked;
      }
    }
  EXPECT_GT(checked, 0);
}

// A load begins when the same state has left the device before.
TEST(Residency, StateComesBackAfterItHasLeft) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .devices = 1});
  ExecutionPlan plan = trivial_plan(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost}};
  plan.roles[0].timing = OffloadTiming::kAfterEachCall, plan.roles[0].prefetch = true;
  const Program program = *compile(plan, problem);
  const RankProgram& rank = program.ranks[0];
  int32_t left = -1, loads = 0;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    const OpCode code = rank.instructions[i].code;
    if (code == OpCode::kOffload) left = static_cast<int32_t>(i);
    if (code != OpCode::kLoad) continue;
    if (left >= 0) {
      EXPECT_EQ(ancestors(rank, static_cast<int32_t>(i)).count(left), 1U);
    }
    ++loads;
  }
  EXPECT_EQ(loads, 3);  // generate, old_logprob, update_actor
}

}  // namespace
}  // namespace braid
