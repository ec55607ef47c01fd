// Jobs whose updates begin while the samples of their later mini-batches are still scored, against
// the same plan without: what they draw, score and learn has the same bits. BRAID_TEST_FULL=1 runs
// every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/job_testing.h"

namespace braid {
namespace {

std::vector<LayoutCase> early_cases() {
  return {
      // The actor's own log-probs are scored beside its update too, with a copy of its weights.
      {"three", "grpo", "1x3",
       "  generate: {mesh: \"1,2\", dp: 2}\n"
       "  old_logprob: {mesh: \"2\", dp: 1}\n"
       "  ref_logprob: {mesh: \"1\", dp: 1}\n"
       "  update_actor: {mesh: \"0\", dp: 1}\n"},
      {"pairs", "dpo", "1x2",
       "  ref_logprob: {mesh: \"1\"}\n"
       "  update_actor: {mesh: \"0\"}\n"},
      {"four", "cispo", "1x4",
       "  generate: {mesh: \"2,3\", dp: 2}\n"
       "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  ref_logprob: {mesh: \"2,3\", tp: 2}\n"
       "  update_actor: {mesh: \"0,1\", dp: 2, zero: 1}\n",
       true},
      {"stages", "grpo", "1x4",
       "  generate: {mesh: \"2,3\", dp: 2}\n"
       "  old_logprob: {mesh: \"0,1\", pp: 2}\n"
       "  ref_logprob: {mesh: \"2,3\", pp: 2}\n"
       "  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 2}\n",
       true},
      {"eight", "grpo", "1x8",
       "  generate: {mesh: \"4-7\", dp: 4}\n"
       "  old_logprob: {mesh: \"0-3\", dp: 2, tp: 2}\n"
       "  ref_logprob: {mesh: \"4-7\", dp: 2, pp: 2}\n"
       "  update_actor: {mesh: \"0-3\", dp: 2, tp: 2, zero: 1}\n",
       true},
  };
}

class JobEarlyUpdate : public JobRun {
 protected:
  // Weights and moments of the last checkpoint.
  static std::map<std::string, std::string> tensor_files(const std::string& name) {
    std::map<std::string, std::string> out;
    for (const auto& [file, hash] : hashes(path(name + "/checkpoints/step-000004")))
      if (file.ends_with(".safetensors")) out[file] = hash;
    EXPECT_FALSE(out.empty());
    return out;
  }

  // `how`: more of the plan's fusion.
  static std::vector<std::string> command_of(const LayoutCase& of, int64_t first,
                                             const std::vector<std::string>& more = {},
                                             const std::string& how = "") {
    LayoutCase with = of;
    with.name = cat("early-", of.name, "-", first);
    if (first > 0) with.calls += cat("fusion: {train_beside_scoring: ", first, how, "}\n");
    std::vector<std::string> options = {"plan.file=" + write_plan(with), "optim.actor.name=adamw",
                                        "optim.actor.lr=1e-3",           "train.minibatches=4",
                                        "checkpoint.every_steps=2",      "checkpoint.keep_last=9",
                                        "checkpoint.resume=auto",        "train.total_steps=4"};
    if (of.algorithm != "dpo")
      options.insert(options.end(), {"rollout.record=true", "rollout.max_response_length=16"});
    options.insert(options.end(), of.more.begin(), of.more.end());
    options.insert(options.end(), more.begin(), more.end());
    return job_command(with.name, of.algorithm, options);
  }
};

// The run with the early update goes on from a checkpoint between two steps.
TEST_F(JobEarlyUpdate, ChangesNoBit) {
  for (const LayoutCase& of : early_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string whole = cat("early-", of.name, "-0");
    finish(command_of(of, 0));
    for (const int64_t first :
         full_tier() ? std::vector<int64_t>{1, 2, 3} : std::vector<int64_t>{1}) {
      if (HasFatalFailure()) return;
      const std::string early = cat("early-", of.name, "-", first);
      same_kernels(whole, early);
      finish(command_of(of, first, {"train.total_steps=2"}));
      finish(command_of(of, first));
      if (HasFatalFailure()) return;
      if (of.algorithm != "dpo") {
        EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
                  *read_file(path(early + "/rollouts.jsonl")));
      }
      EXPECT_EQ(hashes(path(whole + "/export")), hashes(path(early + "/export")));
      expect_same_metrics(whole, early);
    }
  }
}

// Rewards that fail leave out samples of every part. Those that are left are scored where their
// responses are, which came there before; and where memory is limited the step is rehearsed.
TEST_F(JobEarlyUpdate, WhatIsLeftIsScoredWhereItIs) {
  ASSERT_TRUE(make_folder(path("")).ok());
  const LayoutCase of = {
      "drops",
      "grpo",
      "1x4",
      "  generate: {mesh: \"3\"}\n"
      "  old_logprob: {mesh: \"0\"}\n"
      "  ref_logprob: {mesh: \"1,2\", dp: 2}\n"
      "  update_actor: {mesh: \"0\"}\n",
      false,
      {cat("reward=[", reward_file(path("early-drops.py"), "len(solution_str) % 4 == 0"),
           ", on_error: drop}]"),
       "train.memory_limit_gib=1", "train.total_steps=3"}};
  finish(command_of(of, 0));
  same_kernels("early-drops-0", "early-drops-1");
  finish(command_of(of, 1));
  if (HasFatalFailure()) return;
  EXPECT_EQ(hashes(path("early-drops-0/export")), hashes(path("early-drops-1/export")));
  expect_same_metrics("early-drops-0", "early-drops-1");
  double dropped = 0;
  for (const Json& row : metrics("early-drops-1")) dropped += row["reward/left_out"].get<double>();
  EXPECT_GT(dropped, 0);
}

// Behind a generation that is handed over, too: what has finished is scored at once, by who is
// free, and the rest in the order of the update. With rewards that fail, too.
TEST_F(JobEarlyUpdate, BehindAHandOverChangesNoBit) {
  ASSERT_TRUE(make_folder(path("")).ok());
  const std::string handed = ", migrate_below_samples: 5";
  const std::string drops =
      cat("reward=[", reward_file(path("handed-drops.py"), "len(solution_str) % 4 == 0"),
          ", on_error: drop}]");
  const std::string calls =
      "  generate: {mesh: \"1,2\", dp: 2}\n"
      "  old_logprob: {mesh: \"2\", dp: 1}\n"
      "  ref_logprob: {mesh: \"1,2\", dp: 2}\n"
      "  update_actor: {mesh: \"0\", dp: 1}\n";
  for (LayoutCase of : {LayoutCase{"handed", "grpo", "1x3", calls, false, {}},
                        LayoutCase{"handed-drops", "grpo", "1x3", calls, false, {drops}}}) {
    SCOPED_TRACE(of.name);
    of.more.emplace_back("rollout.max_response_length=24");
    const std::string whole = cat("early-", of.name, "-0"), early = cat("early-", of.name, "-1");
    finish(command_of(of, 0));
    same_kernels(whole, early);
    finish(command_of(of, 1, {}, handed));
    if (HasFatalFailure()) return;
    EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
              *read_file(path(early + "/rollouts.jsonl")));
    EXPECT_EQ(tensor_files(whole), tensor_files(early));
    EXPECT_EQ(hashes(path(whole + "/export")), hashes(path(early + "/export")));
    expect_same_metrics(whole, early);
    double migrated = 0;
    for (const Json& row : metrics(early)) migrated += row["rollout/migrated"].get<double>();
    EXPECT_GT(migrated, 0);
  }
}

}  // namespace
}  // namespace braid
