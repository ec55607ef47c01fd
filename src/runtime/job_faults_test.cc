// Jobs of four ranks whose processes are killed or stopped in the middle of their work, and a long
// one whose memory is watched. BRAID_TEST_FULL=1 runs many more trials.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "runtime/job_testing.h"

namespace braid {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kRanks = 4;
constexpr double kEndsWithin_s = 30;

void pause_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// The word after `key` in the message of a failure, as in "call update_actor,".
std::string named(const std::string& message, const std::string& key) {
  const size_t at = message.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return message.substr(begin, message.find_first_of(",)\n", begin) - begin);
}

class JobKilledRun : public JobRun {
 protected:
  static constexpr const char* kWhole = "faults-whole";

  // Generation by four ranks, scoring by pairs, training by two stages whose weights and state are
  // slices: weights move in every step.
  static std::vector<std::string> four_ranks(const std::string& name,
                                             const std::vector<std::string>& more = {}) {
    const std::string plan =
        write_plan({"faults", "grpo", "1x4",
                    "  generate: {mesh: all, dp: 4}\n  old_logprob: {mesh: all, dp: 2, tp: 2}\n"
                    "  ref_logprob: {mesh: 0-1, dp: 2}\n  update_actor: {mesh: all, dp: 2, pp: 2, "
                    "zero: 3}\n"});
    std::vector<std::string> options = {"plan.file=" + plan, "train.threads=1",
                                        "checkpoint.resume=auto"};
    options.insert(options.end(), more.begin(), more.end());
    return command(name, "grpo", options);
  }

  // The ranks of a job once all of them are there; fewer where it ended before.
  static std::vector<pid_t> ranks_of(ChildProcess& job) {
    std::vector<pid_t> ranks;
    while (ranks.size() < kRanks && !job.wait(deadline_in(0.005)).ok())
      ranks = children_of(job.pid());
    return ranks;
  }

  // An uninterrupted job, and how long its ranks live.
  static double whole_job_s() {
    const auto child = start(four_ranks(kWhole));
    ranks_of(*child);
    const auto begin = std::chrono::steady_clock::now();
    const Finished end = ending(*child);
    EXPECT_EQ(end.end, "exited with status 0") << end.errors;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  // Kills a rank at some moment; how the job ended.
  static Finished killed_at(const std::string& name, size_t rank, double after_s) {
    const auto child = start(four_ranks(name));
    const std::vector<pid_t> ranks = ranks_of(*child);
    EXPECT_EQ(ranks.size(), size_t{kRanks}) << child->take_errors();
    pause_s(after_s);
    if (rank < ranks.size()) ::kill(ranks[rank], SIGKILL);
    const auto end = child->wait(deadline_in(kEndsWithin_s));
    for (const pid_t other : ranks) EXPECT_NE(::kill(other, 0), 0) << "an orphan";
    return {end.ok() ? *end : end.status().message(), {}, child->take_errors()};
  }
};

// SIGKILL of any rank at any moment: the job ends in time with a message that names the rank, and
// goes on to the bytes of a job that nobody touched.
TEST_F(JobKilledRun, RandomDeathsOfRanksLoseNothing) {
  const double whole_s = whole_job_s();
  std::mt19937 random(13);
  std::map<std::string, int> calls;
  int deaths = 0;
  for (int trial = 0; trial < (full_tier() ? 50 : 2); ++trial) {
    const std::string name = cat("faults-", trial);
    same_kernels(kWhole, name);
    const double share = static_cast<double>(random()) / static_cast<double>(random.max());
    const size_t rank = random() % kRanks;
    const Finished end = killed_at(name, rank, share * whole_s);
    if (end.end != "exited with status 0") {
      ++deaths;
      EXPECT_EQ(end.end, "exited with status 1") << end.errors;
      // Whoever sees it first says it: the launcher, or the rank that watches this one.
      EXPECT_THAT(end.errors, AnyOf(HasSubstr(cat("rank ", rank, " failed: killed by signal 9")),
                                    HasSubstr(cat("rank ", rank, " failed: its process is gone"))));
      ++calls[named(end.errors, "call ")];
      finish(four_ranks(name));
    }
    expect_same_run(kWhole, name);
    fs::remove_all(path(name));
  }
  EXPECT_GT(deaths, 0);
  RecordProperty("deaths", deaths);
  for (const auto& [call, count] : calls)
    RecordProperty(call.empty() ? "between calls" : call, count);
}

// A stopped rank is named, nobody gives up, and the job goes on where it was.
TEST_F(JobKilledRun, StoppedRankHoldsTheJobUpAndNothingElse) {
  if (!full_tier()) GTEST_SKIP() << "twenty seconds of waiting: the full tier";
  if (!path_exists(path(kWhole))) whole_job_s();
  same_kernels(kWhole, "faults-stopped");
  const auto child = start(four_ranks("faults-stopped"));
  const std::vector<pid_t> ranks = ranks_of(*child);
  ASSERT_EQ(ranks.size(), size_t{kRanks});
  ASSERT_TRUE(reaches("faults-stopped", 1, *child));
  ::kill(ranks[2], SIGSTOP);
  pause_s(20);
  ::kill(ranks[2], SIGCONT);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 0") << end.errors;
  EXPECT_THAT(end.errors, HasSubstr("rank 2"));
  expect_same_run(kWhole, "faults-stopped");
}

// The folder of a torch launcher that works here: that of the environment that the set-up made, or
// PATH's; "" without one.
std::string torchrun_folder() {
  const auto works = [](const std::string& torchrun) {
    return run_shell(torchrun + " --help > /dev/null 2>&1").exit_code == 0;
  };
  const std::string own = cat(BRAID_SOURCE_DIR, "/.deps/python/bin");
  if (works(own + "/torchrun")) return own;
  return works("torchrun") ? "." : "";
}

// Under torchrun a job goes on by itself: the ranks are started again and continue.
TEST_F(JobKilledRun, TorchrunStartsADeadJobAgain) {
  const std::string folder = torchrun_folder();
  if (folder.empty()) GTEST_SKIP() << "torchrun is not installed, or does not start";
  const std::string name = "torchrun";
  const auto child =
      start({"/bin/bash", "-c",
             cat("cd ", BRAID_SOURCE_DIR, " && PATH=\"", folder,
                 ":$PATH\" OMP_NUM_THREADS=1 MASTER_PORT=", 20000 + ::getpid() % 10000,
                 " exec examples/cluster/torchrun.sh ", BRAID_BINARY, " run.dir=", folder_,
                 " run.name=", name, " train.total_steps=30 checkpoint.every_steps=5")});
  ASSERT_TRUE(reaches(name, 7, *child));
  const std::vector<pid_t> ranks = children_of(child->pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGKILL);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 0") << end.errors;
  EXPECT_THAT(end.errors, HasSubstr("continuing after step 5"));
  EXPECT_EQ(steps_complete(name), 30);
}

int64_t resident_bytes(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/statm"));
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int64_t open_files(pid_t pid) {
  const fs::directory_iterator folder(cat("/proc/", pid, "/fd"));
  return std::distance(begin(folder), end(folder));
}

struct Use {
  int64_t step = 0, bytes = 0, files = 0;
};

// Bytes a step by least squares.
double slope(const std::vector<Use>& uses) {
  double steps = 0, bytes = 0, above = 0, below = 0;
  for (const Use& use : uses) {
    steps += static_cast<double>(use.step) / static_cast<double>(uses.size());
    bytes += static_cast<double>(use.bytes) / static_cast<double>(uses.size());
  }
  for (const Use& use : uses) {
    const double step = static_cast<double>(use.step) - steps;
    above += step * (static_cast<double>(use.bytes) - bytes);
    below += step * step;
  }
  return above / below;
}

// Neither memory nor descriptors grow with the steps, after the first third.
TEST_F(JobKilledRun, AThousandStepsLeakNothing) {
  if (!full_tier()) GTEST_SKIP() << "minutes: the full tier";
  constexpr int kSteps = 1000, kFirst = 300, kEvery = 50;
  const auto child = start(
      four_ranks("soak", {cat("train.total_steps=", kSteps + 1), "checkpoint.every_steps=100"}));
  const std::vector<pid_t> ranks = ranks_of(*child);
  ASSERT_EQ(ranks.size(), size_t{kRanks});
  std::map<pid_t, std::vector<Use>> uses;
  for (int64_t step = kFirst; step <= kSteps; step += kEvery) {
    ASSERT_TRUE(reaches("soak", step, *child));
    for (const pid_t rank : ranks)
      uses[rank].push_back({step, resident_bytes(rank), open_files(rank)});
  }
  child->kill();
  double worst = 0;
  for (const auto& [rank, seen] : uses) {
    worst = std::max(worst, slope(seen) * 100);
    EXPECT_LE(seen.back().files, seen.front().files) << rank;
  }
  EXPECT_LT(worst, 1e6) << "bytes in 100 steps";
  RecordProperty("bytes_per_100_steps", static_cast<int>(worst));
}

}  // namespace
}  // namespace braid
