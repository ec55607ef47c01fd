#include "comm/failure.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ATen/ops/ones.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/text.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "host/file.h"
#include "host/process.h"
#include "host/progress.h"

namespace braid::inline comm {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kScenario = "BRAID_COMM_SCENARIO";
constexpr double kStall_s = 2;

std::string scenario() {
  const char* value = std::getenv(kScenario);
  return value != nullptr ? value : "";
}

std::string self_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

Status all_reduce_once(World& world, const std::string& tensor) {
  BRAID_ASSIGN(Communicator * all, world.everyone());
  const at::Tensor x = at::ones({4});
  return all->all_reduce(x, Reduce::kSum, tensor).wait();
}

// Works, or seems to, for so long.
void compute(double seconds, bool progress) {
  const Deadline end = deadline_in(seconds);
  while (std::chrono::steady_clock::now() < end)
    if (progress) note_progress();
}

constexpr double kForever_s = 100;

// Where ranks are stuck that live.
Status act_stuck(World& world, const std::string& what) {
  const int64_t rank = world.global_rank(), ranks = world.world_size();
  const bool chosen = rank == ranks - 1;
  BRAID_ASSIGN(Communicator * all, world.everyone());
  const at::Tensor x = at::ones({4}), y = at::ones({4});
  if (what == "circle") return all->receive(x, (rank + 1) % ranks, 0, "a circle").wait();
  if (what == "busy" && chosen) compute(3 * kStall_s, true);
  if (what == "spin" && chosen) compute(kForever_s, false);
  if (what == "beside" && chosen) {
    Pending sum = all->all_reduce(y, Reduce::kSum, "beside");
    compute(kForever_s, false);
    return sum.wait();
  }
  if (what == "beside") BRAID_TRY(all->all_reduce(y, Reduce::kSum, "beside").wait());
  return all_reduce_once(world, "last");
}

bool is_stuck(const std::string& what) {
  return what == "spin" || what == "beside" || what == "circle" || what == "busy";
}

// What a rank of a scenario does.
Status act(World& world, const std::string& what) {
  BRAID_TRY(all_reduce_once(world, "first"));
  std::fprintf(stderr, "pid %d\n", ::getpid());
  const bool chosen = world.global_rank() == world.world_size() - 1;
  const bool dies = what == "kill" || what == "unseen";
  if (dies && chosen)  // the others look at it, then it moves on at once
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  world.position().enter("step 3, train actor", cat("instruction ", 10 + world.global_rank()));
  if (is_stuck(what)) return act_stuck(world, what);
  if (what == "unseen" && chosen) {
    // Its output stays open, and so nothing wakes the launcher when it ends.
    if (std::system("sleep 3 &") != 0) return io_error("cannot start a shell");
  }
  if (dies && chosen) ::raise(SIGKILL);
  if (what == "report" && chosen) return invalid_input("the reward file ends in the middle");
  if (what == "stop" && chosen) {
    // Something else wakes it, as a person would.
    const std::string wake = cat("(sleep 3; kill -CONT ", ::getpid(), ") &");
    if (std::system(wake.c_str()) != 0) return io_error("cannot start a shell");
    ::raise(SIGSTOP);
  }
  if (what == "silent" && world.global_rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // the others look meanwhile
    const std::string end = cat("(sleep 15; kill -KILL ", ::getpid(), ") &");
    if (std::system(end.c_str()) != 0) return io_error("cannot start a shell");
    ::raise(SIGSTOP);
  }
  if ((what == "late" && chosen) || what == "sleep")
    std::this_thread::sleep_for(std::chrono::seconds(60));
  BRAID_TRY(all_reduce_once(world, "layers.3.weight"));
  if (what == "stop") std::this_thread::sleep_for(std::chrono::seconds(1));  // it is seen again
  return {};
}

int run_rank(const std::string& what) {
  const auto membership = read_membership(process_environment());
  WorldOptions options{.join_s = 60, .deadline_s = what == "late" ? 2.0 : 60.0};
  options.watchdog = {.interval_s = 0.2, .quiet_s = 1, .lost_s = 20};
  if (is_stuck(what)) options.watchdog.stall_s = kStall_s;
  if (what == "silent") options.watchdog.stopped_s = 3;
  if (what == "unreachable") options.join_s = 1;
  if (!membership.ok() || !*membership) return 3;
  auto world = World::join(**membership, options);
  Status status = world.ok() ? act(**world, what) : world.status();
  if (world.ok()) status = status.ok() ? (*world)->leave() : (*world)->fail(status);
  if (what == "report" && !status.ok()) status = (*world)->fail(status);  // is told already
  if (!status.ok()) std::fprintf(stderr, "braid: error: %s\n", status.message().c_str());
  return exit_code(status.code());
}

// Not a test of its own: what the tests below start this program for.
TEST(FailureScenario, Part) {
  if (scenario().empty()) GTEST_SKIP() << "started by the tests of failures";
  if (std::getenv("RANK") != nullptr) std::_Exit(run_rank(scenario()));
  LaunchOptions options;
  options.ranks = 3;
  if (scenario() == "unseen") options.look_s = 1;  // the others look five times meanwhile
  options.argv = {self_path(), "--gtest_filter=FailureScenario.Part", "--gtest_brief=1"};
  if (scenario() == "files") options.ranks = 100, options.argv = {"/bin/true"};
  const auto code = launch_ranks(options);
  if (!code.ok()) std::fprintf(stderr, "%s\n", code.status().message().c_str());
  std::_Exit(code.ok() ? *code : 4);
}

struct Ended {
  std::string end, output;
};

Ended finish(ChildProcess& child) {
  Ended out;
  const Deadline deadline = deadline_in(120);
  for (auto line = child.read_line(deadline); line.ok(); line = child.read_line(deadline))
    out.output += *line + "\n";
  const auto end = child.wait(deadline);
  out.end = end.ok() ? *end : end.status().message();
  out.output += child.take_errors();
  return out;
}

std::vector<std::string> scenario_argv(const std::string& what) {
  return {"env", cat(kScenario, "=", what), self_path(), "--gtest_filter=FailureScenario.Part",
          "--gtest_brief=1"};
}

Ended run_scenario(const std::string& what, bool over_wires = false) {
  std::vector<std::string> argv = {
      "sh", "-c",  "exec \"$@\" 2>&1",
      "sh", "env", over_wires ? "BRAID_MESH_RANKS=1" : "BRAID_MESH_RANKS=8"};
  for (const std::string& word : scenario_argv(what)) argv.push_back(word);
  auto child = ChildProcess::start({argv});
  EXPECT_TRUE(child.ok());
  return finish(**child);
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

// Every process that told its number is gone.
void expect_no_orphans(const std::string& output) {
  const Deadline deadline = deadline_in(30);
  for (const std::string& line : split(output, '\n')) {
    const size_t at = line.find("pid ");
    int64_t pid = 0;
    if (at == std::string::npos || !parse_int(line.substr(at + 4), &pid)) continue;
    while (::kill(static_cast<pid_t>(pid), 0) == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_NE(::kill(static_cast<pid_t>(pid), 0), 0) << "process " << pid << " is left";
  }
}

void expect_killed_rank_ends_all(bool over_wires) {
  const Ended run = run_scenario("kill", over_wires);
  EXPECT_EQ(run.end, "exited with status 1") << run.output;
  EXPECT_EQ(count_of(run.output, "braid: error: "), 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("braid: error: rank 2 failed: killed by signal 9"));
  EXPECT_THAT(run.output, HasSubstr("(at: step 3, train actor, instruction 12"));
  for (const int rank : {0, 1})
    EXPECT_THAT(run.output, HasSubstr(cat("rank ", rank,
                                          " ends because rank 2 failed; it was at: "
                                          "step 3, train actor, instruction ",
                                          10 + rank)));
  EXPECT_EQ(count_of(run.output, "pid "), 3);
  expect_no_orphans(run.output);
}

TEST(Failure, KilledRankEndsAllWithOneMessage) { expect_killed_rank_ends_all(false); }

TEST(Failure, KilledRankEndsAllOverWires) { expect_killed_rank_ends_all(true); }

TEST(Failure, TheLauncherSaysHowARankEndedEvenIfOthersSeeItFirst) {
  const Ended run = run_scenario("unseen");
  EXPECT_EQ(run.end, "exited with status 1") << run.output;
  EXPECT_EQ(count_of(run.output, "braid: error: "), 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("braid: error: rank 2 failed: killed by signal 9"));
}

// Before it has said anything, as while its libraries load.
TEST(Failure, ARankThatDiesAtItsBeginIsNamedWithAPhase) {
  LaunchOptions options;
  options.ranks = 2;
  options.argv = {"/bin/sh", "-c", "[ $RANK = 0 ] && kill -9 $$; exec sleep 60"};
  testing::internal::CaptureStderr();
  options.grace_s = 0.1;
  const auto code = launch_ranks(options);
  const std::string errors = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(*code, 1);
  EXPECT_THAT(errors, HasSubstr("rank 0 failed: killed by signal 9 (Killed) (at: starting, before "
                                "it met the other ranks)"));
}

TEST(Failure, ReportedFailureIsSaidOnce) {
  const Ended run = run_scenario("report");
  EXPECT_EQ(run.end, "exited with status 2") << run.output;
  EXPECT_EQ(count_of(run.output, "braid: error: "), 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("error: rank 2 failed: the reward file ends in the middle"));
  EXPECT_THAT(run.output, HasSubstr("rank 0 ends because rank 2 failed"));
  expect_no_orphans(run.output);
}

TEST(Failure, StoppedRankIsNamedAndTheRunGoesOn) {
  const Ended run = run_scenario("stop");
  EXPECT_EQ(run.end, "exited with status 0") << run.output;
  EXPECT_THAT(run.output, HasSubstr("rank 2 is stopped (SIGSTOP)"));
  EXPECT_THAT(run.output, HasSubstr("rank 2 is back"));
}

TEST(Failure, PassedDeadlineNamesTensorPeersAndPositions) {
  const Ended run = run_scenario("late");
  EXPECT_EQ(run.end, "exited with status 1") << run.output;
  EXPECT_EQ(count_of(run.output, "braid: error: "), 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("all_reduce of layers.3.weight with ranks"));
  EXPECT_THAT(run.output, HasSubstr("not done within 2 s (runtime.wait_s)"));
  EXPECT_THAT(run.output, HasSubstr("rank 2: step 3, train actor, instruction 12"));
}

TEST(Failure, RanksEndWithTheirLauncher) {
  auto child = ChildProcess::start({scenario_argv("sleep")});
  ASSERT_TRUE(child.ok());
  std::string output;
  const Deadline deadline = deadline_in(60);
  while (count_of(output, "pid ") < 3 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    output += (*child)->take_errors();
    (void)(*child)->wait(deadline_in(0.05));
  }
  EXPECT_EQ(count_of(output, "pid "), 3) << output;
  ASSERT_EQ(::kill((*child)->pid(), SIGKILL), 0);
  (void)(*child)->wait(deadline);
  expect_no_orphans(output);
}

// Ranks that no launcher watches, as under srun: rank 0 serves the store.
Ended run_without_launcher(const std::string& what) {
  std::string script;
  for (int rank = 0; rank < 3; ++rank)
    script +=
        cat(kScenario, "=", what, " RANK=", rank, " WORLD_SIZE=3 LOCAL_RANK=", rank,
            " LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=", 20000 + ::getpid() % 20000,
            " ", self_path(), " --gtest_filter=FailureScenario.Part 2>&1 & p", rank, "=$!; ");
  script += "wait $p0; a=$?; wait $p1; b=$?; wait $p2; echo codes $a $b $?";
  auto child = ChildProcess::start({{"sh", "-c", script}});
  EXPECT_TRUE(child.ok());
  return finish(**child);
}

TEST(Failure, WithoutALauncherTheOthersNoticeADeath) {
  const Ended run = run_without_launcher("kill");
  EXPECT_THAT(run.output, HasSubstr("codes 1 1 137"));
  EXPECT_THAT(run.output, HasSubstr("braid: error: rank 2 failed: its process is gone (at: step 3, "
                                    "train actor, instruction 12"));
  EXPECT_EQ(count_of(run.output, "braid: error: "), 1) << run.output;
}

// A server that is stopped answers nobody, and nobody can be told.
TEST(Failure, AStoreThatDoesNotAnswerIsNamed) {
  const Ended run = run_without_launcher("silent");
  EXPECT_THAT(run.output, HasSubstr("rank 0, which serves the store of the job, has not answered"));
  EXPECT_THAT(run.output,
              HasSubstr("braid: error: rank 0 failed: it serves the store of the job and has not "
                        "answered for "));
  EXPECT_THAT(run.output, HasSubstr("(it is stopped: SIGSTOP)"));
  for (const int rank : {1, 2})
    EXPECT_THAT(run.output, HasSubstr(cat("braid: rank ", rank, " ends; it was at: ")));
  EXPECT_THAT(run.output, HasSubstr("codes 137 1 1"));
}

// It computes without end and is alive; nobody but itself can end it.
TEST(Failure, ARankWithoutProgressIsNamedAndGone) {
  for (const bool launched : {true, false}) {
    const Ended run = launched ? run_scenario("spin") : run_without_launcher("spin");
    EXPECT_THAT(run.output, HasSubstr("braid: error: rank 2 failed: no progress for "));
    EXPECT_THAT(run.output,
                HasSubstr("(runtime.stall_s) (at: step 3, train actor, instruction 12"));
    EXPECT_THAT(run.output, HasSubstr("rank 2 ends because it was given up"));
    EXPECT_THAT(run.output, HasSubstr("rank 0 ends because rank 2 failed"));
    EXPECT_EQ(count_of(run.output, "braid: error: "), 1) << run.output;
    EXPECT_THAT(run.end + run.output, HasSubstr(launched ? "status 1" : "codes 1 1 1"));
    expect_no_orphans(run.output);
  }
}

TEST(Failure, ARankThatIsStuckBesideACollectiveIsNamed) {
  const Ended run = run_scenario("beside");
  EXPECT_EQ(run.end, "exited with status 1") << run.output;
  EXPECT_THAT(run.output, HasSubstr("error: rank 2 failed: no progress for "));
  // The first of the others has said for whom it waits.
  EXPECT_THAT(run.output, HasSubstr("rank 0 has waited for "));
  EXPECT_THAT(run.output, HasSubstr("rank 2 is at: step 3, train actor, instruction 12"));
  EXPECT_THAT(run.output, Not(HasSubstr("rank 1 has waited for ")));
}

TEST(Failure, RanksThatWaitForEachOtherAreNamed) {
  const Ended run = run_scenario("circle");
  EXPECT_EQ(run.end, "exited with status 1") << run.output;
  EXPECT_EQ(count_of(run.output, "braid: error: "), 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("error: the job is stuck: ranks wait for each other"));
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(run.output,
                HasSubstr(cat("rank ", rank, ": step 3, train actor, instruction ", 10 + rank,
                              ", waiting: receive of a circle with rank ", (rank + 1) % 3)));
  expect_no_orphans(run.output);
}

TEST(Failure, LongWorkWithProgressIsLeftAlone) {
  const Ended run = run_scenario("busy");
  EXPECT_EQ(run.end, "exited with status 0") << run.output;
}

TEST(Failure, UnreachableMasterAndTakenPortAreSaid) {
  const auto store = Store::serve_local("other");
  ASSERT_TRUE(store.ok());
  Membership membership{.global_rank = 0,
                        .world_size = 2,
                        .local_rank = 0,
                        .local_size = 2,
                        .master_host = "127.0.0.1",
                        .master_port = (*store)->port(),
                        .started_by = "",
                        .attempt = ""};
  const auto taken = World::join(membership, {.join_s = 2});
  EXPECT_THAT(taken.status().message(), HasSubstr("Address already in use"));
  EXPECT_THAT(taken.status().message(), HasSubstr("choose another MASTER_PORT"));

  membership.global_rank = 1;
  membership.master_port = 1;  // nobody may serve there
  const auto unreachable = World::join(membership, {.join_s = 2});
  EXPECT_EQ(unreachable.status().code(), Code::kUnavailable);
  EXPECT_THAT(unreachable.status().message(), HasSubstr("no store at 127.0.0.1:1"));

  membership.global_rank = 0;
  membership.master_port = (*store)->port();
  membership.store_exists = true;
  const auto alone = World::join(membership, {.join_s = 1});
  EXPECT_THAT(alone.status().message(),
              HasSubstr(cat("rank 1 of 2 did not come to 127.0.0.1:", membership.master_port)));
}

// Whoever serves the store is connected to every rank twice, its launcher also by a pipe.
TEST(Failure, TooFewOpenFilesAreSaidAtTheStart) {
  Membership many;
  many.world_size = int64_t{1} << 40;
  for (const bool store_exists : {true, false}) {
    many.store_exists = store_exists;
    const int64_t files = 40 + 6 * 8 + 2 * (many.world_size - 8);
    EXPECT_THAT(World::join(many, {}).status().message(),
                HasSubstr(cat("up to ", store_exists ? files : files + 2 * many.world_size,
                              " files would be open at once")));
  }
  std::vector<std::string> argv = {"sh", "-c", "ulimit -n 200; exec \"$@\" 2>&1", "sh"};
  for (const std::string& word : scenario_argv("files")) argv.push_back(word);
  auto child = ChildProcess::start({argv});
  ASSERT_TRUE(child.ok());
  const Ended end = finish(**child);
  EXPECT_EQ(end.end, "exited with status 4") << end.output;
  EXPECT_THAT(end.output, HasSubstr("who starts 100 ranks: up to 340 files would be open at once"));
}

// A membership of two ranks at this port.
Membership one_of_two(int64_t rank, int64_t port, bool store_exists) {
  return {.global_rank = rank,
          .world_size = 2,
          .local_rank = rank,
          .local_size = 2,
          .master_host = "127.0.0.1",
          .master_port = port,
          .store_exists = store_exists,
          .started_by = "",
          .attempt = "run-0"};
}

// Somebody else came first as this rank.
TEST(Failure, ARankThatIsThereTwiceIsNamed) {
  const auto store = Store::serve_local("run-0");
  ASSERT_TRUE(store.ok());
  for (const int64_t rank : {0, 1})
    ASSERT_TRUE((*store)->set(process_key(rank), "another-machine 1 2").ok());
  for (const bool serves : {false, true}) {
    const auto twice =
        World::join(one_of_two(serves ? 0 : 1, (*store)->port(), !serves), {.join_s = 5});
    EXPECT_THAT(twice.status().message(),
                HasSubstr(cat("rank ", serves ? 0 : 1, " is there twice: a process of another")));
    EXPECT_THAT(twice.status().message(), HasSubstr("a RANK of its own"));
  }
  // Nothing of the first one was touched.
  EXPECT_EQ(*(*store)->wait(process_key(1), 1), "another-machine 1 2");
}

TEST(Failure, WhoeverWaitsSaysForWhom) {
  const auto store = Store::serve_local("run-0");
  ASSERT_TRUE(store.ok());
  testing::internal::CaptureStderr();
  const auto alone =
      World::join(one_of_two(0, (*store)->port(), true), {.join_s = 0.5, .notice_s = 0.1});
  EXPECT_EQ(alone.status().code(), Code::kDeadline);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(cat("rank 1 of 2 did not come to 127.0.0.1:", (*store)->port())));
  // A port that somebody else listens at, who never answers.
  const FileHandle socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(socket.get(), 8), 0);
  ASSERT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  testing::internal::CaptureStderr();
  const auto foreign =
      World::join(one_of_two(1, ntohs(address.sin_port), false), {.join_s = 1, .notice_s = 0.1});
  EXPECT_EQ(foreign.status().code(), Code::kUnavailable);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("where a program listens that serves no ranks"));
}

TEST(Failure, RecordsAreReadBackAndJunkIsRefused) {
  const RankFailure failure{3, "out of \"memory\"\n", "step 1", true};
  const auto again = parse_failure(failure_record(failure));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, failure);
  for (const char* junk :
       {"", "[]", "{}", "{\"rank\": \"x\", \"cause\": \"\", \"position\": \"\"}"})
    EXPECT_FALSE(parse_failure(junk).ok()) << junk;
}

TEST(Process, StateIsThatOfTheSystem) {
  EXPECT_EQ(process_state(process_identity()), ProcessState::kRunning);
  EXPECT_EQ(process_state("another-machine 1 2"), ProcessState::kElsewhere);
  const std::vector<std::string> own = split(process_identity(), ' ');
  EXPECT_EQ(process_state(cat(own[0], " ", own[1], " 1")), ProcessState::kGone);
}

// The installed headers of Gloo may belong to another version than the copy inside libtorch.
TEST(GlooBackend, DefinesNothingOfGloo) {
  const std::string object =
      join_path(parent_folder(self_path()), "CMakeFiles/braid_comm.dir/src/comm/gloo_backend.cc.o");
  if (!path_exists(object)) GTEST_SKIP() << "no object file of its own (unity build)";
  auto child = ChildProcess::start({{"nm", "-C", "--defined-only", object}});
  ASSERT_TRUE(child.ok());
  const Ended symbols = finish(**child);
  EXPECT_THAT(symbols.output, HasSubstr("connect_gloo"));
  for (const char* bad : {"vtable for gloo", "vtable for c10d::ProcessGroupGloo", " gloo::"})
    EXPECT_THAT(symbols.output, Not(HasSubstr(bad)));
}

}  // namespace
}  // namespace braid::inline comm
