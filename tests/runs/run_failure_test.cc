// What ends a run without killing it: rewards, data, disk and memory. Nothing that was complete is
// lost, and what continues gives the bytes of an uninterrupted run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "runs/process_testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Scores lengths, and does what the file named by BRAID_TEST_TROUBLE says at its n-th call.
constexpr const char* kReward = R"(import json, os, time
CALLS = 0
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    global CALLS
    CALLS += 1
    trouble = json.loads(os.environ.get("BRAID_TEST_TROUBLE", "{}"))
    if CALLS == trouble.get("at") and "scramble" in trouble:
        with open(trouble["scramble"], "r+") as file:
            text = file.read().replace('"label": "0', '"label": "x')
            file.seek(0)
            file.write(text)
    elif CALLS == trouble.get("at") and "hang" in trouble:
        open(trouble["hang"], "w").close()
        time.sleep(100000)
    elif CALLS == trouble.get("at"):
        raise ValueError("the judge is gone")
    return len(solution_str) % 5 / 5
)";

class FailedRun : public RunProcess {
 protected:
  static std::string data_file(const std::string& name) {
    const std::string file = path(name + ".jsonl");
    std::ofstream out(file);
    for (int i = 0; i < 64; ++i)
      out << "{\"prompt\": \"sort " << 1000 + 37 * i << "=\", \"label\": \"0" << i << "\"}\n";
    return file;
  }

  static std::vector<std::string> failing(const std::string& name,
                                          const std::vector<std::string>& more = {}) {
    EXPECT_TRUE(make_folder(folder_).ok());
    const std::string reward = path("reward.py");
    EXPECT_TRUE(write_file_atomic(reward, kReward).ok());
    std::vector<std::string> options = {
        "data.train=" + data_file(name), "checkpoint.every_minutes=0",
        "reward=[{type: python, path: " + reward + ", function: compute_score, signature: verl}]"};
    options.insert(options.end(), more.begin(), more.end());
    return command(name, "ppo", options);
  }

  static std::string uninterrupted() {
    const std::string name = "failing-whole";
    if (!path_exists(path(name + "/export"))) finish(failing(name));
    return name;
  }

  // Runs with trouble (an assignment of the shell's environment), then goes on without.
  void fail_and_continue(const std::string& name, const std::string& trouble, int64_t may_lose,
                         const std::vector<std::string>& options) {
    SCOPED_TRACE(name + ": " + trouble);
    same_kernels(uninterrupted(), name);
    const CommandOutcome failed = shell(trouble, failing(name, options));
    if (failed.exit_code == 0) return;  // the trouble came too late
    ++failures_;
    EXPECT_EQ(failed.exit_code, 1) << failed.output;
    EXPECT_EQ(error_lines(failed.output), 1) << failed.output;
    const int64_t lost = steps_complete(name) - steps_kept(name);
    EXPECT_LE(lost, may_lose) << failed.output;
    most_lost_ = std::max(most_lost_, lost);
    if (steps_kept(name) > 0 && may_lose == 0) {
      EXPECT_THAT(failed.output, HasSubstr("checkpoint.resume=auto"));
    }
    output_ = failed.output;
    finish(failing(name, {"checkpoint.resume=auto"}));
    expect_same_run(uninterrupted(), name);
    fs::remove_all(path(name));
  }

  // For the evidence of the full tier.
  void TearDown() override {
    RecordProperty("injected", failures_);
    RecordProperty("most_steps_lost", static_cast<int>(most_lost_));
  }

  int failures_ = 0;
  int64_t most_lost_ = 0;
  std::string output_;
};

std::string library(const char* name) {
  return join_path(parent_folder(BRAID_BINARY), cat("tests/lib", name, ".so"));
}

// 4 prompts a step: calls 1-4 are step 1, and so on.
TEST_F(FailedRun, ByARewardThatFails) {
  for (const int call : full_tier() ? std::vector<int>{1, 4, 6, 9, 12, 16} : std::vector<int>{6}) {
    fail_and_continue(cat("reward-", call), cat("BRAID_TEST_TROUBLE='{\"at\": ", call, "}'"), 0,
                      {"checkpoint.every_steps=0"});
    EXPECT_THAT(output_, HasSubstr("the judge is gone"));
  }
  EXPECT_EQ(failures_, full_tier() ? 6 : 1);
}

// As in one process: every rank hears of it before the first update, so that all is saved. Each of
// the two ranks asks about two prompts a step: its third call is in step 2.
TEST_F(FailedRun, ByARewardThatFailsInAJobOfRanks) {
  const std::vector<std::string> ranks = {"parallel={dp: 2}", "train.threads=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), ranks.begin(), ranks.end());
    return more;
  };
  finish(failing("ranks-whole", ranks));
  same_kernels("ranks-whole", "ranks-reward");
  const CommandOutcome failed = shell("BRAID_TEST_TROUBLE='{\"at\": 3}'",
                                      failing("ranks-reward", with({"checkpoint.every_steps=0"})));
  EXPECT_EQ(failed.exit_code, 1) << failed.output;
  EXPECT_EQ(error_lines(failed.output), 1) << failed.output;
  EXPECT_THAT(failed.output, AllOf(HasSubstr("the judge is gone"), HasSubstr("step 1 was saved in"),
                                   HasSubstr("continue with checkpoint.resume=auto")));
  EXPECT_EQ(steps_kept("ranks-reward"), 1);
  finish(failing("ranks-reward", with({"checkpoint.resume=auto"})));
  expect_same_run("ranks-whole", "ranks-reward");
}

// A stop signal does not wait for a reward that never comes: its step is given up, the one before
// is saved, also without periodic checkpoints.
TEST_F(FailedRun, ByASignalWhileARewardHangs) {
  same_kernels(uninterrupted(), "hanging");
  const std::string hangs = path("hangs");
  ::setenv("BRAID_TEST_TROUBLE", cat("{\"at\": 6, \"hang\": \"", hangs, "\"}").c_str(), 1);
  auto options = failing("hanging", {"checkpoint.every_steps=0"});
  for (std::string& option : options)
    if (const size_t at = option.find("signature: verl"); at != std::string::npos)
      option.insert(at, "timeout_s: 100000, ");
  const auto child = start(options);
  ::unsetenv("BRAID_TEST_TROUBLE");
  const Deadline deadline = deadline_in(kRunDeadline_s);
  while (!path_exists(hangs) && std::chrono::steady_clock::now() < deadline)
    ASSERT_EQ(child->wait(deadline_in(0.01)).status().code(), Code::kDeadline);
  send(*child, SIGTERM);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 1") << end.errors;
  EXPECT_THAT(end.errors,
              AllOf(HasSubstr("step 1 was saved in"), HasSubstr("checkpoint.resume=auto")));
  EXPECT_EQ(steps_kept("hanging"), 1);
}

TEST_F(FailedRun, ByDataThatChanges) {
  for (const int call : full_tier() ? std::vector<int>{2, 5, 8, 10} : std::vector<int>{5}) {
    const std::string name = cat("data-", call);
    fail_and_continue(name,
                      cat("BRAID_TEST_TROUBLE='{\"at\": ", call, ", \"scramble\": \"",
                          path(name + ".jsonl"), "\"}'"),
                      0, {"checkpoint.every_steps=0"});
    EXPECT_THAT(output_, HasSubstr(name + ".jsonl"));
  }
  EXPECT_EQ(failures_, full_tier() ? 4 : 1);
}

// A large set is checked while the run goes on: the bad row is named with the step that needs it,
// and the run ends before that.
TEST_F(FailedRun, ByABadRowThatNobodyHadSeenYet) {
  constexpr int kRows = 20000;
  const std::string file = path("large.jsonl");
  const auto write_rows = [&](int64_t bad) {
    std::string text;
    for (int i = 0; i < kRows; ++i)
      text += cat("{\"", i == bad ? "question" : "prompt", "\": \"sort ", 1000 + i,
                  "=\", \"label\": \"0\"}\n");
    ASSERT_TRUE(write_file_atomic(file, text).ok());
  };
  ASSERT_TRUE(make_folder(folder_).ok());
  write_rows(-1);
  const std::vector<std::string> options = {"data.train=" + file, "checkpoint.every_steps=0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), options.begin(), options.end());
    return more;
  };
  finish(command("large-whole", "grpo", with({})));
  const auto tokenizer =
      load_tokenizer(std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model");
  const auto rows = load_data_set(file, DataNeed::kPrompts, &*tokenizer, {});
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  int64_t bad = kRows - 1;  // of a row that comes in step 3 of 4 prompts each
  while (rows->next_position(bad, 0) < 8 || rows->next_position(bad, 0) >= 12) --bad;
  ASSERT_GT(bad, 4096) << "is looked at before training";
  write_rows(bad);
  const CommandOutcome dry = shell("", command("large", "grpo", with({"--dry-run"})));
  EXPECT_THAT(dry.output, HasSubstr(cat("large.jsonl:", bad + 1)));
  EXPECT_EQ(dry.exit_code, 2);
  same_kernels("large-whole", "large");
  const CommandOutcome failed =
      shell("", command("large", "grpo", with({"data.check_s=0.000001"})));
  EXPECT_EQ(failed.exit_code, 2) << failed.output;
  EXPECT_THAT(failed.output, HasSubstr(cat("large.jsonl:", bad + 1)));
  EXPECT_THAT(failed.output, HasSubstr("step 2 was saved in"));
  EXPECT_EQ(steps_kept("large"), 2);
  // In a job one rank finds it, in its share of the step, and all end with what it says.
  const CommandOutcome job =
      shell("", command("large-job", "grpo", with({"data.check_s=0.000001", "parallel={dp: 2}"})));
  EXPECT_EQ(job.exit_code, 2) << job.output;
  EXPECT_EQ(error_lines(job.output), 1) << job.output;
  EXPECT_THAT(
      job.output,
      AllOf(HasSubstr(cat("rank ", (rows->next_position(bad, 0) - 8) / 2, ": data.train: ")),
            HasSubstr(cat("large.jsonl:", bad + 1)), HasSubstr("step 2 was saved in"),
            HasSubstr("checkpoint.allow=[data.train]")));
  EXPECT_EQ(steps_kept("large-job"), 2);
  write_rows(-1);
  const std::string changed = "checkpoint.resume=auto";
  EXPECT_THAT(shell("", command("large", "grpo", with({changed}))).output,
              HasSubstr("checkpoint.allow=[data.train]"));
  finish(command("large", "grpo", with({changed, "checkpoint.allow=[data.train]"})));
  expect_same_run("large-whole", "large");
}

// A step that no longer fits on the disk is lost, the ones before are there.
TEST_F(FailedRun, ByADiskThatIsFull) {
  for (const int ask : full_tier() ? std::vector<int>{2, 3, 4, 5} : std::vector<int>{3}) {
    fail_and_continue(cat("disk-", ask),
                      cat("BRAID_TEST_FREE_BYTES=1000 BRAID_TEST_FREE_ASKS=", ask,
                          " LD_PRELOAD=", library("fake_free_space")),
                      1, {});
    EXPECT_THAT(output_, AllOf(HasSubstr("a checkpoint needs"), HasSubstr("could not be saved")));
  }
  EXPECT_EQ(failures_, full_tier() ? 4 : 1);
}

// Slices of the weights, of which no export came, are not left.
TEST_F(FailedRun, ByADiskThatIsFullBeforeTheExport) {
  const std::string name = "disk-export";
  const auto job = [&](const std::string& more) {
    return command(name, "grpo", {"parallel={tp: 2}", "train.total_steps=1", more});
  };
  const CommandOutcome full = shell(cat("BRAID_TEST_FREE_BYTES=1000 BRAID_TEST_FREE_ASKS=3 ",
                                        "LD_PRELOAD=", library("fake_free_space")),
                                    job("checkpoint.keep_last=1"));
  EXPECT_EQ(full.exit_code, 1) << full.output;
  EXPECT_THAT(full.output, HasSubstr(".export-slices: a checkpoint needs"));
  EXPECT_FALSE(path_exists(path(name + "/.export-slices")));
  EXPECT_FALSE(path_exists(path(name + "/export")));
  finish(job("checkpoint.resume=auto"));
  EXPECT_FALSE(path_exists(path(name + "/.export-slices")));
  EXPECT_TRUE(path_exists(path(name + "/export")));
}

// The shell's limit on the size of a file, in KiB: smaller than the weights.
TEST_F(FailedRun, ByALimitOnTheSizeOfFiles) {
  for (const int limit : full_tier() ? std::vector<int>{100, 1000} : std::vector<int>{1000}) {
    fail_and_continue(cat("limit-", limit), cat("ulimit -f ", limit, ";"), 1, {});
    EXPECT_THAT(output_, HasSubstr("ulimit -f"));
  }
  EXPECT_EQ(failures_, full_tier() ? 2 : 1);
}

// In a pass it is made good with smaller micro-batches; elsewhere the run ends and goes on.
TEST_F(FailedRun, ByMemoryThatRunsOut) {
  const std::string preload = " LD_PRELOAD=" + library("fake_allocation_failure"),
                    counts = path("allocations");
  same_kernels(uninterrupted(), "counted");
  const CommandOutcome counted =
      shell(cat("BRAID_TEST_ALLOCATION_COUNT=", counts, preload), failing("counted"));
  ASSERT_EQ(counted.exit_code, 0) << counted.output;
  const std::string text = *read_file(counts);
  long most = 0;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    most = std::max(most, std::atol(text.c_str() + begin));
  ASSERT_GT(most, 1000);
  std::mt19937 random(5);
  int repeated = 0;
  for (int trial = 0; trial < (full_tier() ? 12 : 2); ++trial) {
    const long number = most / 4 + static_cast<long>(random() % (most * 3 / 4));
    const int before = failures_;
    fail_and_continue(cat("memory-", trial), cat("BRAID_TEST_FAIL_ALLOCATION=", number, preload), 0,
                      {"checkpoint.every_steps=0"});
    if (failures_ > before) {
      EXPECT_THAT(output_, HasSubstr("out of memory"));
    } else {
      for (const Json& row : metrics(cat("memory-", trial)))
        repeated += row.contains("memory/repeats") ? 1 : 0;
    }
  }
  EXPECT_GE(failures_ + repeated, full_tier() ? 8 : 1);
}

}  // namespace
}  // namespace braid
