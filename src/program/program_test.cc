#include "program/program.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid::inline program {
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
  std::vector<OpKind> codes;
  for (const Instruction& i : program.ranks[0].instructions) codes.push_back(i.kind);
  EXPECT_EQ(codes, (std::vector<OpKind>{OpKind::kCall, OpKind::kShare, OpKind::kRegionBegin,
                                        OpKind::kPasses, OpKind::kAgree, OpKind::kUpdate,
                                        OpKind::kRegionEnd}));
}

TEST(Program, TextAndHashFollowTheValue) {
  Program program = ppo();
  EXPECT_EQ(program_text(program), program_text(ppo()));
  EXPECT_EQ(program_hash(program), program_hash(ppo()));
  program.ranks[0].instructions.pop_back();
  EXPECT_NE(program_hash(program), program_hash(ppo()));
  EXPECT_NE(verify(program).message().find("not closed"), std::string::npos);
}

// Whatever a plan says of a call is in the hash, also where the lists are the same.
TEST(Program, HashCoversEveryCallsStrategy) {
  Program program = ppo();
  program.calls.resize(program.graph.calls.size());
  const std::string before = program_hash(program);
  const std::vector<void (*)(Strategy&)> changes = {
      [](Strategy& s) { s.dp = 2; },
      [](Strategy& s) { s.tp = 2; },
      [](Strategy& s) { s.pp = 2; },
      [](Strategy& s) { s.cp = 2; },
      [](Strategy& s) { s.ep = 2; },
      [](Strategy& s) { s.expert_tp = 2; },
      [](Strategy& s) { s.interleave = 2; },
      [](Strategy& s) { s.sequence_parallel = true; },
      [](Strategy& s) { s.zero_stage = 1; },
      [](Strategy& s) { s.zero_ranks = 2; },
      [](Strategy& s) { s.recompute = Recompute::kFull; },
      [](Strategy& s) { s.micro_batches = 2; },
      [](Strategy& s) { s.micro_tokens = 2; },
      [](Strategy& s) { s.in_order = true; },
      [](Strategy& s) { s.kv_budget_tokens = 2; },
      [](Strategy& s) { s.max_concurrent = 2; },
      [](Strategy& s) { s.schedule = PipelineOrder::kAllForwardFirst; },
      [](Strategy& s) { s.stage_layers = {2}; },
      [](Strategy& s) { s.precision = Precision::kF32; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    Program changed = program;
    changes[i](changed.calls[1].strategy);
    EXPECT_NE(program_hash(changed), before) << "change " << i;
  }
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
}  // namespace braid::inline program
