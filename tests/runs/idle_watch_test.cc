#include "run/idle_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/process_testing.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Row = std::map<std::string, double>;

struct Watched {
  explicit Watched(const std::string& algorithm) {
    config.algorithm = default_options(algorithm);
    graph = *make_graph(config.algorithm);
  }
  Config config;
  Graph graph;
};

Row policy_row(double samples, double tokens, std::optional<double> norm) {
  Row row = {{"policy/kept_samples", samples}, {"policy/kept_tokens", tokens}};
  if (norm) row["policy/grad_norm"] = *norm;
  return row;
}

TEST(IdleWatch, SaysWhyNothingIsLearnt) {
  Watched watched("grpo");
  watched.config.algorithm.mask_truncated = true;
  const auto said = [&](Row row) { return IdleWatch(watched.config, watched.graph).note(4, row); };
  Row cut = policy_row(0, 0, {});
  cut["length/truncated_frac"] = 1;
  EXPECT_THAT(said(cut), AllOf(HasSubstr("step 5: the actor learns nothing"),
                               HasSubstr("algorithm.mask_truncated")));
  EXPECT_THAT(said(policy_row(0, 0, {})), HasSubstr("no sample of the step is left"));
  EXPECT_THAT(said(policy_row(8, 0, 0.0)), HasSubstr("no token of the step"));
  EXPECT_THAT(said(policy_row(8, 40, {})), HasSubstr("algorithm.stop_kl"));
  EXPECT_THAT(said(policy_row(8, 40, 0.0)), HasSubstr("every gradient is 0"));
  Row equal = policy_row(8, 40, 0.0);
  equal["adv/zero_std_frac"] = 1;
  equal["reward/raw_mean"] = 0.25;
  EXPECT_THAT(said(equal), AllOf(HasSubstr("equal rewards"), HasSubstr("0.25")));
  EXPECT_EQ(said(policy_row(8, 40, 1e-12)), "");
  Row skipped = policy_row(8, 40, {});
  skipped["policy/skipped"] = 1;  // an update that was not finite is said already
  EXPECT_EQ(said(skipped), "");
}

TEST(IdleWatch, WaitingForTheCriticIsMeant) {
  Watched watched("ppo");
  watched.config.critic.warmup_steps = 2;
  IdleWatch watch(watched.config, watched.graph);
  Row row = {{"policy/kept_samples", 4},
             {"policy/kept_tokens", 9},
             {"critic/kept_samples", 4},
             {"critic/kept_tokens", 9},
             {"critic/grad_norm", 0.5}};
  EXPECT_EQ(watch.note(1, row), "");
  EXPECT_THAT(watch.note(2, row), HasSubstr("step 3: the actor"));
  row["policy/grad_norm"] = 1;
  row["critic/grad_norm"] = 0;
  EXPECT_TRUE(watch.status().ok());
}

// Once, and again as a run of idle steps grows; a step that teaches begins anew.
TEST(IdleWatch, SaysItSeldomAndEndsTheRun) {
  Watched watched("grpo");
  IdleWatch watch(watched.config, watched.graph);
  std::vector<int64_t> said;
  int64_t step = 0;
  const auto go = [&](int64_t steps, double norm) {
    for (int64_t i = 0; i < steps; ++i, ++step)
      if (!watch.note(step, policy_row(8, 40, norm)).empty()) said.push_back(step);
  };
  go(4, 0);   // steps 0 to 3
  go(1, 1);   // 4
  go(19, 0);  // 5 to 23
  EXPECT_EQ(said, (std::vector<int64_t>{0, 2, 7, 10, 16}));
  EXPECT_TRUE(watch.status().ok());
  go(1, 0);
  EXPECT_EQ(watch.status().code(), Code::kStopped);
  EXPECT_THAT(watch.status().message(), HasSubstr("20 in a row; the actor learns nothing"));
  watched.config.train.max_idle_steps = 0;
  EXPECT_TRUE(watch.status().ok());
  watched.config.train.max_idle_steps = 20;
  go(1, 1);
  EXPECT_TRUE(watch.status().ok());
}

class IdleRun : public RunProcess {};

// Every response is cut and left out: said in the first step, and the end of the run.
TEST_F(IdleRun, IsSavedAndEnds) {
  const Finished end = run_program(command(
      "idle", "grpo",
      {"algorithm.mask_truncated=true", "rollout.ignore_eos=true", "rollout.max_response_length=2",
       "train.total_steps=30", "train.max_idle_steps=5", "checkpoint.every_steps=0"}));
  EXPECT_EQ(end.end, "exited with status 1") << end.errors;
  EXPECT_THAT(end.errors,
              AllOf(HasSubstr("step 1: the actor learns nothing"),
                    HasSubstr("step 3, 3 steps in a row: the actor learns nothing"),
                    HasSubstr("after step 5 of 30"), HasSubstr("checkpoint.resume=auto")));
  const std::vector<Json> rows = metrics("idle");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0]["policy/kept_samples"], 0);
  EXPECT_EQ(rows[0]["policy/kept_tokens"], 0);
  EXPECT_EQ(steps_kept("idle"), 5);
}

TEST_F(IdleRun, OthersCountWhatTheyKeep) {
  finish(command("busy-actor", "grpo", {"train.total_steps=1"}));
  const std::vector<Json> rows = metrics("busy-actor");
  EXPECT_EQ(rows.at(0)["policy/kept_samples"], 8);
  EXPECT_GE(rows[0]["policy/kept_tokens"], 8);
}

}  // namespace
}  // namespace braid
