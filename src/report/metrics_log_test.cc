#include "report/metrics_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/text.h"
#include "host/file.h"
#include "report/testing.h"

namespace braid::inline report {
namespace {

std::vector<Json> rows_of(const std::string& folder) {
  std::vector<Json> rows;
  for (const std::string& line : split(*read_file(join_path(folder, "metrics.jsonl")), '\n'))
    if (!line.empty()) rows.push_back(*parse_json(line, "metrics.jsonl"));
  return rows;
}

TEST(MetricsLog, AppendsRowsAndDropsThoseThatAResumedRunRepeats) {
  const std::string folder = fresh_folder("metrics");
  MetricsLogOptions options;
  options.folder = folder;
  options.console = false;
  {
    auto log = MetricsLog::open(options, 0);
    ASSERT_TRUE(log.ok());
    for (int64_t step = 0; step < 3; ++step)
      ASSERT_TRUE(log->write(step, {{"a", step * 0.5}, {"b", NAN}}).ok());
    ASSERT_TRUE(log->write_sample({{"step", 0}, {"response", "x"}}).ok());
    ASSERT_TRUE(log->write_sample({{"step", 2}, {"response", "y"}}).ok());
  }
  auto resumed = MetricsLog::open(options, 2);
  ASSERT_TRUE(resumed->write(2, {{"a", 7.0}}).ok());
  const auto rows = rows_of(folder);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["a"], 0.0);
  EXPECT_TRUE(rows[0]["b"].is_null());
  EXPECT_GT(rows[0]["perf/peak_rss_gb"], 0.0);
  EXPECT_EQ(rows[1]["a"], 0.5);
  EXPECT_EQ(rows[2],
            (Json{{"step", 2}, {"a", 7.0}, {"perf/peak_rss_gb", rows[2]["perf/peak_rss_gb"]}}));
  EXPECT_EQ(*read_file(join_path(folder, "samples.jsonl")), "{\"response\":\"x\",\"step\":0}\n");
  std::filesystem::remove_all(folder);
}

TEST(Console, ShowsProgressTheLongestPhasesSpeedAndTimeLeft) {
  const MetricsRow row = {{"reward/raw_mean", 0.5},
                          {"time/step", 2},
                          {"time/generate", 0.25},
                          {"time/update_actor", 1.5},
                          {"time/fetch", 0},
                          {"time/reward", 0.125},
                          {"perf/tokens_per_s_per_device", 1234}};
  EXPECT_EQ(console_line(row, 3, 8, 59),
            "step 4/8 [########........] 50%  reward 0.5  2.00 s (update_actor 1.50, generate "
            "0.25, reward 0.12)  1234 tokens/s  left 59 s");
  EXPECT_EQ(console_line({{"eval/accuracy", 0.25}}, -1, 8, -1),
            "step 0/8 [................] 0%  eval accuracy 0.25");
  EXPECT_EQ(console_line({{"dpo/loss", 0.5}, {"dpo/accuracy", 0.75}}, 3, 8, -1),
            "step 4/8 [########........] 50%  loss 0.5  accuracy 0.75");
  EXPECT_NE(console_line(row, 3, 8, 150).find("left 2 min"), std::string::npos);
}

CommandLogOptions shell(const std::string& script, double timeout_s, bool stop) {
  return {{"sh", "-c", script}, timeout_s, stop};
}

TEST(CommandLog, GivesRowsToAChildAndWaitsForItsEnd) {
  const std::string folder = fresh_folder("command");
  ASSERT_TRUE(make_folder(folder).ok());
  const std::string out = join_path(folder, "rows");
  auto log =
      CommandLog::start(shell("cat > " + out + ".part; mv " + out + ".part " + out, 30, true));
  ASSERT_TRUE(log.ok()) << log.status().message();
  ASSERT_TRUE(log->write({{"step", 0}, {"reward/raw_mean", 0.5}}).ok());
  ASSERT_TRUE(log->write({{"step", 1}}).ok());
  ASSERT_TRUE(log->finish().ok());
  EXPECT_EQ(*read_file(out), "{\"reward/raw_mean\":0.5,\"step\":0}\n{\"step\":1}\n");
  std::filesystem::remove_all(folder);
}

// Writes rows until the log reports the failure, for at most a few of them.
Status write_until_failure(CommandLog& log, const std::string& payload) {
  for (int row = 0; row < 200; ++row)
    if (const Status status = log.write({{"row", payload}}); !status.ok()) return status;
  return log.finish();
}

TEST(CommandLog, ADeadChildStopsTheRunOnlyIfAsked) {
  auto strict = CommandLog::start(shell("exit 3", 30, true));
  ASSERT_TRUE(strict.ok());
  const Status failure = write_until_failure(*strict, "x");
  EXPECT_EQ(failure.code(), Code::kUnavailable);
  EXPECT_NE(failure.message().find("log.command (sh -c exit 3)"), std::string::npos)
      << failure.message();
  auto lenient = CommandLog::start(shell("exit 3", 30, false));
  EXPECT_TRUE(write_until_failure(*lenient, "x").ok());
}

TEST(CommandLog, AChildThatDoesNotReadMeetsTheDeadline) {
  auto log = CommandLog::start(shell("sleep 60", 0.2, true));
  ASSERT_TRUE(log.ok());
  const Status failure = write_until_failure(*log, std::string(100000, 'x'));
  EXPECT_EQ(failure.code(), Code::kDeadline);
}

TEST(CommandLog, AChildThatDoesNotEndIsKilled) {
  auto log = CommandLog::start(shell("sleep 60", 0.2, true));
  ASSERT_TRUE(log.ok());
  const Status failure = log->finish();
  EXPECT_EQ(failure.code(), Code::kDeadline);
  EXPECT_NE(failure.message().find("killed"), std::string::npos);
}

TEST(CommandLog, AMissingProgramIsRefusedAtOnce) {
  const auto log = CommandLog::start({{"/no/such/program"}, 1, false});
  EXPECT_EQ(log.status().code(), Code::kNotFound);
  EXPECT_NE(log.status().message().find("log.command"), std::string::npos);
}

}  // namespace
}  // namespace braid::inline report
