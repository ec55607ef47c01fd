#include "report/metric_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "foreign/keys/metric_names.h"
#include "host/file.h"
#include "report/metrics_log.h"
#include "report/run_record.h"
#include "report/testing.h"
#include "test_paths.h"

namespace braid::inline report {
namespace {

using testing::HasSubstr;

TEST(MetricNames, OfOthersAreTheirs) {
  EXPECT_EQ(metric_name("reward/raw_mean", "verl"), "critic/score/mean");
  EXPECT_EQ(metric_name("reward/raw_mean", "trl"), "reward");
  EXPECT_EQ(metric_name("policy/lr", "verl"), "actor/lr");
  EXPECT_EQ(metric_name("reward/exact_mean", "trl"), "rewards/exact/mean");
  EXPECT_EQ(metric_name("eval/exact_mean", "trl"), "eval_rewards/exact/mean");
  EXPECT_EQ(metric_name("eval/reward_mean", "trl"), "eval_reward");
  // What they do not have, or count otherwise, keeps its name.
  for (const char* kept : {"kl/update", "reward/kl_penalty_mean", "reward/greedy_mean",
                           "reward/raw_std", "perf/peak_rss_gb", "reward/exact/log_mean"})
    for (const char* names : {"verl", "trl"}) EXPECT_EQ(metric_name(kept, names), kept);
  for (const MetricName& row : metric_names()) EXPECT_EQ(metric_name(row.ours, "braid"), row.ours);
}

// Of the numbers that one step may have.
TEST(MetricNames, AreToldApart) {
  for (const char* names : {"verl", "trl"}) {
    std::set<std::string> seen;
    for (const MetricName& row : metric_names()) {
      const std::string ours = row.ours, group = ours.substr(0, ours.find('/'));
      const bool of_data = group == "sft" || group == "rm" || group == "dpo" || group == "orpo" ||
                           group == "kto";  // a run has one of them
      if (of_data) continue;
      EXPECT_TRUE(seen.insert(metric_name(ours, names)).second) << ours;
    }
  }
}

TEST(MetricNames, PageHasTheTable) {
  const auto page = read_file(BRAID_SOURCE_DIR "/docs/metrics.md");
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(*page, HasSubstr(metric_names_table()));
}

MetricsLogOptions quiet(const std::string& folder, const std::string& names) {
  MetricsLogOptions options;
  options.folder = folder;
  options.console = false;
  options.names = names;
  return options;
}

TEST(MetricNames, AreWrittenAndReadBack) {
  const std::string folder = fresh_folder("names");
  {
    auto log = MetricsLog::open(quiet(folder, "trl"), 0);
    ASSERT_TRUE(log.ok()) << log.status().message();
    ASSERT_TRUE(log->write(0, {{"sft/loss", 2}, {"kl/update", 3}}).ok());
    ASSERT_TRUE(log->write(1, {{"sft/loss", 1}, {"eval/reward_mean", 4}}).ok());
  }
  const std::string text = *read_file(join_path(folder, "metrics.jsonl"));
  EXPECT_THAT(text, HasSubstr("\"loss\":2.0"));
  EXPECT_THAT(text, HasSubstr("\"eval_reward\":4.0"));
  EXPECT_THAT(text, testing::Not(HasSubstr("sft/loss")));
  const auto run = read_run(folder);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->metrics[0]["sft/loss"], 2.0);
  EXPECT_EQ(run->metrics[0]["kl/update"], 3.0);
  EXPECT_EQ(run->metrics[1]["eval/reward_mean"], 4.0);
  std::filesystem::remove_all(folder);
}

// Two numbers of a row never become one.
TEST(MetricNames, TheSecondOfANameKeepsItsOwn) {
  const std::string folder = fresh_folder("names_twice");
  {
    auto log = MetricsLog::open(quiet(folder, "trl"), 0);
    ASSERT_TRUE(log->write(0, {{"kl/ref_k3", 5}, {"kto/kl", 6}}).ok());
  }
  const auto run = read_run(folder);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->metrics[0]["kl/ref_k3"], 5.0);
  EXPECT_EQ(run->metrics[0]["kto/kl"], 6.0);
  std::filesystem::remove_all(folder);
}

TEST(MetricNames, ARunGoesOnUnderItsOwn) {
  const std::string folder = fresh_folder("names_resumed");
  {
    auto log = MetricsLog::open(quiet(folder, "verl"), 0);
    ASSERT_TRUE(log->write(0, {{"policy/lr", 1}}).ok());
    ASSERT_TRUE(log->write(1, {{"policy/lr", 1}}).ok());
  }
  const std::string before = *read_file(join_path(folder, "metrics.jsonl"));
  const Status refused = MetricsLog::open(quiet(folder, "braid"), 1).status();
  EXPECT_THAT(refused.message(), HasSubstr("have the names of verl, and the run would go on with "
                                           "those of braid; write log.names: verl"));
  EXPECT_EQ(*read_file(join_path(folder, "metrics.jsonl")), before);
  EXPECT_TRUE(MetricsLog::open(quiet(folder, "verl"), 1).ok());
  // A run that begins anew has no rows that could be mixed.
  auto anew = MetricsLog::open(quiet(folder, "braid"), 0);
  ASSERT_TRUE(anew.ok()) << anew.status().message();
  ASSERT_TRUE(anew->write(0, {{"policy/lr", 1}}).ok());
  EXPECT_EQ(read_run(folder)->metrics[0]["policy/lr"], 1.0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace braid::inline report
