// Lists of plans with staleness: who waits for whom, and what is refused.
#include <gmock/gmock.h>

#include <algorithm>

#include "plan/test_problem.h"
#include "plan/validate.h"
#include "program/placement.h"
#include "program/program.h"

namespace braid::inline program {
namespace {

using testing::HasSubstr;

PlanningProblem stale_problem(const std::string& algorithm) {
  return make_test_problem(
      {.algorithm = algorithm, .actor = "qwen2.5-0.5b", .critic = "qwen2.5-0.5b", .devices = 4});
}

DeviceMesh devices(int first, int count) {
  DeviceMesh mesh;
  for (int i = first; i < first + count; ++i) mesh.devices.push_back(DeviceId{i});
  return mesh;
}

// Training on the first two devices, all else on the others, or what is named beside training.
ExecutionPlan stale_plan(const PlanningProblem& problem, int64_t staleness,
                         const std::vector<std::string>& beside = {}) {
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  plan.staleness = staleness;
  for (CallPlan& entry : plan.calls) {
    const bool trains = find_call(problem.graph, entry.call)->kind == CallKind::kTrainStep;
    const bool here = std::find(beside.begin(), beside.end(), entry.call) != beside.end();
    entry.mesh = devices(trains || here ? 0 : 2, 2);
  }
  return plan;
}

std::vector<std::string> order_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const Call& call : graph.calls) out.push_back(call.name);
  return out;
}

TEST(GeneratedAhead, GenerationStandsBetweenWhatItWaitsForAndTraining) {
  const PlanningProblem problem = stale_problem("grpo");
  const Program apart = *compile(stale_plan(problem, 1, {"old_logprob", "ref_logprob"}), problem);
  EXPECT_THAT(order_of(apart.graph),
              testing::ElementsAre("fetch", "reward", "advantages", "generate", "old_logprob",
                                   "ref_logprob", "update_actor"));
  const Program shared = *compile(stale_plan(problem, 2), problem);
  EXPECT_THAT(order_of(shared.graph),
              testing::ElementsAre("fetch", "reward", "old_logprob", "ref_logprob", "advantages",
                                   "generate", "update_actor"));
  EXPECT_EQ(ordered_by_name(apart.graph).calls.size(), apart.graph.calls.size());
  Graph other = shared.graph;
  for (Call& call : other.calls)
    if (call.steps_ahead > 0) call.steps_ahead = 1;
  EXPECT_EQ(ordered_by_name(apart.graph), ordered_by_name(other));
  EXPECT_NE(
      program_hash(apart),
      program_hash(*compile(stale_plan(problem, 2, {"old_logprob", "ref_logprob"}), problem)));
}

// From the first instruction of the generation to the last of training no rank of the one waits for
// a rank of the other: they meet before and after.
TEST(GeneratedAhead, TrainingAndGenerationDoNotWaitForEachOther) {
  const PlanningProblem problem = stale_problem("grpo");
  const Program program = *compile(stale_plan(problem, 1, {"old_logprob", "ref_logprob"}), problem);
  for (int rank = 0; rank < 4; ++rank) {
    const bool generates = rank >= 2;
    const auto& list = program.ranks[rank].instructions;
    const auto is_own = [&](const Instruction& i) {
      const CallKind kind = program.graph.calls[i.call.value].kind;
      return i.kind == OpKind::kRegionBegin || i.kind == OpKind::kRegionEnd
                 ? kind == (generates ? CallKind::kGenerate : CallKind::kTrainStep)
                 : false;
    };
    const auto begin = std::find_if(list.begin(), list.end(), is_own);
    const auto end = std::find_if(list.rbegin(), list.rend(), is_own).base();
    ASSERT_LT(begin, end);
    for (auto i = begin; i < end; ++i) EXPECT_NE(i->kind, OpKind::kShare) << rank;
    // The samples come to all behind it.
    const auto shared = std::find_if(end, list.end(), [&](const Instruction& i) {
      return i.kind == OpKind::kShare &&
             program.graph.calls[program.exchanges[i.detail].producer.value].name == "generate";
    });
    EXPECT_NE(shared, list.end()) << rank;
  }
}

TEST(GeneratedAhead, EveryAlgorithmThatGeneratesCompiles) {
  for (const char* algorithm :
       {"ppo", "grpo", "dapo", "gspo", "cispo", "rloo", "remax", "reinforce", "online_dpo"}) {
    SCOPED_TRACE(algorithm);
    const PlanningProblem problem = stale_problem(algorithm);
    const auto program = compile(stale_plan(problem, 3), problem);
    ASSERT_TRUE(program.ok()) << program.status().message();
    EXPECT_EQ(program->staleness, 3);
    EXPECT_EQ(steps_ahead(program->graph), 3);
    for (int rank = 0; rank < 4; ++rank) {
      const auto own = compile_rank(stale_plan(problem, 3), problem, DeviceId{rank});
      ASSERT_TRUE(own.ok()) << own.status().message();
      EXPECT_EQ(own->ranks[rank], program->ranks[rank]);
    }
  }
}

// Both say which weights drew a sample, in one field.
TEST(GeneratedAhead, AGenerationThatLeavesSamplesWorksAheadToo) {
  PlanningProblem problem = stale_problem("grpo");
  problem.graph = *carried_over(problem.graph, 2);
  problem.workload.prompts_in_flight = 2 * problem.workload.prompts;
  const auto program = compile(stale_plan(problem, 1), problem);
  ASSERT_EQ(program.status().message(), "");
  const Call& generate = *find_call(program->graph, "generate");
  EXPECT_EQ(generate.steps_ahead, 1);
  EXPECT_EQ(generate.carried_steps, 2);
  EXPECT_EQ(std::count_if(generate.writes.begin(), generate.writes.end(),
                          [](const Field& field) { return field.name == kWeightsVersion; }),
            1);
  const std::vector<std::string>& reads = find_call(program->graph, "update_actor")->reads;
  EXPECT_EQ(std::count(reads.begin(), reads.end(), kWeightsVersion), 1);
  for (int rank = 2; rank < 4; ++rank) {
    const auto& list = program->ranks[rank].instructions;
    EXPECT_TRUE(std::any_of(list.begin(), list.end(), [](const Instruction& i) {
      return i.kind == OpKind::kRegionEnd && i.exit == ExitCondition::kEnoughGroups;
    })) << rank;
  }
  PlanningProblem uneven = problem;
  uneven.workload.prompts_in_flight = problem.workload.prompts + 1;
  EXPECT_THAT(compile(stale_plan(uneven, 1), uneven).status().message(),
              HasSubstr("rollout.in_flight"));
}

TEST(GeneratedAhead, RolloutsThatAreTooOldAreRefused) {
  const PlanningProblem problem = stale_problem("grpo");
  const Program program = *compile(stale_plan(problem, 1), problem);
  ASSERT_EQ(verify(program).message(), "");
  Program older = program;
  for (Call& call : older.graph.calls) call.steps_ahead *= 2;
  EXPECT_THAT(verify(older).message(), HasSubstr("rollouts may be 1 steps older"));
  EXPECT_THAT(verify_list(older, DeviceId{0}).message(), HasSubstr("of step + 2"));
  Program strict = program;
  strict.staleness = 0;
  EXPECT_THAT(verify(strict).message(), HasSubstr("rollouts may be 0 steps older"));
  // The generation goes on with the weights that it has.
  Program kept = program;
  for (RankProgram& rank : kept.ranks)
    std::erase_if(rank.instructions,
                  [](const Instruction& i) { return i.kind == OpKind::kReallocate; });
  EXPECT_FALSE(verify(kept).ok());
  // Training begins before it has the rollouts.
  Program early = program;
  for (Instruction& i : early.ranks[0].instructions)
    if (i.kind == OpKind::kRegionBegin) i.after.clear();
  EXPECT_FALSE(verify(early).ok());
}

TEST(GeneratedAhead, WhatCannotRunAheadIsRefused) {
  const PlanningProblem grpo = stale_problem("grpo");
  PlanningProblem draws = grpo;
  draws.graph = make_test_problem({.algorithm = "grpo", .dynamic_sampling = true}).graph;
  EXPECT_THAT(compile(stale_plan(draws, 1), draws).status().message(),
              HasSubstr("algorithm.dynamic_sampling"));
  ExecutionPlan shared = stale_plan(grpo, 1);
  for (CallPlan& entry : shared.calls) entry.mesh = devices(0, 2);
  EXPECT_THAT(compile(shared, grpo).status().message(), HasSubstr("share devices"));
}

TEST(GeneratedAhead, AStepWithoutStalenessHasTheListsThatItHad) {
  const PlanningProblem problem = stale_problem("grpo");
  const Program program = *compile(stale_plan(problem, 0), problem);
  EXPECT_EQ(program.graph, problem.graph);
  EXPECT_EQ(*generated_ahead(problem.graph, 0), problem.graph);
  EXPECT_THAT(program_text(*compile(stale_plan(problem, 1), problem)),
              HasSubstr("generate (generate actor) of step + 1"));
}

}  // namespace
}  // namespace braid::inline program
