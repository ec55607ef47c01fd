// braid report as a person runs it: on one run, on several, on one that goes on.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "host/file_claim.h"
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

TEST_F(ReportCommand, RunsOfOneFolderNameAreToldApart) {
  for (const char* parent : {"a", "b"}) ASSERT_TRUE(make_folder(join_path(folder_, parent)).ok());
  const std::string first = make_run("a/toy", 4, 4), second = make_run("b/toy", 4, 4);
  const std::string page = join_path(folder_, "both.html");
  const CommandOutcome outcome = run_braid(cat("report ", first, " ", second, " --out ", page));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("a/toy: policy/entropy"), HasSubstr("b/toy: policy/entropy")));
  EXPECT_TRUE(page_has(page, "\"a/toy\""));
  EXPECT_TRUE(page_has(page, "\"b/toy\""));
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

TEST_F(ReportCommand, FollowsARunThatTrains) {
  const std::string run = join_path(folder_, "run"), page = join_path(run, kRunPageName);
  ASSERT_TRUE(make_folder(run).ok());
  auto trains = ChildProcess::start(
      {{"sh", "-c",
        cat("cd ", BRAID_SOURCE_DIR, " && exec ", BRAID_BINARY,
            " train examples/algorithms/toy.yaml algorithm.name=grpo train.total_steps=12 "
            "train.threads=1 parallel='{dp: 2}' report.html=false run.name=run run.dir=",
            folder_)}});
  ASSERT_TRUE(trains.ok()) << trains.status().message();
  const CommandOutcome followed = run_braid(cat("report ", run, " --follow 1"));
  EXPECT_EQ(followed.exit_code, 0) << followed.output;
  const auto end = (*trains)->wait(deadline_in(300));
  ASSERT_TRUE(end.ok()) << end.status().message();
  EXPECT_EQ(*end, "exited with status 0") << (*trains)->take_errors();
  EXPECT_TRUE(page_has(page, "\"steps\":12,"));
  EXPECT_TRUE(page_has(page, "\"predicted_s\"")) << "from the second step on";
  EXPECT_FALSE(page_has(page, kRefresh));
}

// Whose process died: its folder's claim is free, and nothing comes.
TEST_F(ReportCommand, StopsFollowingARunThatNobodyTrains) {
  const std::string run = make_run("left", 3, 9), page = join_path(run, kRunPageName);
  write(cat("left/", kClaimFile), "");
  const CommandOutcome outcome = run_braid(cat("report ", run, " --follow 1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("no process trains this run any more"));
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
  const std::string run = make_run("whole", 2, 2);
  EXPECT_THAT(run_braid("report " + folder_).output, HasSubstr("; runs here: " + run));
}

// Two widths, no error of its script, no empty section, nothing wider than the window: a run of one
// process, one under a plan, both on one page, one without responses.
TEST_F(ReportCommand, ThePageOfARunIsWholeInABrowser) {
  const std::string model =
      " model.path= model.config=examples/quickstart/model/config.json "
      "tokenizer.path=examples/quickstart/model ";
  const auto train = [&](const std::string& name, const std::string& options) {
    const CommandOutcome trained = run_braid(cat("train ", options, model, "train.minibatches=1 ",
                                                 "run.dir=", folder_, " run.name=", name));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  };
  train("alone",
        "examples/quickstart/grpo.yaml train.total_steps=2 rollout.prompts_per_step=4 "
        "rollout.samples_per_prompt=2");
  train("planned",
        "examples/quickstart/ppo.yaml critic.path= critic.warmup_steps=0 train.total_steps=3 "
        "'reward=[{name: a, type: rule, rule: exact}, {name: b, type: rule, rule: digit_share}]' "
        "rollout.prompts_per_step=8 parallel='{dp: 2}' train.threads=1");
  ASSERT_TRUE(path_exists(join_path(folder_, "planned/predicted.json")));
  // Nothing is generated there.
  ASSERT_EQ(run_braid(cat("sft examples/quickstart/sft.yaml", model,
                          "train.total_steps=2 run.dir=", folder_, " run.name=learnt"))
                .exit_code,
            0);
  const std::string both = join_path(folder_, "both.html");
  ASSERT_EQ(
      run_braid(cat("report ", folder_, "/alone ", folder_, "/planned --out ", both)).exit_code, 0);
  const std::string says = " --says 'reward: what training used, the weighted sum of the others'";
  for (const std::string& page :
       {cat(folder_, "/alone/", kRunPageName), cat(folder_, "/planned/", kRunPageName),
        cat(folder_, "/learnt/", kRunPageName), both}) {
    const CommandOutcome looked =
        run_shell(cat("python3 ", BRAID_SOURCE_DIR, "/tools/look_at_report.py ", page,
                      page.find("/planned/") == std::string::npos ? "" : says, " 2>&1"));
    if (looked.exit_code == 77) GTEST_SKIP() << "there is no Chromium";
    EXPECT_EQ(looked.exit_code, 0) << page << ": " << looked.output;
  }
}

}  // namespace
}  // namespace braid
