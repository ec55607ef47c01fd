// What fails on one rank alone: the step fails on all ranks, which name it, and they go on
// together.
#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

// A step in which one of the ranks that compute advantages, by its place among them, has another
// function for them, which lacks what it reads.
void fail_in_advantages(World& world, const std::string& algorithm, const std::string& calls,
                        int place, bool whiten = false) {
  Config config = tiny_run(algorithm);
  config.algorithm.whiten_rewards = whiten;
  config.run.name = cat("rank-failure-", ::getpid(), "-", world.global_rank());
  Program program =
      program_under(config, cat("graph: ", algorithm, "\ndevices: 1x3\ncalls:\n", calls));
  int64_t failing = -1;
  for (size_t i = 0; i < program.calls.size(); ++i)
    if (Call& call = program.graph.calls[i]; call.kind == CallKind::kCompute) {
      failing = program.calls[i].mesh.devices.at(place).value;
      if (world.global_rank() == failing) call.function = "remax_advantages";
    }
  auto session = Session::create(config, program, &world);
  ASSERT_EQ(session.status().message(), "");
  if (world.global_rank() != 0) {
    EXPECT_EQ((*session)->follow().message(), "");
    return;
  }
  const Status failed = (*session)->run_step().status();
  EXPECT_THAT(failed.message(),
              testing::HasSubstr(cat(": rank ", failing, ": field greedy_rewards is missing")));
  EXPECT_TRUE((*session)->failed_alike());
  EXPECT_TRUE((*session)->others_wait());
  EXPECT_EQ((*session)->dismiss().message(), "");
}

// Two ranks compute the advantages that they read; one of them fails.
RANK_TEST(RankFailure, OfAReaderOfRewardsIsNamedByAll, 3) {
  const char* const calls =
      "  generate: {mesh: all, dp: 3}\n"
      "  old_logprob: {mesh: \"1,2\", dp: 2, micro_tokens: 40}\n"
      "  ref_logprob: {mesh: \"0\", dp: 1, micro_tokens: 40}\n"
      "  update_actor: {mesh: \"1,2\", dp: 2, micro_tokens: 40}\n";
  for (const int place : {0, 1}) fail_in_advantages(world, "grpo", calls, place);
}

constexpr const char* kApart =
    "  generate: {mesh: all, dp: 3}\n"
    "  old_logprob: {mesh: \"0\", dp: 1, micro_tokens: 40}\n"
    "  ref_logprob: {mesh: \"0\", dp: 1, micro_tokens: 40}\n"
    "  values: {mesh: \"1\", dp: 1, micro_tokens: 40}\n"
    "  update_actor: {mesh: \"2\", dp: 1, micro_tokens: 40}\n"
    "  update_critic: {mesh: \"1\", dp: 1, micro_tokens: 40}\n";

// Both ranks that train compute advantages, and tell each other sums; the first, which has those of
// all samples, fails.
RANK_TEST(RankFailure, OfAReaderOfTokensIsNamedByAll, 3) {
  fail_in_advantages(world, "ppo", kApart, 0);
}

// One rank computes the advantages of all where rewards are whitened, and another trains.
RANK_TEST(RankFailure, OfTheRankThatComputesAdvantagesIsNamedByAll, 3) {
  fail_in_advantages(world, "ppo", kApart, 0, true);
}

}  // namespace
}  // namespace braid::inline session
