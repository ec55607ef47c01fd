// braid report as a person runs it: on one run, on several, on one that goes on.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "host/testing.h"
#include "report/run_page.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kRefresh = "http-equiv=\"refresh\"";

class ReportCommand : public CommandTest {
 protected:
  // A run of so many steps whose configuration says `total`.
  std::string make_run(const std::string& name, int steps, int total) const {
    const std::string folder = join_path(folder_, name);
    EXPECT_TRUE(make_folder(folder).ok());
    std::string rows;
    for (int step = 0; step < steps; ++step) rows += row(step);
    if (steps > 0) write(name + "/metrics.jsonl", rows);
    write(name + "/config.yaml", cat("train:\n  total_steps: ", total, "\n  seed: ", steps, "\n"));
    return folder;
  }
  static std::string row(int step) {
    return cat("{\"step\": ", step, ", \"reward/raw_mean\": ", 0.1 * step,
               ", \"policy/entropy\": 0.001}\n");
  }
  // Without the page itself in a message.
  static bool page_has(const std::string& path, const std::string& what) {
    const auto text = read_file(path);
    EXPECT_TRUE(text.ok()) << text.status().message();
    return text.ok() && text->find(what) != std::string::npos;
  }
};

TEST_F(ReportCommand, WritesOneFileAndSaysWhatStandsOut) {
  const std::string run = make_run("one", 8, 8);
  const CommandOutcome outcome = run_braid("report " + run);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string page = join_path(run, kRunPageName);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("policy/entropy: 0.001 nats a token"),
                                    HasSubstr("the report is in " + page)));
  EXPECT_TRUE(page_has(page, "reward/raw_mean"));
  EXPECT_FALSE(page_has(page, kRefresh));
}

TEST_F(ReportCommand, SeveralRunsStandOnOnePage) {
  const std::string first = make_run("first", 4, 4), second = make_run("second", 5, 5);
  const std::string page = join_path(folder_, "both.html");
  const CommandOutcome outcome = run_braid(cat("report ", first, " ", second, " --out ", page));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("first: policy/entropy"));
  EXPECT_TRUE(page_has(page, "\"first\""));
  EXPECT_TRUE(page_has(page, "\"second\""));
  EXPECT_FALSE(path_exists(join_path(first, kRunPageName)));
}

// The page loads itself again while the run goes on, and not after its last step. The run begins
// after the command.
TEST_F(ReportCommand, FollowsARunThatHasNotBegunToItsLastStep) {
  const std::string run = make_run("going", 0, 2), page = join_path(run, kRunPageName);
  auto process = ChildProcess::start({{BRAID_BINARY, "report", run, "--follow", "1"}});
  ASSERT_TRUE(process.ok()) << process.status().message();
  const std::string metrics = write("going/metrics.jsonl", row(0));
  const Deadline deadline = deadline_in(300);
  while (!path_exists(page) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(page_has(page, kRefresh));
  std::ofstream(metrics, std::ios::app) << row(1);
  const auto end = (*process)->wait(deadline);
  ASSERT_TRUE(end.ok()) << end.status().message();
  EXPECT_EQ(*end, "exited with status 0");
  EXPECT_FALSE(page_has(page, kRefresh));
}

TEST_F(ReportCommand, WhatIsNoRunIsOneError) {
  const std::string empty = make_run("empty", 0, 2);
  for (const std::string& arguments :
       {cat(folder_, "/none"), empty, cat(folder_, "/none --follow 1")}) {
    const CommandOutcome outcome = run_braid("report " + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_EQ(error_lines(outcome.output), 1) << outcome.output;
  }
}

// Two widths, no error of its script, no empty section, nothing wider than the window.
TEST_F(ReportCommand, ThePageOfARunIsWholeInABrowser) {
  const CommandOutcome trained = run_braid(
      cat("train examples/quickstart/grpo.yaml model.path= "
          "model.config=examples/quickstart/model/config.json "
          "tokenizer.path=examples/quickstart/model train.total_steps=2 "
          "rollout.prompts_per_step=4 rollout.samples_per_prompt=2 train.minibatches=1 run.dir=",
          folder_, " run.name=run"));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const CommandOutcome looked =
      run_shell(cat("python3 ", BRAID_SOURCE_DIR, "/tools/look_at_report.py ", folder_, "/run/",
                    kRunPageName, " 2>&1"));
  if (looked.exit_code == 77) GTEST_SKIP() << "there is no Chromium";
  EXPECT_EQ(looked.exit_code, 0) << looked.output;
}

}  // namespace
}  // namespace braid
