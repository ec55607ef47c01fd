// Lists that may run a fetch and what follows it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "program/program.h"

namespace braid::inline program {
namespace {

using testing::HasSubstr;

// Generation and training in layouts of their own, the reference on the host.
Program drawing_program() {
  const PlanningProblem problem = make_test_problem(
      {.algorithm = "grpo", .devices = 2, .samples = 4, .dynamic_sampling = true});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "generate") call.strategy.dp = 1, call.strategy.tp = 2;
  plan.roles = {{RoleId{"reference"}, Residency::kHost}, {RoleId{"actor"}, Residency::kHost}};
  auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

size_t index_of(const Program& program, OpKind kind) {
  const auto& list = program.ranks[0].instructions;
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Instruction& i) { return i.kind == kind; });
  EXPECT_NE(found, list.end());
  return found - list.begin();
}

TEST(Repeat, GoesBackToTheFetchAndMovesNoWeights) {
  const Program program = drawing_program();
  const size_t repeat = index_of(program, OpKind::kRepeat);
  const auto& list = program.ranks[0].instructions;
  const int32_t fetch = list[repeat].detail;
  EXPECT_EQ(program.graph.calls[list[fetch].call.value].kind, CallKind::kFetch);
  EXPECT_LT(index_of(program, OpKind::kReallocate), static_cast<size_t>(fetch));
  EXPECT_LT(index_of(program, OpKind::kLoad), static_cast<size_t>(fetch));
  EXPECT_GT(index_of(program, OpKind::kRelease), repeat);
  EXPECT_THAT(program_text(program), HasSubstr(cat("repeat select until filled from ", fetch)));
  // What else comes to the device waits until nothing is drawn any more.
  for (size_t i = repeat + 1; i < list.size(); ++i)
    if (list[i].kind == OpKind::kLoad) {
      EXPECT_THAT(list[i].after,
                  testing::Contains(testing::Field(&InstructionId::value,
                                                   testing::Ge(static_cast<int32_t>(repeat)))));
    }
  const Program one = *compile(program.graph);
  EXPECT_EQ(one.ranks[0].instructions[index_of(one, OpKind::kRepeat)].detail, 0);
}

TEST(Repeat, WhatCannotBeRepeatedIsRefused) {
  const Program whole = drawing_program();
  const size_t repeat = index_of(whole, OpKind::kRepeat);
  ASSERT_TRUE(verify(whole).ok());
  Program program = whole;
  program.ranks[0].instructions[repeat].detail += 1;
  EXPECT_THAT(verify(program).message(), HasSubstr("which is not its fetch"));
  program = whole;
  program.ranks[0].instructions[repeat].exit = ExitCondition::kNone;
  EXPECT_THAT(verify(program).message(), HasSubstr("has no exit condition"));
  program = whole;
  auto& list = program.ranks[0].instructions;
  std::swap(list[repeat], list[repeat - 1]);
  EXPECT_FALSE(verify(program).ok());
  program = whole;
  const size_t release = index_of(program, OpKind::kRelease);
  auto& moved = program.ranks[0].instructions;
  std::rotate(moved.begin() + static_cast<int64_t>(repeat) - 1,
              moved.begin() + static_cast<int64_t>(release),
              moved.begin() + static_cast<int64_t>(release) + 1);
  EXPECT_FALSE(verify(program).ok());
  program = *compile(whole.graph);
  program.ranks[0].instructions.erase(program.ranks[0].instructions.begin() +
                                      static_cast<int64_t>(index_of(program, OpKind::kRepeat)));
  EXPECT_FALSE(verify(program).ok());
}

// Samples of generation go to who learns from them once they are those of the step.
TEST(Repeat, ExchangesForLaterCallsStandBehindIt) {
  const Program program = drawing_program();
  const size_t repeat = index_of(program, OpKind::kRepeat);
  const auto& list = program.ranks[0].instructions;
  const auto select = list[repeat].call;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == OpKind::kExchange) {
      const Exchange& exchange = program.exchanges[list[i].detail];
      EXPECT_EQ(exchange.consumer.value > select.value, i > repeat) << i;
    }
}

}  // namespace
}  // namespace braid::inline program
