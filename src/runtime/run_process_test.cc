// Whole runs as processes of the braid program: killed, stopped, continued and compared byte by
// byte. BRAID_TEST_FULL=1 runs many more kills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "host/file.h"
#include "host/process.h"
#include "host/sha256.h"
#include "host/testing.h"

namespace braid {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr double kRunDeadline_s = 120;

struct Ending {
  std::string how;     // "exited with status 0"
  std::string errors;  // the end of standard error
};

class RunProcess : public testing::TestWithParam<const char*> {
 protected:
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  // An uninterrupted run of 4 steps that records its rollouts, made once for all tests; its name.
  static std::string whole(const std::string& algorithm) {
    const std::string name = "whole-" + algorithm;
    if (!path_exists(path(name + "/export")))
      finish(command(name, algorithm, {"rollout.record=true"}));
    return name;
  }

  // The command line of a tiny run; 4 steps with a checkpoint after each unless overridden.
  static std::vector<std::string> command(const std::string& name, const std::string& algorithm,
                                          const std::vector<std::string>& more = {}) {
    const std::string model = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model";
    std::vector<std::string> out = {BRAID_BINARY,
                                    "train",
                                    "run.dir=" + folder_,
                                    "run.name=" + name,
                                    "algorithm.name=" + algorithm,
                                    "model.config=" + model + "/config.json",
                                    "tokenizer.path=" + model,
                                    "data.train=task:sort_digits",
                                    "rollout.prompts_per_step=4",
                                    cat("rollout.samples_per_prompt=", algorithm == "grpo" ? 2 : 1),
                                    "rollout.max_response_length=6",
                                    "reward=[{type: rule, rule: digit_share}]",
                                    "optim.actor.lr=1e-3",
                                    "train.minibatches=2",
                                    "train.threads=2",
                                    "train.total_steps=4",
                                    "checkpoint.every_steps=1",
                                    "log.tensorboard=false"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

  static std::unique_ptr<ChildProcess> start(const std::vector<std::string>& argv) {
    auto child = ChildProcess::start({argv, 0});
    EXPECT_TRUE(child.ok()) << child.status().message();
    return std::move(child).value();
  }

  static Ending ending(ChildProcess& child) {
    const auto how = child.wait(deadline_in(kRunDeadline_s));
    return {how.ok() ? *how : how.status().message(), child.take_errors()};
  }

  static void finish(const std::vector<std::string>& argv) {
    const auto child = start(argv);
    const Ending end = ending(*child);
    ASSERT_EQ(end.how, "exited with status 0") << end.errors;
  }

  static std::string path(const std::string& name) { return join_path(folder_, name); }

  // Rows of metrics.jsonl without the numbers that depend on the clock.
  std::vector<Json> metrics(const std::string& name) const {
    std::vector<Json> rows = read_rows(path(name + "/metrics.jsonl"));
    for (Json& row : rows)
      for (auto it = row.begin(); it != row.end();) {
        const bool timed = it.key().rfind("time/", 0) == 0 || it.key().rfind("perf/", 0) == 0;
        it = timed ? row.erase(it) : std::next(it);
      }
    return rows;
  }

  // SHA-256 of all files below a folder, by their names within it.
  static std::map<std::string, std::string> hashes(const std::string& folder) {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        out[fs::relative(entry.path(), folder).string()] =
            sha256_hex(*read_file(entry.path().string()));
    return out;
  }

  // A fresh run may measure that another matrix library is faster, which rounds differently. It
  // takes over the choices of a run that is over.
  void same_kernels(const std::string& from, const std::string& to) const {
    ASSERT_TRUE(make_folder(path(to)).ok());
    ASSERT_TRUE(
        write_file_atomic(path(to + "/kernels.txt"), *read_file(path(from + "/kernels.txt"))).ok());
  }

  // Both runs ended with the same metrics, exports, weights and optimizer states.
  void expect_same_run(const std::string& a, const std::string& b) const {
    EXPECT_EQ(metrics(a), metrics(b));
    EXPECT_EQ(hashes(path(a + "/export")), hashes(path(b + "/export")));
    const Manifest left = *read_manifest(path(a + "/checkpoints/step-000004"));
    const Manifest right = *read_manifest(path(b + "/checkpoints/step-000004"));
    for (const auto& [file, entry] : left.files) {
      if (file == "state.json") continue;  // it names the run; compared below
      EXPECT_EQ(entry.sha256, right.files.at(file).sha256) << file;
    }
    const auto numbers = [&](const std::string& run) {
      Json out = *checkpoint_numbers(path(run + "/checkpoints/step-000004"));
      out.erase("options");
      return out;
    };
    EXPECT_EQ(numbers(a), numbers(b));
  }

  static const std::string folder_;
};

const std::string RunProcess::folder_ = join_path(testing::TempDir(), cat("runs-", ::getpid()));

bool full() { return std::getenv("BRAID_TEST_FULL") != nullptr; }

// Waits until a file exists or the process has ended.
void wait_for(const std::string& path, ChildProcess& child) {
  while (!path_exists(path)) {
    const auto end = child.wait(deadline_in(0.002));
    if (end.ok() || end.status().code() != Code::kDeadline) return;
  }
}

// The same seed gives the same bytes: two runs agree in metrics, exports and full state.
TEST_P(RunProcess, SameSeedGivesTheSameBytes) {
  const std::string first = whole(GetParam()), again = cat("again-", GetParam());
  same_kernels(first, again);
  finish(command(again, GetParam()));
  expect_same_run(first, again);
}

// 2N steps equal N steps, SIGKILL, and N more, bit for bit; no metrics row is lost or doubled.
TEST_P(RunProcess, KilledAndContinuedEqualsUninterrupted) {
  const std::string killed = cat("killed-", GetParam());
  same_kernels(whole(GetParam()), killed);
  const auto child = start(command(killed, GetParam(), {"checkpoint.resume=auto"}));
  wait_for(path(killed + "/checkpoints/step-000002"), *child);
  ::kill(child->pid(), SIGKILL);
  EXPECT_EQ(ending(*child).how, "killed by signal 9 (Killed)");
  finish(command(killed, GetParam(), {"checkpoint.resume=auto"}));
  expect_same_run(whole(GetParam()), killed);
  EXPECT_EQ(metrics(killed).size(), 4u);
}

// SIGKILL at random moments, again and again, until the run is through.
TEST_P(RunProcess, RandomKillsLoseNothing) {
  std::mt19937 random(GetParam()[0]);
  const int runs = full() ? 40 : 1;
  for (int run = 0; run < runs; ++run) {
    const std::string name = cat("random-", GetParam(), "-", run);
    same_kernels(whole(GetParam()), name);
    int kills = 0;
    for (int attempt = 0; attempt < (full() ? 12 : 2); ++attempt) {
      const auto child = start(command(name, GetParam(), {"checkpoint.resume=auto"}));
      wait_for(path(name + "/metrics.jsonl"), *child);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 150000));
      ::kill(child->pid(), SIGKILL);
      if (ending(*child).how == "exited with status 0") break;
      ++kills;
    }
    finish(command(name, GetParam(), {"checkpoint.resume=auto"}));
    EXPECT_GT(kills, 0);
    expect_same_run(whole(GetParam()), name);
    fs::remove_all(path(name));
  }
}

INSTANTIATE_TEST_SUITE_P(Names, RunProcess, testing::Values("ppo", "grpo"));

using OneRun = RunProcess;

// SIGTERM: the step is finished, a checkpoint written, and the message says how to continue.
TEST_F(OneRun, StopSignalLeavesACheckpoint) {
  same_kernels(whole("ppo"), "stopped");
  const auto child =
      start(command("stopped", "ppo", {"checkpoint.every_steps=0", "train.total_steps=4"}));
  wait_for(path("stopped/metrics.jsonl"), *child);
  ::kill(child->pid(), SIGTERM);
  const Ending end = ending(*child);
  EXPECT_EQ(end.how, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("stopped by SIGTERM after step"));
  EXPECT_THAT(end.errors, HasSubstr("checkpoint.resume=auto"));
  EXPECT_EQ(list_checkpoints(path("stopped/checkpoints"))->size(), 1u);
  finish(command("stopped", "ppo", {"checkpoint.resume=auto"}));
  expect_same_run(whole("ppo"), "stopped");
}

// A damaged checkpoint is refused by name, and the command line that the message offers works.
TEST_F(OneRun, DamagedCheckpointIsRefusedAndThePreviousOneWorks) {
  finish(command("damaged", "grpo", {"rollout.record=true"}));
  const auto whole = metrics("damaged");
  const std::string weights = path("damaged/checkpoints/step-000004/actor.weights.safetensors");
  fs::resize_file(weights, fs::file_size(weights) - 1);
  const auto child = start(command("damaged", "grpo", {"checkpoint.resume=auto"}));
  const Ending end = ending(*child);
  EXPECT_EQ(end.how, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr(weights));
  const std::string previous = "checkpoint.resume=" + path("damaged/checkpoints/step-000003");
  EXPECT_THAT(end.errors, HasSubstr(previous));
  finish(command("damaged", "grpo", {previous, "rollout.record=true"}));
  EXPECT_EQ(metrics("damaged"), whole);
  const std::string rollouts = path("damaged/rollouts.jsonl");
  EXPECT_EQ(read_rows(rollouts).size(), 32u);  // 4 steps of 8 samples
  EXPECT_TRUE(verify_checkpoint(path("damaged/checkpoints/step-000004")).ok());
}

TEST_F(OneRun, ContinuingUnderOtherOptionsIsAnError) {
  finish(command("options", "grpo", {"train.total_steps=1"}));
  const auto child = start(
      command("options", "grpo", {"checkpoint.resume=auto", "data.seed=9", "optim.actor.lr=1"}));
  const Ending end = ending(*child);
  EXPECT_EQ(end.how, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("data.seed was '0', is '9'"));
  EXPECT_THAT(end.errors, HasSubstr("optim.actor.lr was '0.001', is '1'"));
}

TEST_F(OneRun, BadStateOptionsAreOneLineWithExitCodeTwo) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"checkpoint.resume=/no/such/folder", "/no/such/folder is not a checkpoint"},
      {"checkpoint.keep_last=0", "checkpoint.keep_last"},
      {"rollout.replay=/no/such/file", "/no/such/file"},
  };
  for (const auto& [option, message] : cases) {
    const auto child = start(command("bad", "grpo", {option}));
    const Ending end = ending(*child);
    EXPECT_EQ(end.how, "exited with status 2") << option;
    EXPECT_THAT(end.errors, HasSubstr(message));
    EXPECT_FALSE(path_exists(path("bad"))) << "nothing is written";
  }
}

// Rollouts of one run, replayed by another under the same options, train to the same bytes.
TEST_F(OneRun, ReplayGivesTheSameBytes) {
  const std::string recorded = whole("ppo");
  const std::string replay = "rollout.replay=" + path(recorded + "/rollouts.jsonl");
  same_kernels(recorded, "replayed");
  finish(command("replayed", "ppo", {replay}));
  expect_same_run(recorded, "replayed");
  const auto other = start(command("other", "ppo", {replay, "data.seed=5"}));
  const Ending end = ending(*other);
  EXPECT_EQ(end.how, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("rollouts.jsonl:1: prompt_ids of sample 0 are not those"));
}

TEST_F(OneRun, OneProcessWritesToARun) {
  const auto first = start(command("busy", "grpo", {"train.total_steps=1000"}));
  wait_for(path("busy/metrics.jsonl"), *first);
  const auto second = start(command("busy", "grpo"));
  const Ending end = ending(*second);
  EXPECT_EQ(end.how, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("another process is writing to " + path("busy")));
  first->kill();
}

TEST_F(OneRun, ExportsAndKeepsWhatTheConfigurationAsks) {
  finish(command("kept", "grpo",
                 {"checkpoint.hf_every_steps=2", "checkpoint.keep_last=1",
                  "checkpoint.keep_best=min:data/prompts_seen"}));
  EXPECT_TRUE(path_exists(path("kept/export-step-000002/actor/model.safetensors")));
  EXPECT_TRUE(path_exists(path("kept/export-step-000004/actor/model.safetensors")));
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : *list_checkpoints(path("kept/checkpoints")))
    steps.push_back(info.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 4}));
}

}  // namespace
}  // namespace braid
