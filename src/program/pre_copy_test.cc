// Caches that are copied ahead of a hand-over: who is chosen, and what that changes when the
// generation is handed over.
#include "program/pre_copy.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/rng.h"
#include "plan/test_problem.h"
#include "program/hand_over_testing.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// At the hand-over, when some have finished since.
std::vector<SampleProgress> finished_since(std::vector<SampleProgress> samples,
                                           const PreCopy& ahead,
                                           const std::vector<int32_t>& finished) {
  for (size_t row = 0; row < samples.size(); ++row) samples[row].chosen = ahead.chosen[row];
  for (const CacheCopy& copy : ahead.copies) samples[copy.row].copied = copy.tokens;
  for (const int32_t row : finished) samples[row].finished = true;
  return samples;
}

const std::vector<SampleRows> kOwned = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};

TEST(PreCopy, CopiesWhatWouldMove) {
  // Three, two and two left. One replica has room for the four with which it is handed over.
  const auto samples = progress_of({-5, -9, -3, 5, -2, -4, 5, 5, 5, -7, 5, -2});
  std::vector<int64_t> cached(12, 14);
  cached[11] = 0;  // waits for a place
  const PreCopy ahead = pre_copy(samples, cached, kOwned, {4, 0, 20}, 4);
  EXPECT_THAT(ahead.chosen, ElementsAre(0, 0, 0, -1, 0, 0, -1, -1, -1, 0, -1, 0));
  EXPECT_THAT(ahead.copies,
              ElementsAre(CacheCopy{4, 1, 0, 14}, CacheCopy{5, 1, 0, 14}, CacheCopy{9, 2, 0, 14}));
  // With room for fewer, two replicas are chosen, also where tokens are what there is room for.
  EXPECT_THAT(pre_copy(samples, cached, kOwned, {2, 0, 20}, 4).copies,
              ElementsAre(CacheCopy{9, 2, 0, 14}));
  EXPECT_THAT(pre_copy(samples, cached, kOwned, {0, 119, 20}, 4).copies,
              ElementsAre(CacheCopy{9, 2, 0, 14}));
  EXPECT_EQ(told_ahead_bytes(12), 192);
  FusedScoring scoring;
  EXPECT_EQ(handed_numbers(scoring), 1);
  scoring.pre_copy = 7;
  EXPECT_EQ(handed_numbers(scoring), 3);
}

// The replica that was chosen goes on, though another has more left by then.
TEST(PreCopy, SamplesGoWhereTheirCachesAre) {
  const auto samples = progress_of({-5, -9, -3, 5, -2, -4, 5, 5, 5, -7, 5, -2});
  std::vector<int64_t> cached(12, 14);
  cached[11] = 0;
  const PreCopy ahead = pre_copy(samples, cached, kOwned, {4, 0, 20}, 4);
  const auto then = finished_since(samples, ahead, {0, 1, 9});
  EXPECT_THAT(
      hand_over(progress_of({5, 9, -3, 5, -2, -4, 5, 5, 5, 7, 5, -2}), kOwned, {4, 0, 20}).goes_on,
      ElementsAre(false, true, false));
  const HandOver handed = hand_over(then, kOwned, {4, 0, 20});
  EXPECT_THAT(handed.goes_on, ElementsAre(true, false, false));
  EXPECT_THAT(handed.moves, ElementsAre(SampleMove{4, 1, 0, 14}, SampleMove{5, 1, 0, 14},
                                        SampleMove{11, 2, 0, 0}));
  EXPECT_THAT(handed.left[0], ElementsAre(2, 4, 5, 11));
}

// Where the replica that was chosen has no room, a sample moves as if nothing had been copied.
TEST(PreCopy, NoReplicaGetsMoreThanItHasRoomFor) {
  const std::vector<SampleRows> owned = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}};
  const auto samples = progress_of({-1, -1, -1, -1, -1, -1, -1, -1, -1});
  const std::vector<int64_t> cached(9, 10);
  const PreCopy ahead = pre_copy(samples, cached, owned, {3, 0, 20}, 4);
  ASSERT_THAT(ahead.copies,
              ElementsAre(CacheCopy{6, 2, 0, 10}, CacheCopy{7, 2, 1, 10}, CacheCopy{8, 2, 0, 10}));
  const auto then = finished_since(samples, ahead, {1, 3, 4, 5, 7});
  const HandOver handed = hand_over(then, owned, {3, 0, 20});
  EXPECT_THAT(handed.left[0], ElementsAre(0, 2, 6));
  EXPECT_THAT(handed.moves, ElementsAre(SampleMove{6, 2, 0, 10}, SampleMove{8, 2, 1, 0}));
  // Likewise with tokens: 90 are room for three samples.
  EXPECT_EQ(hand_over(then, owned, {0, 90, 20}).left[0], handed.left[0]);
}

// As many replicas go on as without copies, none with more than it may have, and each sample on one
// of them.
TEST(PreCopy, KeepsWhatHandOversPromise) {
  RandomStream random(4, 0);
  int64_t used = 0, moved = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> produced, cached;
    for (int i = 0; i < 24; ++i) {
      const auto tokens = static_cast<int64_t>(1 + random.below(30));
      produced.push_back(random.below(3) == 0 ? tokens : -tokens);
      cached.push_back(random.below(5) == 0 ? 0 : 9 + tokens);
    }
    std::vector<SampleRows> owned(6);
    for (int32_t row = 0; row < 24; ++row) owned[row / 4].push_back(row);
    const ReplicaLimits limits{static_cast<int64_t>(4 + random.below(4)), 0, 30};
    const auto samples = progress_of(produced);
    const PreCopy ahead = pre_copy(samples, cached, owned, limits, 8);
    std::vector<int32_t> finished;
    for (int32_t row = 0; row < 24; ++row)
      if (random.below(2) == 0) finished.push_back(row);
    const auto then = finished_since(samples, ahead, finished);
    const HandOver handed = hand_over(then, owned, limits);
    const HandOver without = hand_over(
        finished_since(samples, {std::vector<int32_t>(24, -1), {}}, finished), owned, limits);
    EXPECT_EQ(std::count(handed.goes_on.begin(), handed.goes_on.end(), true),
              std::count(without.goes_on.begin(), without.goes_on.end(), true));
    EXPECT_EQ(handed.late, without.late);
    EXPECT_EQ(handed.early, without.early);
    SampleRows all;
    for (size_t replica = 0; replica < owned.size(); ++replica) {
      EXPECT_LE(std::ssize(handed.left[replica]), limits.sequences);
      EXPECT_TRUE(handed.goes_on[replica] || handed.left[replica].empty());
      all.insert(all.end(), handed.left[replica].begin(), handed.left[replica].end());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, handed.late);
    for (const SampleMove& move : handed.moves) {
      EXPECT_TRUE(move.copied == 0 || move.to == ahead.chosen[move.row]);
      used += move.copied > 0 ? 1 : 0, ++moved;
    }
  }
  EXPECT_GT(used, moved / 2);
}

std::string pre_copy_refusal(const std::function<void(Fusion*)>& change) {
  const PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 32});
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  plan.fusion.migrate_below_samples = 8, plan.fusion.pre_copy_below_samples = 16;
  change(&plan.fusion);
  return compile(plan, problem).status().message();
}

TEST(PreCopy, PlansThatCannotAreRefused) {
  EXPECT_EQ(pre_copy_refusal([](Fusion*) {}), "");
  EXPECT_EQ(pre_copy_refusal([](Fusion* fusion) { fusion->migrate_again_below = {4, 2}; }), "");
  EXPECT_THAT(pre_copy_refusal([](Fusion* fusion) { fusion->pre_copy_below_samples = 8; }),
              HasSubstr("fusion.pre_copy_below_samples: 8 is not above migrate_below_samples, 8"));
  EXPECT_THAT(pre_copy_refusal([](Fusion* fusion) { fusion->pre_copy_below_samples = -1; }),
              HasSubstr("fusion.pre_copy_below_samples: must not be negative"));
  EXPECT_THAT(pre_copy_refusal([](Fusion* fusion) { fusion->migrate_cache = false; }),
              HasSubstr("no cache moves (migrate_cache: false)"));
  EXPECT_THAT(
      pre_copy_refusal([](Fusion* fusion) { fusion->migrate_below_samples = kAutoMigration; }),
      HasSubstr("migrate_below_samples: auto states none; state that"));
  EXPECT_THAT(pre_copy_refusal([](Fusion* fusion) { fusion->migrate_below_samples = 0; }),
              HasSubstr("migrate_below_samples is 0"));
}

TEST(PreCopy, ListsSayWhenCachesAreCopied) {
  const PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 32});
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  plan.fusion.migrate_below_samples = 8;
  const std::string without = program_hash(*compile(plan, problem));
  plan.fusion.pre_copy_below_samples = 16;
  Program program = *compile(plan, problem);
  EXPECT_EQ(program.scoring.pre_copy, 16);
  EXPECT_NE(program_hash(program), without);
  EXPECT_EQ(verify(program).message(), "");
  program.scoring.pre_copy = 8;
  EXPECT_THAT(verify(program).message(), HasSubstr("not before they are handed over"));
  program.scoring.pre_copy = 16, program.scoring.cache = false;
  EXPECT_THAT(verify(program).message(), HasSubstr("caches are copied"));
}

}  // namespace
}  // namespace braid::inline program
