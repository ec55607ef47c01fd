// Jobs that hand a generation over when few samples are left, against the same plan without: what
// they draw, score and learn has the same bits. BRAID_TEST_FULL=1 runs every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::vector<LayoutCase> hand_over_cases() {
  return {
      {"two", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2")},
      {"apart", "ppo", "1x3",
       "  generate: {mesh: \"0,1\", dp: 2}\n"
       "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  ref_logprob: {mesh: \"2\", dp: 1}\n"
       "  values: {mesh: \"2\", dp: 1}\n"
       "  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 2}\n"
       "  update_critic: {mesh: \"1,2\", dp: 2}\n"},
      {"four", "grpo", "1x4",
       "  generate: {mesh: all, dp: 4}\n"
       "  old_logprob: {mesh: all, dp: 2, tp: 2}\n"
       "  ref_logprob: {mesh: all, dp: 2, pp: 2}\n"
       "  update_actor: {mesh: all, dp: 4}\n"},
      {"replicas", "ppo", "1x4", everywhere("ppo", "dp: 2, tp: 2", "dp: 4"), true},
      {"stages", "grpo", "1x4", everywhere("grpo", "dp: 2, pp: 2", "dp: 2, tp: 2"), true},
      {"eight", "ppo", "1x8", everywhere("ppo", "dp: 4, tp: 2", "dp: 4, pp: 2"), true},
  };
}

class JobHandOver : public JobRun {
 protected:
  // `how`: more of the plan's fusion.
  static std::string name_of(const LayoutCase& of, int64_t below, const std::string& how) {
    return cat("hand-over-", of.name, "-", below, how.empty() ? "" : "-other");
  }

  static std::vector<std::string> command_of(const LayoutCase& of, int64_t below,
                                             const std::vector<std::string>& more = {},
                                             const std::string& how = "") {
    const std::string name = name_of(of, below, how);
    LayoutCase with = of;
    with.name = name;
    if (below > 0) with.calls += cat("fusion: {migrate_below_samples: ", below, how, "}\n");
    std::vector<std::string> options = {
        "plan.file=" + write_plan(with),  "optim.actor.name=adamw",
        "optim.critic.name=adamw",        "optim.actor.lr=1e-3",
        "optim.critic.lr=1e-3",           "rollout.record=true",
        "rollout.max_response_length=24", "checkpoint.every_steps=5"};
    options.insert(options.end(), of.more.begin(), of.more.end());
    options.insert(options.end(), more.begin(), more.end());
    return job_command(name, of.algorithm, options);
  }

  static std::string run(const LayoutCase& of, int64_t below,
                         const std::vector<std::string>& more = {}, const std::string& how = "") {
    const std::string name = name_of(of, below, how), whole = name_of(of, 0, "");
    if (below > 0 && path_exists(path(whole))) same_kernels(whole, name);
    finish(command_of(of, below, more, how));
    return name;
  }

  static std::map<std::string, std::string> state_of(const std::string& name) {
    std::map<std::string, std::string> out;
    for (const auto& [file, hash] : hashes(path(name + "/checkpoints/step-000005")))
      if (file.ends_with(".safetensors")) out[file] = hash;
    return out;
  }

  // Samples that went to another replica, over all steps.
  static double migrated(const std::string& name) {
    double out = 0;
    for (const Json& row : metrics(name)) out += row.value("rollout/migrated", 0.0);
    return out;
  }
};

TEST_F(JobHandOver, ChangesNoBit) {
  for (const LayoutCase& of : hand_over_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string whole = run(of, 0);
    if (HasFatalFailure()) return;
    for (const int64_t below :
         full_tier() ? std::vector<int64_t>{1, 3, 5, 8} : std::vector<int64_t>{5}) {
      SCOPED_TRACE(below);
      const std::string handed = run(of, below);
      if (HasFatalFailure()) return;
      EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
                *read_file(path(handed + "/rollouts.jsonl")));
      EXPECT_EQ(state_of(whole), state_of(handed));
      EXPECT_GE(state_of(handed).size(), 2u);
      EXPECT_TRUE(below != 5 || migrated(handed) > 0);
      expect_same_metrics(whole, handed);
    }
  }
}

// Where tokens move without their caches, and replicas take more samples than they had, too.
TEST_F(JobHandOver, TokensAloneMayMove) {
  LayoutCase of = hand_over_cases().front();
  of.name = "tokens";
  const std::string whole = run(of, 0);
  const std::string handed = run(of, 6, {}, ", migrate_to_samples: 8, migrate_cache: false");
  if (HasFatalFailure()) return;
  EXPECT_GT(migrated(handed), 0);
  EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
            *read_file(path(handed + "/rollouts.jsonl")));
  EXPECT_EQ(state_of(whole), state_of(handed));
}

// Where samples are given to replicas by predicted lengths, too; and a run that goes on from a
// checkpoint predicts what the run that went through does.
TEST_F(JobHandOver, PredictedLengthsChangeNoBit) {
  LayoutCase of = hand_over_cases()[2];
  of.name = "predicted";
  const std::vector<std::string> saves = {"checkpoint.every_steps=1", "checkpoint.keep_last=9",
                                          "checkpoint.resume=auto",
                                          "data.train=task:sort_digits:8"};
  const std::string whole = run(of, 0, saves);
  const std::string handed = run(of, 5, saves, ", predicted_lengths: true");
  if (HasFatalFailure()) return;
  EXPECT_GT(migrated(handed), 0);
  EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
            *read_file(path(handed + "/rollouts.jsonl")));
  EXPECT_EQ(state_of(whole), state_of(handed));
  const auto row = metrics(handed).back();
  ASSERT_TRUE(row.contains("rollout/length_correlation")) << row;
  of.name = "predicted-again";
  same_kernels(whole, name_of(of, 5, "other"));
  std::vector<std::string> three = saves;
  three.push_back("train.total_steps=3");
  finish(command_of(of, 5, three, ", predicted_lengths: true"));
  finish(command_of(of, 5, saves, ", predicted_lengths: true"));
  if (HasFatalFailure()) return;
  const auto again = metrics(name_of(of, 5, "other")).back();
  for (const char* name : {"rollout/length_correlation", "rollout/handed_over", "rollout/migrated"})
    EXPECT_EQ(again[name], row[name]) << name;
}

// A rank that dies while samples move ends the job, and the job goes on from its last checkpoint.
TEST_F(JobHandOver, DeathOfARankLosesNothing) {
  if (!full_tier()) GTEST_SKIP() << "a minute of training";
  const std::vector<std::string> saves = {"checkpoint.every_steps=1", "checkpoint.keep_last=9",
                                          "checkpoint.resume=auto"};
  LayoutCase of = hand_over_cases().front();
  of.name = "alive";
  const std::string whole = run(of, 5, saves);
  of.name = "death";
  const auto child = start(command_of(of, 5, saves));
  ASSERT_TRUE(reaches("hand-over-death-5", 2, *child));
  const std::vector<pid_t> ranks = children_of(child->pid());
  ASSERT_EQ(ranks.size(), 2u);
  WatchedRank watched{ranks.back(), {}};
  ASSERT_TRUE(watched.stop_at(
      [](const std::string& at) { return at.find("(hand_over)") != std::string::npos; }, *child));
  ::kill(ranks.back(), SIGKILL);
  EXPECT_EQ(ending(*child).end, "exited with status 1");
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
  finish(command_of(of, 5, saves));
  EXPECT_EQ(state_of(whole), state_of("hand-over-death-5"));
}

}  // namespace
}  // namespace braid
