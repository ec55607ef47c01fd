#include "host/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/text.h"

namespace braid::inline host {
namespace {

// For answers that must come: long enough for a machine that does ten things at once.
Deadline patience() { return deadline_in(120); }

using testing::HasSubstr;

std::unique_ptr<ChildProcess> start_shell(const std::string& script, int64_t memory_bytes = 0) {
  auto started = ChildProcess::start({{"/bin/sh", "-c", script}, memory_bytes});
  EXPECT_TRUE(started.ok()) << started.status().message();
  return std::move(started).value();
}

// True once no process has this id; a killed process of another parent vanishes a moment later. A
// zombie counts as gone: containers may have no init that reaps it.
bool is_gone(pid_t pid) {
  for (const Deadline end = patience(); std::chrono::steady_clock::now() < end;) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
    std::ifstream file(cat("/proc/", pid, "/stat"));
    std::string id, name, state;
    if (!(file >> id >> name >> state) || state == "Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST(ChildProcess, EchoesLinesThroughTheShell) {
  const auto cat_process = start_shell("exec cat");
  ASSERT_TRUE(cat_process->write_line("one", patience()).ok());
  ASSERT_TRUE(cat_process->write_line("", patience()).ok());
  EXPECT_EQ(*cat_process->read_line(patience()), "one");
  EXPECT_EQ(*cat_process->read_line(patience()), "");
  cat_process->close_input();
  EXPECT_EQ(cat_process->read_line(patience()).status().code(), Code::kUnavailable);
  EXPECT_EQ(*cat_process->wait(patience()), "exited with status 0");
}

TEST(ChildProcess, LineLargerThanEveryPipeBufferPasses) {
  const auto cat_process = start_shell("exec cat");
  const std::string line(3 << 20, 'x');
  ASSERT_TRUE(cat_process->write_line(line, patience()).ok());
  EXPECT_TRUE(*cat_process->read_line(patience()) == line);
}

TEST(ChildProcess, DeadlineOfASilentChild) {
  const auto silent = start_shell("exec sleep 60");
  EXPECT_EQ(silent->read_line(deadline_in(0.05)).status().code(), Code::kDeadline);
  EXPECT_EQ(silent->wait(deadline_in(0.01)).status().code(), Code::kDeadline);
}

TEST(ChildProcess, WritingToAnEndedChildIsUnavailableAndRaisesNoSignal) {
  const auto ended = start_shell("echo last words >&2; exit 3");
  EXPECT_EQ(*ended->wait(patience()), "exited with status 3");
  // The process that reported the exit may hold the pipe a moment longer: lines still fit into it.
  Status written;
  for (int tries = 0; tries < 1000 && written.ok(); ++tries) {
    written = ended->write_line("x", patience());
    ::usleep(1000);
  }
  EXPECT_EQ(written.code(), Code::kUnavailable);
  EXPECT_EQ(ended->take_errors(), "last words\n");
}

TEST(ChildProcess, MissingProgramIsNotFound) {
  const auto started = ChildProcess::start({{"/no/such/program"}, 0});
  EXPECT_EQ(started.status().code(), Code::kNotFound);
  EXPECT_THAT(started.status().message(), HasSubstr("/no/such/program"));
  EXPECT_FALSE(ChildProcess::start({}).ok());
}

TEST(ChildProcess, MemoryLimitStopsAnAllocation) {
  const std::string script = "python3 -c \"b = bytearray(1 << 29)\" && echo fits || echo refused";
  EXPECT_EQ(*start_shell(script)->read_line(patience()), "fits");
  const auto limited = start_shell("read go; " + script, int64_t{256} << 20);
  ASSERT_TRUE(limited->write_line("go", patience()).ok());
  EXPECT_EQ(*limited->read_line(patience()), "refused");
}

TEST(ChildProcess, KillTakesTheGrandchildrenToo) {
  const auto parent = start_shell("sleep 60 & echo $!; wait");
  int64_t grandchild = 0;
  ASSERT_TRUE(parse_int(*parent->read_line(patience()), &grandchild));
  parent->kill();
  EXPECT_TRUE(is_gone(static_cast<pid_t>(grandchild)));
}

TEST(ChildProcess, NothingOutlivesAKilledOwner) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    const auto child = ChildProcess::start({{"/bin/sh", "-c", "sleep 60 & echo $!; wait"}, 0});
    int64_t ids[2] = {(*child)->pid(), 0};
    parse_int(*(*child)->read_line(patience()), &ids[1]);
    if (::write(ends[1], ids, sizeof ids) != sizeof ids) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  int64_t ids[2] = {};
  ASSERT_EQ(::read(ends[0], ids, sizeof ids), static_cast<ssize_t>(sizeof ids));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_TRUE(is_gone(static_cast<pid_t>(ids[0])));
  EXPECT_TRUE(is_gone(static_cast<pid_t>(ids[1])));
}

}  // namespace
}  // namespace braid::inline host
