// Steps that draw prompts until enough groups have a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "algo/batch.h"
#include "host/testing.h"
#include "samples/drawn_groups.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;

// Two responses of few tokens: many groups are worth the same.
Config drawing_run(const std::string& algorithm = "grpo") {
  Config config = tiny_run(algorithm);
  config.rollout.max_response_length = 2;
  config.train.threads = 1;
  config.algorithm.dynamic_sampling = true;
  config.algorithm.max_draws = 0;
  return config;
}

void expect_filled(const Session& session, int64_t groups) {
  const SampleStore& store = session.store();
  const std::vector<double> rewards = to_doubles(*store.reals("rewards", store.all_rows()));
  const std::vector<int64_t> of = store.counts("groups");
  EXPECT_EQ(count_groups(of), groups);
  EXPECT_TRUE(std::is_sorted(of.begin(), of.end()));
  for (const bool kept : with_signal(rewards, of)) EXPECT_TRUE(kept);
}

TEST(Select, DrawsUntilEveryGroupHasASignal) {
  for (const char* algorithm : {"dapo", "rloo", "online_dpo"}) {
    SCOPED_TRACE(algorithm);
    Config config = drawing_run(algorithm);
    const Program program = program_of(config);
    const auto session = session_of(config, program);
    double draws = 0;
    for (int step = 0; step < 2; ++step) {
      const auto row = session->run_step();
      ASSERT_TRUE(row.ok()) << row.status().message();
      expect_filled(*session, 4);
      draws += row->at("sampling/draws");
      EXPECT_EQ(row->at("data/prompts_seen"), 4 * draws);
      EXPECT_EQ(row->at("policy/kept_samples"), 8);
      EXPECT_EQ(row->at("sampling/missing"), 0);
    }
    EXPECT_GT(draws, 2);  // else nothing was drawn again here
  }
}

// Groups without a pair count nothing: the update is the one in which they are left out before.
TEST(Select, PairsAreWeighedAlikeWhateverGroupsHaveNone) {
  Config config = drawing_run("online_dpo");
  config.rollout.prompts_per_step = 16;
  config.train.minibatches = 1;
  config.optim.actor.name = "sgd";
  config.algorithm.dynamic_sampling = false;
  const Program all = program_of(config);
  const auto row = session_of(config, all)->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  ASSERT_GT(row->at("adv/zero_std_frac"), 0);
  ASSERT_LT(row->at("adv/zero_std_frac"), 1);
  config.algorithm.dynamic_sampling = true;
  config.algorithm.max_draws = 1;
  config.algorithm.on_shortage = "train";
  const Program pairs = program_of(config);
  const auto left = session_of(config, pairs)->run_step();
  ASSERT_TRUE(left.ok()) << left.status().message();
  const double norm = left->at("policy/grad_norm");
  EXPECT_NEAR(row->at("policy/grad_norm"), norm, 1e-4 * norm);
  EXPECT_NEAR(row->at("dpo/loss"), left->at("dpo/loss"), 1e-6);
}

// Where the first draw suffices, the step is the one without.
TEST(Select, ADrawThatSufficesChangesNoBit) {
  Config config = tiny_run("grpo");
  config.train.threads = 1;
  config.rollout.samples_per_prompt = 8;
  const Program plain = program_of(config);
  const auto without = session_of(config, plain);
  const auto expected = without->run_step();
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  ASSERT_EQ(expected->at("adv/zero_std_frac"), 0);
  config.algorithm.dynamic_sampling = true;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->at("sampling/draws"), 1);
  EXPECT_EQ(row->at("policy/loss"), expected->at("policy/loss"));
  EXPECT_TRUE(same_weights(*session, *without));
}

TEST(Select, GoesOnBitForBit) {
  const Config config = drawing_run();
  const Program program = program_of(config);
  const auto whole = session_of(config, program), first = session_of(config, program),
             second = session_of(config, program);
  ASSERT_TRUE(whole->run_step().ok());
  ASSERT_TRUE(first->run_step().ok());
  ASSERT_TRUE(second->load_state(*first->save_state()).ok());
  for (int step = 0; step < 2; ++step) {
    const auto expected = whole->run_step(), row = second->run_step();
    ASSERT_TRUE(expected.ok() && row.ok());
    EXPECT_EQ(timeless(*row), timeless(*expected));
  }
  EXPECT_EQ(second->save_state()->numbers, whole->save_state()->numbers);
  EXPECT_TRUE(same_weights(*second, *whole));
}

// The file has every draw, and gives the same run.
TEST(Select, RecordedDrawsAreReadBack) {
  Config config = drawing_run();
  config.run.name += "-recorded";
  config.rollout.record = true;
  const Program program = program_of(config);
  const auto recorded = session_of(config, program);
  double draws = 0;
  for (int step = 0; step < 2; ++step) draws += recorded->run_step()->at("sampling/draws");
  const std::string file = join_path(join_path(config.run.dir, config.run.name), kRolloutFile);
  std::set<int64_t> samples;
  for (const Json& line : read_rows(file)) samples.insert(line["sample"].get<int64_t>());
  EXPECT_EQ(samples.size(), 8 * draws);
  config.rollout.record = false;
  config.rollout.replay = file;
  const auto replayed = session_of(config, program);
  for (int step = 0; step < 2; ++step) {
    const auto row = replayed->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
  }
  EXPECT_TRUE(same_weights(*replayed, *recorded));
}

TEST(Select, TooFewGroupsEndTheRunOrAreLearntFrom) {
  Config config = drawing_run();
  config.algorithm.max_draws = 1;
  const Program program = program_of(config);
  const auto session = session_of(config, program), untouched = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_EQ(row.status().code(), Code::kStopped);
  EXPECT_THAT(row.status().message(), HasSubstr("of the prompts of 1 draw "));
  EXPECT_THAT(row.status().message(), HasSubstr("algorithm.on_shortage=train"));
  EXPECT_TRUE(same_weights(*session, *untouched));
  config.algorithm.on_shortage = "train";
  const auto shorter = session_of(config, program);
  const auto learnt = shorter->run_step();
  ASSERT_TRUE(learnt.ok()) << learnt.status().message();
  const double missing = learnt->at("sampling/missing");
  EXPECT_GT(missing, 0);
  expect_filled(*shorter, 4 - static_cast<int64_t>(missing));
  config.rollout.temperature = 1e-3;  // all responses of a prompt are the same
  const auto hopeless = session_of(config, program)->run_step();
  EXPECT_EQ(hopeless.status().code(), Code::kStopped);
}

}  // namespace
}  // namespace braid::inline session
