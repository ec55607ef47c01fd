#include <gmock/gmock.h>

#include <cmath>
#include <thread>

#include "reward/batches.h"
#include "reward/outcome.h"
#include "reward/testing.h"

namespace braid::inline reward {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;

// Gives outcomes by sample id, one list entry per try.
class ScriptedReward : public Reward {
 public:
  explicit ScriptedReward(std::map<int64_t, std::vector<RewardOutcome>> script)
      : script_(std::move(script)) {}
  Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples,
                                           const ScoreWatch& watch) override {
    std::vector<RewardOutcome> outcomes(samples.size());
    for (size_t i = 0; i < samples.size() && !watch.ended(); ++i) {
      auto& tries = script_.at(samples[i].sample_id);
      outcomes[i] = tries.front();
      if (tries.size() > 1) tries.erase(tries.begin());
      watch.scored(outcomes[i]);
      asked_.push_back(samples[i].sample_id);
    }
    return outcomes;
  }
  const std::vector<int64_t>& asked() const { return asked_; }

 private:
  std::map<int64_t, std::vector<RewardOutcome>> script_;
  std::vector<int64_t> asked_;
};

RewardOptions named(const std::string& name, double weight, const std::string& on_error) {
  RewardOptions options;
  options.name = name;
  options.type = "command";
  options.weight = weight;
  options.on_error = on_error;
  return options;
}

// Sample 10 gives 2, sample 11 times out, sample 12 fails once and then gives 5.
std::unique_ptr<Reward> troubled() {
  return std::make_unique<ScriptedReward>(std::map<int64_t, std::vector<RewardOutcome>>{
      {10, {value_outcome(2)}},
      {11, {timeout_outcome("too slow")}},
      {12, {error_outcome("broken"), value_outcome(5)}}});
}

std::unique_ptr<Reward> constant(double value) {
  std::map<int64_t, std::vector<RewardOutcome>> script;
  for (int64_t id = 10; id < 13; ++id) script[id] = {value_outcome(value)};
  return std::make_unique<ScriptedReward>(std::move(script));
}

std::vector<RewardSample> three_samples() {
  return {make_sample(10, "a"), make_sample(11, "b"), make_sample(12, "c")};
}

Result<RewardTotals> run(std::unique_ptr<Reward> reward, const RewardOptions& options) {
  std::vector<std::unique_ptr<Reward>> rewards;
  rewards.push_back(std::move(reward));
  rewards.push_back(constant(1));
  return score_all(rewards, {options, named("other", 10, "stop")}, three_samples());
}

TEST(ScoreAll, WeightedSumAndColumns) {
  const auto totals = run(constant(3), named("judge", 0.5, "stop"));
  ASSERT_TRUE(totals.ok());
  EXPECT_THAT(totals->total, ElementsAre(11.5, 11.5, 11.5));
  EXPECT_THAT(totals->by_name.at("judge"), ElementsAre(3, 3, 3));
  EXPECT_THAT(totals->by_name.at("other"), ElementsAre(1, 1, 1));
  EXPECT_EQ(totals->timeouts + totals->errors, 0);
}

TEST(ScoreAll, StopNamesRewardSampleAndCount) {
  const Status status = run(troubled(), named("judge", 1, "stop")).status();
  EXPECT_EQ(status.code(), Code::kStopped);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'judge'"), HasSubstr("sample 11"),
                                      HasSubstr("too slow"), HasSubstr("1 of 2")));
}

TEST(ScoreAll, StopAsksForNothingAfterTheFirstFailure) {
  std::vector<std::unique_ptr<Reward>> rewards;
  rewards.push_back(troubled());
  const auto& scripted = static_cast<const ScriptedReward&>(*rewards[0]);
  const std::vector<RewardOptions> options = {named("judge", 1, "stop")};
  EXPECT_FALSE(score_all(rewards, options, three_samples()).ok());
  EXPECT_THAT(scripted.asked(), ElementsAre(10, 11));
  ScoreContext everything;
  everything.show_everything = true;
  const auto outcomes = collect_outcomes(rewards, options, three_samples(), everything);
  ASSERT_TRUE(outcomes.ok());
  EXPECT_THAT(scripted.asked(), ElementsAre(10, 11, 10, 11, 12));
}

TEST(ScoreAll, AnotherRewardThatHangsEndsWithTheFirstFailure) {
  class Hanging : public Reward {
   public:
    Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples,
                                             const ScoreWatch& watch) override {
      while (!watch.ended()) std::this_thread::yield();
      return std::vector<RewardOutcome>(samples.size());
    }
  };
  std::vector<std::unique_ptr<Reward>> rewards;
  rewards.push_back(std::make_unique<Hanging>());
  rewards.push_back(troubled());
  const std::vector<RewardOptions> options = {named("slow", 1, "stop"), named("judge", 1, "stop")};
  const Status status = score_all(rewards, options, three_samples()).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'judge'"), HasSubstr("sample 11")));

  rewards[1] = constant(1);
  ScoreContext context;
  context.interrupted = [] { return true; };
  const Status stopped = score_all(rewards, options, three_samples(), context).status();
  EXPECT_EQ(stopped.code(), Code::kStopped);
  EXPECT_THAT(stopped.message(), HasSubstr("'slow': 3 of 3 samples"));
}

TEST(ScoreAll, ALineSaysHowManyAreOut) {
  class Slow : public Reward {
   public:
    Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples,
                                             const ScoreWatch& watch) override {
      watch.scored(value_outcome(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return std::vector<RewardOutcome>(samples.size(), value_outcome(1));
    }
  };
  std::vector<std::unique_ptr<Reward>> rewards;
  rewards.push_back(std::make_unique<Slow>());
  ScoreContext context;
  context.report_after_s = 0.02;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(score_all(rewards, {named("slow", 1, "stop")}, three_samples(), context).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("'slow': 2 of 3 samples"));
}

TEST(ScoreAll, WhatDoesNotApplyAddsNothingAndASampleWithoutAnyIsLeftOut) {
  std::vector<std::unique_ptr<Reward>> rewards;
  const auto script = [](RewardOutcome a, RewardOutcome b) {
    return std::make_unique<ScriptedReward>(std::map<int64_t, std::vector<RewardOutcome>>{
        {10, {value_outcome(2)}}, {11, {std::move(a)}}, {12, {std::move(b)}}});
  };
  rewards.push_back(script(absent_outcome(), absent_outcome()));
  rewards.push_back(script(value_outcome(3), absent_outcome()));
  const std::vector<RewardOptions> options = {named("math", 1, "stop"), named("code", 10, "stop")};
  const auto totals = score_all(rewards, options, three_samples());
  ASSERT_TRUE(totals.ok()) << totals.status().message();
  EXPECT_THAT(totals->total, ElementsAre(22, 30, IsNan()));
  EXPECT_THAT(totals->kept, ElementsAre(true, true, false));
  EXPECT_THAT(totals->by_name.at("math"), ElementsAre(2, IsNan(), IsNan()));
  EXPECT_EQ(totals->absent, 1);
  EXPECT_EQ(totals->errors, 0);
}

TEST(Batches, BySampleGroupAndStep) {
  std::vector<RewardSample> samples(5);
  for (size_t i = 0; i < 5; ++i) samples[i].group = static_cast<int64_t>(i) / 2;
  using Batches = std::vector<std::vector<size_t>>;
  EXPECT_EQ(cut_batches(samples, "sample"), (Batches{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(cut_batches(samples, "group"), (Batches{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(cut_batches(samples, "step"), (Batches{{0, 1, 2, 3, 4}}));
}

TEST(Batches, GroupsWithTooFewLeftAreDropped) {
  std::vector<bool> kept = {true, false, true, true, false, false};
  EXPECT_EQ(drop_short_groups({0, 0, 1, 1, 2, 2}, 2, &kept), 1);
  EXPECT_THAT(kept, ElementsAre(false, false, true, true, false, false));
}

TEST(ScoreAll, DropLeavesTheSampleOut) {
  const auto totals = run(troubled(), named("judge", 1, "drop"));
  ASSERT_TRUE(totals.ok());
  EXPECT_THAT(totals->kept, ElementsAre(true, false, false));
  EXPECT_THAT(totals->total, ElementsAre(12, IsNan(), IsNan()));
  EXPECT_THAT(totals->by_name.at("judge"), ElementsAre(2, IsNan(), IsNan()));
  EXPECT_EQ(totals->timeouts, 1);
  EXPECT_EQ(totals->errors, 1);
}

TEST(ScoreAll, ZeroOnlyWhenWritten) {
  const auto totals = run(troubled(), named("judge", 1, "zero"));
  ASSERT_TRUE(totals.ok());
  EXPECT_THAT(totals->kept, ElementsAre(true, true, true));
  EXPECT_THAT(totals->total, ElementsAre(12, 10, 10));
  EXPECT_EQ(totals->timeouts + totals->errors, 2);
}

TEST(ScoreAll, RetryScoresTheFailedAgainAndThenStops) {
  RewardOptions options = named("judge", 1, "retry");
  options.retries = 3;
  const Status status = run(troubled(), options).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("sample 11"), HasSubstr("1 of 3")));

  auto recovering = std::make_unique<ScriptedReward>(std::map<int64_t, std::vector<RewardOutcome>>{
      {10, {value_outcome(0)}},
      {11, {timeout_outcome("slow"), timeout_outcome("slow"), value_outcome(4)}},
      {12, {error_outcome("broken"), value_outcome(5)}}});
  const auto totals = run(std::move(recovering), options);
  ASSERT_TRUE(totals.ok());
  EXPECT_THAT(totals->by_name.at("judge"), ElementsAre(0, 4, 5));
  EXPECT_EQ(totals->retried, 3);
  EXPECT_EQ(totals->timeouts + totals->errors, 0);
}

TEST(ScoreAll, ModelEntriesAreLeftToTheEngine) {
  std::vector<std::unique_ptr<Reward>> rewards;
  rewards.push_back(nullptr);
  rewards.push_back(constant(1));
  RewardOptions model = named("rm", 100, "stop");
  model.type = "model";
  const auto totals = score_all(rewards, {model, named("other", 2, "stop")}, three_samples());
  ASSERT_TRUE(totals.ok());
  EXPECT_THAT(totals->total, ElementsAre(2, 2, 2));
  EXPECT_EQ(totals->by_name.count("rm"), 0);
}

TEST(ScoreAll, LogsBecomeColumns) {
  RewardOutcome with_log = value_outcome(1);
  with_log.logs["acc"] = 0.5;
  auto reward = std::make_unique<ScriptedReward>(std::map<int64_t, std::vector<RewardOutcome>>{
      {10, {value_outcome(1)}}, {11, {with_log}}, {12, {value_outcome(1)}}});
  const auto totals = run(std::move(reward), named("judge", 1, "stop"));
  EXPECT_THAT(totals->by_name.at("judge/acc"), ElementsAre(IsNan(), 0.5, IsNan()));
}

TEST(Outcomes, OnlyFiniteNumbersAreValues) {
  EXPECT_EQ(value_outcome(0).kind, RewardOutcome::Kind::kValue);
  EXPECT_EQ(value_outcome(std::nan("")).kind, RewardOutcome::Kind::kError);
  EXPECT_EQ(value_outcome(INFINITY).kind, RewardOutcome::Kind::kError);
}

}  // namespace
}  // namespace braid::inline reward
