// Who has which samples: which ranks ask the rewards of which, who computes what its readers can,
// and what is noted as everywhere.
#include "program/exchange.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "program/computed_rows.h"
#include "program/placement.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Four devices in replicas of two; the problem's rewards are of the list alone, or PPO's model's.
Program program_for(const char* algorithm, bool together = false) {
  TestProblem test;
  test.algorithm = algorithm, test.devices = 4;
  PlanningProblem problem = make_test_problem(test);
  problem.rewards_together = together;
  return *compile(uniform_plan(problem, 2, 2, 1), problem);
}

CallId id_of(const Program& program, const std::string& name) {
  const Call* call = find_call(program.graph, name);
  return CallId{static_cast<int32_t>(call - program.graph.calls.data())};
}

const std::vector<int64_t> kGroups = {7, 7, 7, 9, 9, 4, 4, 4};

TEST(ScoredByRank, AGroupIsWhereItsFirstSampleWasGenerated) {
  const Program program = program_for("grpo");
  const CallId reward = id_of(program, "reward"), generate = id_of(program, "generate");
  EXPECT_EQ(asked_beside(program.graph, reward), generate);
  const CallPlacement& where = program.calls[generate.value];
  const int first = head_of(where, 0).value, second = head_of(where, 1).value;
  EXPECT_THAT(program.calls[reward.value].mesh.devices,
              ElementsAre(DeviceId{first}, DeviceId{second}));
  auto scored = scored_by_rank(program, reward, kGroups, {{0, 1, 2, 3}, {4, 5, 6, 7}});
  EXPECT_THAT(scored[first], ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(scored[second], ElementsAre(5, 6, 7));
  scored = scored_by_rank(program, reward, kGroups, {{6, 5, 7, 4}, {0, 3, 2, 1}});
  EXPECT_THAT(scored[first], ElementsAre(5, 6, 7));
  EXPECT_THAT(scored[second], ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(scored_by_rank(program, reward, kGroups, {{}, {0, 1, 2, 3, 4, 5, 6, 7}})[first],
              IsEmpty());
  // A reward reads what it is asked about, and has the results of that.
  const auto all = rows_by_rank(program, reward, std::ssize(kGroups), {});
  EXPECT_EQ(read_by_rank(program, reward, all, scored), scored);
  EXPECT_EQ(written_by_rank(program, reward, all, scored), scored);
}

TEST(ScoredByRank, OneRankHasAllWhereTheListComparesAStep) {
  const Program program = program_for("grpo", true);
  const auto scored =
      scored_by_rank(program, id_of(program, "reward"), kGroups, {{0, 1, 2, 3}, {4, 5, 6, 7}});
  EXPECT_THAT(scored,
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7), IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_NE(plan_hash(program, ""), plan_hash(program_for("grpo"), ""));
}

// The ranks of a reward's own model ask the list, and read what both need.
TEST(ScoredByRank, AModelsRanksAskBesideIt) {
  const Program program = program_for("ppo");
  const CallId reward = id_of(program, "reward");
  EXPECT_EQ(asked_beside(program.graph, reward), reward);
  EXPECT_TRUE(tells_scores(program.graph.calls[reward.value]));
  const std::vector<SampleRows> owned = {{0, 2, 4, 6}, {1, 3, 5, 7}};
  const int second = head_of(program.calls[reward.value], 1).value;
  const auto scored = scored_by_rank(program, reward, kGroups, owned);
  EXPECT_THAT(scored[second], ElementsAre(3, 4, 5, 6, 7));
  const auto rows = rows_by_rank(program, reward, std::ssize(kGroups), owned);
  EXPECT_THAT(read_by_rank(program, reward, rows, scored)[second], ElementsAre(1, 3, 4, 5, 6, 7));
  EXPECT_EQ(on_heads(program, reward, owned)[second], owned[1]);
}

// Advantages of GRPO need what all ranks are told: who trains computes them, and nothing moves.
TEST(ComputedByReaders, WhatAllKnowIsComputedWhereItIsRead) {
  TestProblem test;
  test.algorithm = "grpo", test.devices = 4;
  PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = uniform_plan(problem, 2, 2, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "update_actor") call.mesh = {{DeviceId{2}, DeviceId{3}}}, call.strategy.dp = 1;
  const auto from_advantages = [](const Program& program) {
    const CallId advantages = id_of(program, "advantages");
    return std::count_if(
        program.exchanges.begin(), program.exchanges.end(), [&](const Exchange& e) {
          return !e.shared() && (e.producer == advantages || e.consumer == advantages);
        });
  };
  const Program apart = *compile(plan, problem);
  const CallId advantages = id_of(apart, "advantages");
  EXPECT_THAT(apart.calls[advantages.value].mesh.devices, SizeIs(1));
  EXPECT_EQ(from_advantages(apart), 1);  // to who trains; of the responses the lengths are shared
  AlgorithmOptions options = default_options("grpo");
  note_what_it_looks_at(options, &problem.graph);
  const Program program = *compile(plan, problem);
  EXPECT_TRUE(computed_by_readers(program.graph, program.graph.calls[advantages.value]));
  EXPECT_THAT(program.calls[advantages.value].mesh.devices, ElementsAre(DeviceId{2}, DeviceId{3}));
  EXPECT_EQ(from_advantages(program), 0);
  EXPECT_TRUE(verify(program).ok());
  EXPECT_NE(plan_hash(program, ""), plan_hash(apart, ""));
  options.normalize_advantages = "batch";  // all know the rewards that it divides by
  note_what_it_looks_at(options, &problem.graph);
  EXPECT_TRUE(compile(plan, problem)->ranks == program.ranks);
}

// Those of PPO look at tokens: these go straight to who learns from the advantages, and what is
// whitened over the step needs sums that ranks tell each other.
TEST(ComputedByReaders, TokensGoToWhoReadsWhatIsMadeOfThem) {
  PlanningProblem problem = make_test_problem({.devices = 4});
  note_what_it_looks_at(default_options("ppo"), &problem.graph);
  ExecutionPlan plan = uniform_plan(problem, 2, 2, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "update_critic")
      call.mesh = {{DeviceId{2}, DeviceId{3}}}, call.strategy.dp = 1;
  Program program = *compile(plan, problem);
  const CallId advantages = id_of(program, "advantages");
  EXPECT_THAT(program.calls[advantages.value].mesh.devices, SizeIs(4));
  std::vector<std::string> comes;
  for (const Exchange& e : program.exchanges) {
    EXPECT_TRUE(e.shared() || e.producer != advantages);
    if (!e.shared() && e.consumer == advantages)
      comes.insert(comes.end(), e.fields.begin(), e.fields.end());
  }
  EXPECT_THAT(comes, testing::UnorderedElementsAre("old_logprobs", "ref_logprobs", "values"));
  EXPECT_EQ(words_beside(program.graph.calls[advantages.value]), kWordsOfSums);
  ASSERT_TRUE(verify(program).ok());
  // An update that does not wait for what ranks tell each other.
  auto& list = program.ranks[0].instructions;
  const auto share = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.kind == OpKind::kShare && program.exchanges[i.detail].producer == advantages;
  });
  ASSERT_NE(share, list.end());
  list.erase(share);
  EXPECT_FALSE(verify(program).ok());
}

std::string listed(const SampleRows& rows) {
  std::string out;
  for (const int32_t row : rows) out += cat(out.empty() ? "" : ",", row);
  return out;
}

// Of a sample, or a group, that several ranks compute the first has the metrics; what nobody reads
// is the first rank's.
TEST(ComputedByReaders, EachRowIsReportedOnce) {
  PlanningProblem problem = make_test_problem({.devices = 4});
  note_what_it_looks_at(default_options("ppo"), &problem.graph);
  Program program = *compile(uniform_plan(problem, 4, 1, 1), problem);
  const CallId advantages = id_of(program, "advantages"), actor = id_of(program, "update_actor");
  const auto read = [&](CallId reader) {
    return reader == actor ? std::vector<SampleRows>{{0, 2}, {1}, {}, {3}}
                           : std::vector<SampleRows>{{}, {0, 3}, {2}, {1}};
  };
  const auto rows = [&] {
    std::string out;
    const std::vector<ComputedRows> computed =
        computed_by_rank(program, advantages, {0, 1, 2, 3, 4, 5}, {7, 7, 8, 8, 9, 9}, read);
    for (const ComputedRows& of_rank : computed)
      out += cat(out.empty() ? "" : " ", listed(of_rank.reported), "|", listed(of_rank.others));
    return out;
  };
  EXPECT_EQ(rows(), "0,2,4,5| 1,3|0 |2 |1,3");
  program.graph.calls[advantages.value].by_samples = false;
  EXPECT_EQ(rows(), "0,1,2,3,4,5| |0,1,2,3 |2,3 |0,1,2,3");
  program.graph.calls[advantages.value].by_groups = false;
  EXPECT_EQ(rows(), "0,1,2,3,4,5| | | |");
}

// Who reads how long prompts are waits for all to have said it.
TEST(ShareOfAFetch, StandsBehindItOnAllRanks) {
  Program program = program_for("grpo");
  const int32_t entry = share_of_fetch(program);
  ASSERT_GE(entry, 0);
  EXPECT_THAT(program.exchanges[entry].fields, ElementsAre("prompt_lens", "groups"));
  EXPECT_THAT(program.exchanges[entry].members, SizeIs(4));
  for (const RankProgram& rank : program.ranks) {
    const auto& list = rank.instructions;
    EXPECT_EQ(list[0].call, id_of(program, "fetch"));
    EXPECT_EQ(list[1].kind, OpKind::kShare);
    EXPECT_EQ(list[1].detail, entry);
    EXPECT_THAT(list[1].after, ElementsAre(InstructionId{0}));
    const auto generate = std::find_if(list.begin(), list.end(), [](const Instruction& i) {
      return i.kind == OpKind::kRegionBegin;
    });
    EXPECT_THAT(generate->after, testing::Contains(InstructionId{1}));
  }
  ASSERT_TRUE(verify(program).ok());
  // Put where the next call has begun already.
  std::swap(program.ranks[0].instructions[1], program.ranks[0].instructions[2]);
  EXPECT_FALSE(verify(program).ok());
}

TEST(FieldHoldings, WhatAllHaveGoesToNobody) {
  FieldHoldings holdings(3);
  holdings.note_everywhere("rewards", 2);
  EXPECT_TRUE(holdings.knows("rewards"));
  holdings.note("rewards", {{0}, {1}, {}}, 2);
  EXPECT_THAT(holdings.bring({{"rewards", {1, 1}}}, {{0, 1}, {0, 1}, {0, 1}}, {}), IsEmpty());
  EXPECT_THAT(holdings.speakers("rewards"), ElementsAre(0, 1));
  // Beside samples that one rank alone has.
  FieldHoldings more(3);
  more.note("rewards", {{}, {}, {0, 1}}, 2);
  holdings.append(more, 2);
  holdings.retain({false, true, true, false});
  const auto moves = holdings.bring({{"rewards", {1, 1}}}, {{0, 1}, {}, {0, 1}}, {});
  EXPECT_THAT(moves, ElementsAre(FieldMove{2, 0, {{1}}}));
}

}  // namespace
}  // namespace braid::inline program
