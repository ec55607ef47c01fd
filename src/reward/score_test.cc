#include <gmock/gmock.h>

#include <cmath>

#include "reward/outcome.h"
#include "reward/testing.h"

namespace braid {
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
  Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples) override {
    std::vector<RewardOutcome> outcomes;
    for (const RewardSample& sample : samples) {
      auto& tries = script_.at(sample.sample_id);
      outcomes.push_back(tries.front());
      if (tries.size() > 1) tries.erase(tries.begin());
    }
    return outcomes;
  }

 private:
  std::map<int64_t, std::vector<RewardOutcome>> script_;
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
                                      HasSubstr("too slow"), HasSubstr("2 of 3")));
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
}  // namespace braid
