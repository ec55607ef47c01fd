// A child process spoken to over pipes. The child and everything it starts form one process group
// that never outlives this process: the group is killed by kill(), by the destructor, and, when
// this process dies without running it (even by SIGKILL), by a small guard process. Every wait has
// a deadline. One thread at a time may use a ChildProcess.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace braid::inline host {

using Deadline = std::chrono::steady_clock::time_point;

// The moment that lies `seconds` ahead.
Deadline deadline_in(double seconds);

struct ProcessOptions {
  std::vector<std::string> argv;   // program (searched in PATH) and arguments
  int64_t memory_limit_bytes = 0;  // address space (RLIMIT_AS) of each process; 0 = none
};

// A file descriptor that closes itself; -1 is "none".
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  ~FileHandle() { close(); }
  void close();
  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

class ChildProcess {
 public:
  // Starts argv; a program that does not exist is kNotFound.
  static Result<std::unique_ptr<ChildProcess>> start(const ProcessOptions& options);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { kill(); }

  // Asked about ten times a second during write_line and read_line; once it says true they end with
  // kStopped. An empty function is never asked.
  void set_interrupt(std::function<bool()> interrupted) { interrupted_ = std::move(interrupted); }

  // Sends line and a newline. kDeadline: not taken in time; kUnavailable: the child no longer
  // reads.
  Status write_line(std::string_view line, Deadline deadline);

  // The next line of the child's standard output, without the newline. kDeadline: none in time;
  // kUnavailable: the output ended; kInvalidInput: a line longer than 64 MiB.
  Result<std::string> read_line(Deadline deadline);

  // Ends the child's input, for programs that finish at its end.
  void close_input() { input_.close(); }

  // Waits for the end: "exited with status 3" or "killed by signal 9 (Killed)"; kDeadline if it is
  // still running.
  Result<std::string> wait(Deadline deadline);

  // What the child wrote to standard error since the last call: at most the last 8 KiB of it.
  std::string take_errors();

  // Kills the whole group and reaps the child; harmless when it has ended.
  void kill();

  pid_t pid() const { return child_; }

 private:
  ChildProcess() = default;
  // Moves bytes through the three pipes until something happened or the deadline passed.
  Status pump(Deadline deadline);
  void send_pending();

  std::function<bool()> interrupted_;
  FileHandle input_, output_, errors_;
  FileHandle guard_life_;  // its end tells the guard that this process is gone
  pid_t guard_ = -1;       // leader of the process group
  pid_t child_ = -1;
  std::string pending_;  // not yet taken by the child
  std::string received_, error_text_;
  size_t searched_ = 0;  // bytes of received_ known to hold no newline
  std::string ending_;   // filled once the child is reaped
};

}  // namespace braid::inline host
