// Jobs of four ranks whose processes are killed or stopped in the middle of their work, and a long
// one whose memory is watched. BRAID_TEST_FULL=1 runs many more trials.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kRanks = 4;
constexpr double kEndsWithin_s = 30;

void pause_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What a rank can be doing when it dies, by its position. "waiting" is part of some: the work of a
// rank there is to give and to take.
struct Phase {
  const char* name;
  const char* part;
  const char* also = "";

  bool holds(const std::string& position) const {
    return position.find(part) != std::string::npos && position.find(also) != std::string::npos;
  }
};
constexpr Phase kPhases[] = {{"generate", ", call generate, instruction"},
                             {"infer", ", call old_logprob, instruction"},
                             {"train", ", call update_actor, instruction"},
                             {"reallocation", ", moving weights", ", waiting"},
                             {"checkpoint", "checkpoint after step"}};

// The phase of a position; "elsewhere" for none of them.
std::string phase_of(const std::string& position) {
  for (const Phase& phase : kPhases)
    if (phase.holds(position)) return phase.name;
  return "elsewhere";
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
  static std::vector<pid_t> ranks_of(ChildProcess& job, size_t count = kRanks) {
    std::vector<pid_t> ranks;
    while (ranks.size() < count && !job.wait(deadline_in(0.005)).ok())
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

  // What a death left.
  struct Death {
    bool happened = false;  // else the job had ended before
    std::string position;   // of the rank
    double end_s = 0;       // from the death to the end of the job
  };

  // Starts the job and kills a rank of it where `when` says so, which gets the rank and the job and
  // returns whether it is there.
  static Death kill_rank(const std::string& name, size_t rank,
                         const std::function<bool(WatchedRank&, ChildProcess&)>& when) {
    same_kernels(kWhole, name);
    const auto job = start(four_ranks(name));
    const std::vector<pid_t> ranks = ranks_of(*job);
    EXPECT_EQ(ranks.size(), size_t{kRanks}) << job->take_errors();
    if (ranks.size() != kRanks) return {};
    WatchedRank watched{ranks[rank], {}};
    Death death;
    if (when(watched, *job)) {
      ::kill(watched.pid, SIGKILL);
      const auto begin = std::chrono::steady_clock::now();
      const auto end = job->wait(deadline_in(kEndsWithin_s));
      death.end_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      death.happened = !end.ok() || *end != "exited with status 0";
      death.position = watched.position();
      if (death.happened) expect_message(rank, death.position, end, job->take_errors());
    }
    (void)ending(*job);
    for (const pid_t other : ranks) EXPECT_NE(::kill(other, 0), 0) << "an orphan";
    return death;
  }

  static void expect_message(size_t rank, const std::string& position,
                             const Result<std::string>& end, const std::string& errors) {
    EXPECT_EQ(end.ok() ? *end : end.status().message(), "exited with status 1") << errors;
    EXPECT_THAT(errors, HasSubstr(cat("rank ", rank, " failed: killed by signal 9")));
    // It may have come to wait for others after its position was read.
    const std::string at = position.substr(0, position.find(", waiting"));
    EXPECT_THAT(errors, HasSubstr(position.empty() ? "" : cat("(at: ", at)));
  }

  // The job goes on to the bytes of the one that nobody touched, and what the killed one was
  // writing is gone.
  void expect_continues(const std::string& name) {
    const std::string left = path(name + "/config.yaml.tmp.1");
    ASSERT_TRUE(write_file_atomic(left, "half a fi").ok());
    finish(four_ranks(name));
    expect_same_run(kWhole, name);
    for (const auto& entry : fs::recursive_directory_iterator(path(name)))
      EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
    fs::remove_all(path(name));
  }
};

// SIGKILL of any rank at any moment: the job ends in time with a message that names the rank and
// where it was, and nothing is lost.
TEST_F(JobKilledRun, RandomDeathsOfRanksLoseNothing) {
  const double whole_s = whole_job_s();
  std::mt19937 random(13);
  std::map<std::string, int> phases;
  int deaths = 0;
  double longest_s = 0;
  const int trials = full_tier() ? 50 : 1;
  for (int trial = 0; deaths < trials && trial < 4 * trials; ++trial) {
    const std::string name = cat("faults-", trial);
    SCOPED_TRACE(name);
    const double share = static_cast<double>(random()) / static_cast<double>(random.max());
    const size_t rank = random() % kRanks;
    const Death death = kill_rank(name, rank, [&](WatchedRank& watched, ChildProcess& job) {
      const Deadline then = deadline_in(share * whole_s);
      while (std::chrono::steady_clock::now() < then && !job.wait(deadline_in(0.01)).ok())
        (void)watched.position();  // a dead process has no board that could be found
      return !job.wait(deadline_in(0)).ok();
    });
    if (!death.happened) continue;  // it came too late
    ++deaths;
    ++phases[phase_of(death.position)];
    longest_s = std::max(longest_s, death.end_s);
    expect_continues(name);
  }
  EXPECT_EQ(deaths, trials);
  RecordProperty("inputs", deaths);
  RecordProperty("longest_end_ms", static_cast<int>(longest_s * 1000));
  for (const auto& [phase, count] : phases) RecordProperty(phase, count);
}

// SIGKILL of each rank in each phase.
TEST_F(JobKilledRun, EachRankDiesInEachPhase) {
  if (!path_exists(path(kWhole))) whole_job_s();
  int cells = 0;
  double longest_s = 0;
  for (const Phase& phase : kPhases)
    for (size_t rank = 0; rank < kRanks; ++rank) {
      // The others in the full tier: those in which a rank waits for nobody, or writes.
      const bool sample =
          cat(phase.name, rank) == "train1" || cat(phase.name, rank) == "checkpoint0";
      if (!sample && !full_tier()) continue;
      const std::string name = cat("faults-", phase.name, "-", rank);
      SCOPED_TRACE(name);
      // There is a checkpoint to go on from, and weights have changed.
      const std::string step = cat("step ", 2 + rank % 2);
      const auto wanted = [&](const std::string& at) {
        return phase.holds(at) && at.find(step) != std::string::npos;
      };
      Death death;
      for (int attempt = 0; attempt < 5 && !death.happened; ++attempt) {
        fs::remove_all(path(name));
        death = kill_rank(name, rank, [&](WatchedRank& watched, ChildProcess& job) {
          return watched.stop_at(wanted, job);
        });
      }
      EXPECT_TRUE(wanted(death.position)) << "never seen there; last: " << death.position;
      if (!death.happened) continue;
      ++cells;
      longest_s = std::max(longest_s, death.end_s);
      expect_continues(name);
    }
  RecordProperty("inputs", cells);
  RecordProperty("longest_end_ms", static_cast<int>(longest_s * 1000));
}

// SIGKILL of a rank while the files of a checkpoint are written beside the steps, some of them
// there and no manifest: what was begun is left, and the job goes on from the checkpoint before.
TEST_F(JobKilledRun, DeathWhileSharesAreWrittenLosesNothing) {
  if (!path_exists(path(kWhole))) whole_job_s();
  const int wanted = full_tier() ? 12 : 1;
  int hits = 0;
  for (int trial = 0; hits < wanted && trial < 8 * wanted; ++trial) {
    const std::string name = cat("faults-shares-", trial);
    SCOPED_TRACE(name);
    const auto left_open = [&] {
      const auto names = list_folder(path(name + "/checkpoints"));
      return names.ok() && std::any_of(names->begin(), names->end(), [](const std::string& entry) {
               return entry.rfind(".writing-", 0) == 0;
             });
    };
    const Death death =
        kill_rank(name, trial % kRanks, [&](WatchedRank& watched, ChildProcess& job) {
          (void)watched.position();  // a dead process has no board that could be found
          while (!job.wait(deadline_in(0)).ok())
            if (left_open()) return true;
          return false;
        });
    if (!death.happened) continue;
    hits += left_open();
    expect_continues(name);
  }
  EXPECT_EQ(hits, wanted) << "the kills must hit the writing itself";
  RecordProperty("inputs", hits);
}

// SIGTERM to the process that was started, and the Ctrl-C of a terminal, which all processes of the
// job get: the step is finished and saved, and the job goes on from there.
class StoppedJob : public JobKilledRun {
 protected:
  void expect_saved(
      const std::string& name, const std::string& signal,
      const std::function<void(const ChildProcess&, const std::vector<pid_t>&)>& deliver);
};

void StoppedJob::expect_saved(
    const std::string& name, const std::string& signal,
    const std::function<void(const ChildProcess&, const std::vector<pid_t>&)>& deliver) {
  if (!path_exists(path(kWhole))) whole_job_s();
  same_kernels(kWhole, name);
  const auto job = start(four_ranks(name));
  const std::vector<pid_t> ranks = ranks_of(*job);
  ASSERT_EQ(ranks.size(), size_t{kRanks});
  WatchedRank last{ranks.back(), {}};
  const auto in_second_step = [](const std::string& at) { return at.rfind("step 2, ", 0) == 0; };
  ASSERT_TRUE(last.stop_at(in_second_step, *job)) << job->take_errors();
  deliver(*job, ranks);
  pause_s(0.5);  // the launcher passes it on to ranks that wait for this one
  ::kill(last.pid, SIGCONT);
  const Finished end = ending(*job);
  EXPECT_EQ(end.end, "exited with status 1") << end.errors;
  EXPECT_THAT(end.errors, HasSubstr(cat("stopped by ", signal, " after step 2")));
  EXPECT_EQ(steps_kept(name), 2);
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
  expect_continues(name);
}

TEST_F(StoppedJob, SigtermLosesNothing) {
  expect_saved("faults-term", "SIGTERM",
               [](const ChildProcess& job, const auto&) { send(job, SIGTERM); });
}

TEST_F(StoppedJob, CtrlCLosesNothing) {
  expect_saved("faults-int", "SIGINT",
               [](const ChildProcess& job, const std::vector<pid_t>& ranks) {
                 for (const pid_t rank : ranks) ::kill(rank, SIGINT);
                 send(job, SIGINT);
               });
}

// A terminal that closes tells all processes of the job, and nobody reads their output any more.
TEST_F(StoppedJob, ClosedTerminalLosesNothing) {
  std::signal(SIGHUP, SIG_DFL);  // whoever tests under nohup has it ignored
  expect_saved("faults-hup", "SIGHUP",
               [](const ChildProcess& job, const std::vector<pid_t>& ranks) {
                 for (const pid_t rank : ranks) ::kill(rank, SIGHUP);
                 send(job, SIGHUP);
               });
}

// Who waits for one that never comes ends the job by its name.
TEST_F(JobKilledRun, AWaitThatTakesTooLongEndsTheJob) {
  const auto child = start(four_ranks("faults-wait", {"runtime.wait_s=5"}));
  const std::vector<pid_t> ranks = ranks_of(*child);
  ASSERT_EQ(ranks.size(), size_t{kRanks}) << child->take_errors();
  WatchedRank stopped{ranks[2], {}};
  const auto in_second_step = [](const std::string& at) { return at.rfind("step 2, ", 0) == 0; };
  ASSERT_TRUE(stopped.stop_at(in_second_step, *child)) << child->take_errors();
  const std::string why = "not done within 5 s (runtime.wait_s)";
  std::string errors;
  const Deadline deadline = deadline_in(kEndsWithin_s);
  while (errors.find(why) == std::string::npos && std::chrono::steady_clock::now() < deadline) {
    pause_s(0.1);
    errors += child->take_errors();
  }
  EXPECT_THAT(errors, HasSubstr(why));
  ::kill(ranks[2], SIGCONT);  // else the launcher waits for it to end by itself
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 1") << errors << end.errors;
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
}

// One thread of a rank stands still, the one that works: the rank lives, says so, and does nothing.
TEST_F(JobKilledRun, ARankThatIsStuckEndsTheJobByItsName) {
  const auto job = start(four_ranks("faults-stuck", {"runtime.stall_s=10"}));
  const std::vector<pid_t> ranks = ranks_of(*job);
  ASSERT_EQ(ranks.size(), size_t{kRanks}) << job->take_errors();
  WatchedRank stuck{ranks[2], {}};
  const auto works = [](const std::string& at) {
    return at.rfind("step ", 0) == 0 && at.rfind("step 1,", 0) != 0 &&
           at.find(", call ") != std::string::npos && at.find(", waiting") == std::string::npos;
  };
  // Not where it has just said its position, with the lock that its signs of life need.
  do {
    ::kill(stuck.pid, SIGCONT);
    ASSERT_TRUE(stuck.stop_at(works, *job)) << job->take_errors();
    ::kill(stuck.pid, SIGCONT);
    pause_s(0.003);
  } while (!stuck.stop() || !works(stuck.position()));
  const std::string stuck_at = stuck.position();
  const bool held = ::ptrace(PTRACE_SEIZE, stuck.pid, nullptr, nullptr) == 0 &&
                    ::ptrace(PTRACE_INTERRUPT, stuck.pid, nullptr, nullptr) == 0;
  ::kill(stuck.pid, SIGCONT);  // its other threads
  std::string errors;
  const Deadline deadline = deadline_in(10 + kEndsWithin_s);
  while (held && !job->wait(deadline_in(0.1)).ok() && std::chrono::steady_clock::now() < deadline) {
    errors += job->take_errors();
    (void)::waitpid(stuck.pid, nullptr, WNOHANG | __WALL);  // its launcher waits for it after us
  }
  if (!held) GTEST_SKIP() << "no thread of another process can be held here";
  ::kill(stuck.pid, SIGKILL);  // where nobody found it
  (void)::waitpid(stuck.pid, nullptr, __WALL);
  const Finished end = ending(*job);
  errors += end.errors;
  EXPECT_EQ(end.end, "exited with status 1") << errors;
  EXPECT_THAT(errors, HasSubstr("braid: error: rank 2 failed: no progress for "));
  EXPECT_THAT(errors, HasSubstr(cat("(runtime.stall_s) (at: ", stuck_at)));
  EXPECT_THAT(errors, HasSubstr("rank 2 ends because it was given up"));
  EXPECT_THAT(errors, HasSubstr("rank 0 ends because rank 2 failed"));
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
}

// A stopped rank is named, nobody gives up, and the job goes on where it was.
TEST_F(JobKilledRun, StoppedRankHoldsTheJobUpAndNothingElse) {
  if (!full_tier()) GTEST_SKIP() << "twenty seconds of waiting: the full tier";
  if (!path_exists(path(kWhole))) whole_job_s();
  same_kernels(kWhole, "faults-stopped");
  const auto child = start(four_ranks("faults-stopped"));
  const std::vector<pid_t> ranks = ranks_of(*child);
  ASSERT_EQ(ranks.size(), size_t{kRanks});
  WatchedRank stopped{ranks[2], {}};
  const auto in_second_step = [](const std::string& at) { return at.rfind("step 2, ", 0) == 0; };
  ASSERT_TRUE(stopped.stop_at(in_second_step, *child)) << child->take_errors();
  const std::string stopped_at = stopped.position();
  pause_s(20);
  ::kill(ranks[2], SIGCONT);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 0") << end.errors;
  EXPECT_THAT(end.errors, HasSubstr("rank 2 is stopped (SIGSTOP) since"));
  EXPECT_THAT(end.errors, HasSubstr(cat("it was at: ", stopped_at)));
  EXPECT_THAT(end.errors, HasSubstr("rank 2 stood still for 2"));
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

// Under torchrun a job goes on by itself: the ranks are started again, continue from the last
// checkpoint and come to the bytes of a job that nobody touched.
TEST_F(JobKilledRun, TorchrunStartsADeadJobAgain) {
  const std::string folder = torchrun_folder();
  if (folder.empty()) GTEST_SKIP() << "torchrun is not installed, or does not start";
  const auto start_job = [&](const std::string& name) {
    return start({"/bin/bash", "-c",
                  cat("cd ", BRAID_SOURCE_DIR, " && PATH=\"", folder,
                      ":$PATH\" OMP_NUM_THREADS=1 MASTER_PORT=", 20000 + ::getpid() % 10000,
                      " exec examples/cluster/torchrun.sh ", BRAID_BINARY, " run.dir=", folder_,
                      " run.name=", name, " train.total_steps=12 checkpoint.every_steps=5",
                      // What is written beside steps may not be there in the eighth.
                      " checkpoint.async=false")});
  };
  const std::string whole = "torchrun-whole", name = "torchrun";
  const Finished untouched = ending(*start_job(whole));
  ASSERT_EQ(untouched.end, "exited with status 0") << untouched.errors;
  same_kernels(whole, name);
  const auto child = start_job(name);
  const std::vector<pid_t> ranks = ranks_of(*child, 2);
  ASSERT_EQ(ranks.size(), 2u);
  WatchedRank last{ranks[1], {}};
  const auto in_eighth_step = [](const std::string& at) { return at.rfind("step 8, ", 0) == 0; };
  ASSERT_TRUE(last.stop_at(in_eighth_step, *child)) << child->take_errors();
  ::kill(last.pid, SIGKILL);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 0") << end.errors;
  EXPECT_THAT(end.errors, HasSubstr("continuing after step 5"));
  EXPECT_EQ(metrics(whole), metrics(name));
  EXPECT_EQ(hashes(path(whole + "/export")), hashes(path(name + "/export")));
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

// Of neighbouring moments: a checkpoint that is just being written has a file open.
int64_t fewest_files(std::vector<Use>::const_iterator begin, std::vector<Use>::const_iterator end) {
  return std::min_element(begin, end, [](const Use& a, const Use& b) { return a.files < b.files; })
      ->files;
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
    EXPECT_LE(fewest_files(seen.end() - 3, seen.end()),
              fewest_files(seen.begin(), seen.begin() + 3))
        << rank;
  }
  EXPECT_LT(worst, 1e6) << "bytes in 100 steps";
  RecordProperty("bytes_per_100_steps", static_cast<int>(worst));
}

}  // namespace
}  // namespace braid
