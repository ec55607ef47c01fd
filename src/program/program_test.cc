#include "program/program.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid {
namespace {

Program ppo() {
  AlgorithmOptions options;
  options.name = "ppo";
  return *compile(*make_graph(options));
}

TEST(Program, LowersGenerationAndTrainingToRegions) {
  AlgorithmOptions options;
  options.name = "sft";
  const Program program = *compile(*make_graph(options));
  std::vector<OpCode> codes;
  for (const Instruction& i : program.ranks[0].instructions) codes.push_back(i.code);
  EXPECT_EQ(codes,
            (std::vector<OpCode>{OpCode::kCall, OpCode::kRegionBegin, OpCode::kSchedule,
                                 OpCode::kAgree, OpCode::kOptimizerStep, OpCode::kRegionEnd}));
}

TEST(Program, TextAndHashFollowTheValue) {
  Program program = ppo();
  EXPECT_EQ(program_text(program), program_text(ppo()));
  EXPECT_EQ(program_hash(program), program_hash(ppo()));
  program.ranks[0].instructions.pop_back();
  EXPECT_NE(program_hash(program), program_hash(ppo()));
  EXPECT_NE(verify(program).message().find("not closed"), std::string::npos);
}

TEST(Program, ReorderKeepsDependencies) {
  const Program program = ppo();
  std::vector<CallId> order;
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    order.push_back(CallId{static_cast<int32_t>(i)});
  std::swap(order[2], order[3]);  // reward and old_logprob do not depend on each other
  const auto swapped = reorder(program, order);
  ASSERT_TRUE(swapped.ok());
  EXPECT_NE(*swapped, program);
  std::swap(order[0], order[1]);
  EXPECT_NE(reorder(program, order).status().message().find("must come after"), std::string::npos);
}

}  // namespace
}  // namespace braid
