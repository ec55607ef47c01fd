#include "host/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.h"

namespace braid::inline host {
namespace {

constexpr size_t kMaxLineBytes = size_t{64} << 20;
constexpr size_t kMaxErrorBytes = 8 << 10;
constexpr double kInterruptSeconds = 0.1;  // between two questions whether a wait is to end

struct Pipe {
  FileHandle reader, writer;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return io_error(cat("cannot create a pipe: ", std::strerror(errno)));
  return Pipe{FileHandle(ends[0]), FileHandle(ends[1])};
}

// Arguments of posix_spawn: which descriptors the child gets, its group and its signals.
class SpawnPlan {
 public:
  explicit SpawnPlan(pid_t group) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigaddset(&signals, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setpgroup(&attributes_, group);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  void connect(int fd, int target) { posix_spawn_file_actions_adddup2(&actions_, fd, target); }
  void discard(int target) {
    posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", O_WRONLY, 0);
  }

  Result<pid_t> run(const std::vector<std::string>& argv) const {
    std::vector<char*> pointers;
    for (const std::string& argument : argv)
      pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    pid_t pid = -1;
    const int error =
        ::posix_spawnp(&pid, pointers[0], &actions_, &attributes_, pointers.data(), environ);
    if (error == 0) return pid;
    const std::string message = cat("cannot start '", argv[0], "': ", std::strerror(error));
    return error == ENOENT || error == EACCES ? not_found(message) : io_error(message);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Starts the leader of a new process group, which waits for the end of `life` and then kills the
// group.
Result<pid_t> start_guard(int life) {
  SpawnPlan plan(0);
  plan.connect(life, STDIN_FILENO);
  plan.discard(STDOUT_FILENO);
  plan.discard(STDERR_FILENO);
  return plan.run({"/bin/sh", "-c", "read line; kill -9 0"});
}

void set_nonblocking(const FileHandle& file) {
  ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) | O_NONBLOCK);
}

// Appends what can be read now; closes the handle at the end of the stream.
void drain(FileHandle& file, std::string& text) {
  char buffer[1 << 16];
  const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
  if (count > 0) text.append(buffer, static_cast<size_t>(count));
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) file.close();
}

// write() that reports a closed pipe as EPIPE instead of raising SIGPIPE in this thread.
ssize_t write_quietly(int fd, std::string_view bytes) {
  sigset_t pipe_signal, before, waiting;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&waiting);
  const bool was_waiting = sigismember(&waiting, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t count = ::write(fd, bytes.data(), bytes.size());
  const int error = errno;
  if (count < 0 && error == EPIPE && !was_waiting) {
    const timespec no_wait = {};
    sigtimedwait(&pipe_signal, nullptr, &no_wait);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return count;
}

std::string describe_ending(int status) {
  if (WIFEXITED(status)) return cat("exited with status ", WEXITSTATUS(status));
  const int signal_number = WTERMSIG(status);
  return cat("killed by signal ", signal_number, " (", ::strsignal(signal_number), ")");
}

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

}  // namespace

Deadline deadline_in(double seconds) {
  constexpr double kLongestSeconds = 1e8;  // the clock counts nanoseconds in 64 bits
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(std::min(seconds, kLongestSeconds)));
}

FileHandle::FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void FileHandle::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(const ProcessOptions& options) {
  if (options.argv.empty()) return invalid_input("no program to start");
  BRAID_ASSIGN(Pipe life, make_pipe());
  BRAID_ASSIGN(Pipe input, make_pipe());
  BRAID_ASSIGN(Pipe output, make_pipe());
  BRAID_ASSIGN(Pipe errors, make_pipe());
  std::unique_ptr<ChildProcess> process(new ChildProcess);
  BRAID_ASSIGN(process->guard_, start_guard(life.reader.get()));
  process->guard_life_ = std::move(life.writer);
  SpawnPlan plan(process->guard_);
  plan.connect(input.reader.get(), STDIN_FILENO);
  plan.connect(output.writer.get(), STDOUT_FILENO);
  plan.connect(errors.writer.get(), STDERR_FILENO);
  BRAID_ASSIGN(process->child_, plan.run(options.argv));
  if (options.memory_limit_bytes > 0) {
    const auto bytes = static_cast<rlim_t>(options.memory_limit_bytes);
    const rlimit limit = {bytes, bytes};
    ::prlimit(process->child_, RLIMIT_AS, &limit, nullptr);
  }
  process->input_ = std::move(input.writer);
  process->output_ = std::move(output.reader);
  process->errors_ = std::move(errors.reader);
  for (const FileHandle* file : {&process->input_, &process->output_, &process->errors_})
    set_nonblocking(*file);
  return process;
}

void ChildProcess::send_pending() {
  const ssize_t count = write_quietly(input_.get(), pending_);
  if (count > 0) pending_.erase(0, static_cast<size_t>(count));
  if (count < 0 && errno != EAGAIN && errno != EINTR) input_.close();
}

Status ChildProcess::pump(Deadline deadline) {
  pollfd files[3] = {
      {pending_.empty() ? -1 : input_.get(), POLLOUT, 0},
      {output_.get(), POLLIN, 0},
      {errors_.get(), POLLIN, 0},
  };
  if (interrupted_ && interrupted_()) return {Code::kStopped, "interrupted"};
  const Deadline until =
      interrupted_ ? std::min(deadline, deadline_in(kInterruptSeconds)) : deadline;
  const int ready = ::poll(files, 3, milliseconds_until(until));
  if (ready < 0 && errno != EINTR) return io_error(cat("poll: ", std::strerror(errno)));
  if (ready == 0 && until < deadline) return ok_status();
  if (ready == 0) return {Code::kDeadline, "no answer in time"};
  if (ready < 0) return ok_status();
  if (files[0].revents != 0) send_pending();
  if (files[1].revents != 0) drain(output_, received_);
  if (files[2].revents != 0) drain(errors_, error_text_);
  if (error_text_.size() > kMaxErrorBytes)
    error_text_.erase(0, error_text_.size() - kMaxErrorBytes);
  return ok_status();
}

Status ChildProcess::write_line(std::string_view line, Deadline deadline) {
  pending_.append(line).push_back('\n');
  while (!pending_.empty()) {
    if (!input_.is_open()) return {Code::kUnavailable, "it no longer reads its input"};
    BRAID_TRY(pump(deadline));
  }
  return ok_status();
}

Result<std::string> ChildProcess::read_line(Deadline deadline) {
  while (true) {
    const size_t end = received_.find('\n', searched_);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      searched_ = 0;
      return line;
    }
    searched_ = received_.size();
    if (searched_ > kMaxLineBytes) return invalid_input("a line of its output exceeds 64 MiB");
    if (!output_.is_open()) return Status(Code::kUnavailable, "its output ended");
    BRAID_TRY(pump(deadline));
  }
}

Result<std::string> ChildProcess::wait(Deadline deadline) {
  while (ending_.empty()) {
    int status = 0;
    if (::waitpid(child_, &status, WNOHANG) == child_) {
      ending_ = describe_ending(status);
      child_ = -1;
      break;
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return Status(Code::kDeadline, "still running");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ending_;
}

std::string ChildProcess::take_errors() {
  while (errors_.is_open()) {
    const size_t before = error_text_.size();
    drain(errors_, error_text_);
    if (error_text_.size() == before) break;
  }
  if (error_text_.size() > kMaxErrorBytes)
    error_text_.erase(0, error_text_.size() - kMaxErrorBytes);
  return std::exchange(error_text_, std::string());
}

void ChildProcess::kill() {
  // The guard is reaped last, so its group id cannot be reused before the group is gone.
  if (guard_ > 0) ::kill(-guard_, SIGKILL);
  int status = 0;
  if (child_ > 0 && ::waitpid(child_, &status, 0) == child_) ending_ = describe_ending(status);
  if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
  child_ = guard_ = -1;
  for (FileHandle* file : {&input_, &output_, &errors_, &guard_life_}) file->close();
}

}  // namespace braid::inline host
