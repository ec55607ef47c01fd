// Jobs whose updates begin with what has finished when a generation is handed over, against the
// same plan without: gradients are added up in another order, so all but the bits is the same.
// BRAID_TEST_FULL=1 runs every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::vector<LayoutCase> streamed_cases() {
  const std::string apart =
      "  generate: {mesh: \"2,3\", dp: 2}\n"
      "  ref_logprob: {mesh: \"2,3\", dp: 2}\n";
  return {
      {"three", "grpo", "1x3",
       "  generate: {mesh: \"1,2\", dp: 2}\n"
       "  old_logprob: {mesh: \"0\"}\n"
       "  ref_logprob: {mesh: \"1,2\", dp: 2}\n"
       "  update_actor: {mesh: \"0\"}\n"},
      {"replicas", "grpo", "1x4",
       apart + "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
               "  update_actor: {mesh: \"0,1\", dp: 2}\n"},
      {"tensors", "rloo", "1x4",
       apart + "  old_logprob: {mesh: \"2,3\", dp: 2}\n"
               "  update_actor: {mesh: \"0,1\", tp: 2}\n",
       true},
      {"slices",
       "grpo",
       "1x4",
       apart + "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
               "  update_actor: {mesh: \"0,1\", dp: 2, zero: 2, micro_tokens: 40}\n",
       false,
       {"algorithm.loss_agg=seq_mean_token_mean", "train.minibatches=1"}},
      {"stages",
       "grpo",
       "1x4",
       apart + "  old_logprob: {mesh: \"0,1\", pp: 2}\n"
               "  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 2}\n",
       true,
       {"train.epochs_per_rollout=2"}},
      // Handed over often: parts of the update are small. Memory is looked at before each.
      {"often",
       "grpo",
       "1x6",
       "  generate: {mesh: \"4,5\", dp: 2}\n"
       "  old_logprob: {mesh: \"0-3\", dp: 4}\n"
       "  ref_logprob: {mesh: \"4,5\", dp: 2}\n"
       "  update_actor: {mesh: \"0-3\", dp: 4}\n",
       true,
       {"train.memory_limit_gib=1", "train.minibatches=1", "rollout.samples_per_prompt=2",
        "rollout.prompts_per_step=8", "rollout.max_response_length=64"}},
      {"parts", "reinforce_plus_plus_baseline", "1x4",
       apart + "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
               "  update_actor: {mesh: \"0,1\", dp: 2, zero: 3}\n",
       true},
      {"eight",
       "grpo",
       "1x8",
       "  generate: {mesh: \"4-7\", dp: 4}\n"
       "  ref_logprob: {mesh: \"4-7\", dp: 2, tp: 2}\n"
       "  old_logprob: {mesh: \"0-3\", dp: 4}\n"
       "  update_actor: {mesh: \"0-3\", dp: 2, tp: 2, zero: 1}\n",
       true,
       {"rollout.max_response_length=48"}},
  };
}

class JobStreamedUpdate : public JobRun {
 protected:
  static std::vector<std::string> command_of(const LayoutCase& of, bool streams,
                                             const std::string& below = "6",
                                             const std::vector<std::string>& more = {}) {
    LayoutCase with = of;
    with.name = name_of(of, streams);
    with.calls += cat("fusion: {migrate_below_samples: ", below,
                      streams ? ", train_beside_generation: true" : "", "}\n");
    std::vector<std::string> options = {
        "plan.file=" + write_plan(with), "rollout.max_response_length=24",
        "train.minibatches=2",           "algorithm.normalize_advantages=none",
        "algorithm.kl.in=loss",          "data.train=task:sort_digits:8"};
    options.insert(options.end(), of.more.begin(), of.more.end());
    options.insert(options.end(), more.begin(), more.end());
    return job_command(with.name, of.algorithm, options);
  }
  // When it is handed over, and what else the plan fuses.
  static std::string below_of(const LayoutCase& of) {
    if (of.name == "three") return "6, predicted_lengths: true";
    if (of.name == "tensors") return "6, scored_prefixes: true";
    if (of.name == "often") return "[14, 12, 10, 8, 6, 4, 2, 1]";
    if (of.name == "eight") return "3";
    return of.name == "parts" ? "[8, 4]" : "6";
  }
  static std::string name_of(const LayoutCase& of, bool streams) {
    return cat(streams ? "streamed-" : "whole-", of.name);
  }

  static double sum_of(const std::string& run, const std::string& metric) {
    double out = 0;
    for (const Json& row : metrics(run)) out += row.value(metric, 0.0);
    return out;
  }

  static void expect_near_weights(const std::string& a, const std::string& b) {
    const Tensors left = weights_of(path(a + "/export/actor")),
                  right = weights_of(path(b + "/export/actor"));
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left)
      EXPECT_LE((tensor - right.at(name)).norm().item<double>(),
                kEquivalence * std::max(tensor.norm().item<double>(), 1e-4))
          << name;
  }
};

TEST_F(JobStreamedUpdate, LearnsTheSame) {
  for (const LayoutCase& of : streamed_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string whole = name_of(of, false), streamed = name_of(of, true);
    finish(command_of(of, false));
    if (HasFatalFailure()) return;
    same_kernels(whole, streamed);
    finish(command_of(of, true, below_of(of)));
    if (HasFatalFailure()) return;
    expect_near_weights(whole, streamed);
    EXPECT_GT(sum_of(streamed, "rollout/trained_early"), 0);
    for (const char* metric : {"policy/loss", "policy/grad_norm", "adv/std", "reward/raw_mean"})
      for (size_t step = 0; step < metrics(whole).size(); ++step) {
        const double one = metrics(whole)[step].value(metric, 0.0);
        EXPECT_NEAR(metrics(streamed)[step].value(metric, 0.0), one,
                    1e-4 * std::max(1.0, std::abs(one)))
            << metric << " of step " << step;
      }
  }
}

// Rewards that fail leave samples out: then mini-batches are others, and what was trained until all
// know it is trained again.
TEST_F(JobStreamedUpdate, SamplesThatAreDroppedAreNotLearnt) {
  ASSERT_TRUE(make_folder(path("")).ok());
  LayoutCase of = streamed_cases()[1];
  of.name = "drops";
  of.more = {cat("reward=[", reward_file(path("streamed-drops.py"), "len(solution_str) % 5 == 0"),
                 ", on_error: drop}]")};
  finish(command_of(of, false));
  if (HasFatalFailure()) return;
  same_kernels("whole-drops", "streamed-drops");
  finish(command_of(of, true));
  if (HasFatalFailure()) return;
  expect_near_weights("whole-drops", "streamed-drops");
  for (const Json& row : metrics("streamed-drops")) {
    const bool drops = row["reward/left_out"].get<double>() > 0;
    EXPECT_TRUE(!drops || row["rollout/trained_early"].get<double>() == 0) << row;
  }
  EXPECT_GT(sum_of("streamed-drops", "reward/left_out"), 0);
  EXPECT_EQ(sum_of("streamed-drops", "reward/left_out"), sum_of("whole-drops", "reward/left_out"));
}

// A reward that fails beside the generation ends the job with its message on all ranks.
TEST_F(JobStreamedUpdate, RewardThatFailsEndsTheJob) {
  ASSERT_TRUE(make_folder(path("")).ok());
  LayoutCase of = streamed_cases()[1];
  of.name = "fails";
  of.more = {cat("reward=[", reward_file(path("streamed-fails.py"), "True"), "}]")};
  const auto child = start(command_of(of, true));
  const auto run = ending(*child);
  EXPECT_NE(run.end, "exited with status 0");
  EXPECT_THAT(run.errors, HasSubstr("no answer"));
}

// A rank that lacks memory in a part has the others train it again with it, in smaller
// micro-batches.
TEST_F(JobStreamedUpdate, RankThatRunsOutTrainsItAgain) {
  const std::string preload =
      "LD_PRELOAD=" + join_path(parent_folder(BRAID_BINARY), "tests/libfake_allocation_failure.so");
  LayoutCase of = streamed_cases()[1];
  of.name = "counted", of.more = {"train.total_steps=2"};
  const std::string counts = path("streamed.counts");
  const CommandOutcome whole =
      shell(cat("BRAID_TEST_ALLOCATION_COUNT=", counts, " ", preload), command_of(of, true));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  std::vector<long> by_process;  // the launcher makes fewest
  const std::string text = *read_file(counts);
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    by_process.push_back(std::atol(text.c_str() + at));
  std::sort(by_process.begin(), by_process.end());
  const long of_rank = by_process.at(1);
  ASSERT_GT(of_rank, 400);
  int repeated = 0;
  for (int trial = 0; trial < (full_tier() ? 16 : 4); ++trial) {
    of.name = cat("short-", trial);
    same_kernels("streamed-counted", "streamed-" + of.name);
    const long number = of_rank * (8 + trial) / (full_tier() ? 24 : 12);
    const CommandOutcome end = shell(cat("BRAID_TEST_FAIL_ALLOCATION=", number,
                                         " BRAID_TEST_FAIL_RANK=", trial % 2, " ", preload),
                                     command_of(of, true));
    SCOPED_TRACE(cat("allocation ", number, ": ", end.output));
    if (end.exit_code != 0) {
      EXPECT_THAT(end.output, HasSubstr("out of memory"));
      continue;
    }
    const double repeats = sum_of("streamed-" + of.name, "memory/repeats");
    repeated += repeats > 0 ? 1 : 0;
    expect_near_weights("streamed-counted", "streamed-" + of.name);
  }
  std::printf("%d runs trained something again\n", repeated);
  EXPECT_GT(repeated, 0);
}

// The job goes on from a checkpoint between two steps, and from a kill within one.
TEST_F(JobStreamedUpdate, GoesOnFromACheckpoint) {
  LayoutCase of = streamed_cases()[1];
  of.more = {"checkpoint.every_steps=1", "checkpoint.keep_last=9", "checkpoint.resume=auto",
             "train.total_steps=4"};
  of.name = "through";
  finish(command_of(of, true));
  if (HasFatalFailure()) return;
  of.name = "again";
  same_kernels("streamed-through", "streamed-again");
  const auto child = start(command_of(of, true));
  ASSERT_TRUE(reaches("streamed-again", 2, *child));
  const std::vector<pid_t> ranks = children_of(child->pid());
  ASSERT_GE(ranks.size(), 4u);
  WatchedRank watched{ranks.front(), {}};
  watched.stop_at([](const std::string& at) { return at.find("update_actor") != at.npos; }, *child);
  ::kill(ranks.front(), SIGKILL);
  EXPECT_EQ(ending(*child).end, "exited with status 1");
  finish(command_of(of, true));
  if (HasFatalFailure()) return;
  EXPECT_EQ(hashes(path("streamed-through/export")), hashes(path("streamed-again/export")));
}

}  // namespace
}  // namespace braid
