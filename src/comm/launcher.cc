#include "comm/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "base/text.h"
#include "comm/beat.h"
#include "comm/failure.h"
#include "comm/membership.h"
#include "comm/position.h"
#include "comm/store.h"
#include "comm/watchdog.h"
#include "host/machine.h"
#include "host/process.h"

extern char** environ;

namespace braid::inline comm {
namespace {

constexpr const char* kErrorPrefix = "braid: error: ";

// Of a launcher by itself; and for each rank its output, and what it has connected to the store.
constexpr int64_t kFilesOfALauncher = 40, kFilesOfALaunched = 3;

std::atomic<int> g_signal{0};  // to pass on
void remember_signal(int number) {
  if (number == SIGHUP) ::signal(SIGPIPE, SIG_IGN);  // whoever read our output may be gone too
  g_signal = number;
}

// Passes SIGTERM, SIGINT and SIGHUP on for its lifetime; the last not where it is ignored, as under
// nohup.
class SignalRelay {
 public:
  SignalRelay() {
    g_signal = 0;
    struct sigaction action {};
    action.sa_handler = remember_signal;
    for (size_t i = 0; i < old_.size(); ++i) {
      ::sigaction(kPassedOn[i], nullptr, &old_[i]);
      const bool ignored = kPassedOn[i] == SIGHUP && old_[i].sa_handler == SIG_IGN;
      if (!ignored) ::sigaction(kPassedOn[i], &action, nullptr);
    }
  }
  ~SignalRelay() {
    for (size_t i = 0; i < old_.size(); ++i) ::sigaction(kPassedOn[i], &old_[i], nullptr);
  }
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

 private:
  static constexpr std::array<int, 3> kPassedOn = {SIGTERM, SIGINT, SIGHUP};
  std::array<struct sigaction, 3> old_{};
};

// One running rank and the lines that it writes.
struct LaunchedRank {
  int64_t rank = 0;
  pid_t pid = -1;
  FileHandle output;
  std::string partial;
  std::optional<PositionView> position;  // once it has a board
  bool ended = false;
};

struct Pipe {
  FileHandle read, write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return io_error(cat("pipe: ", std::strerror(errno)));
  return Pipe{FileHandle(ends[0]), FileHandle(ends[1])};
}

using Variables = std::map<std::string, std::string>;

Variables variables_of(const LaunchOptions& options, int64_t rank, int64_t port) {
  Variables out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    out[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  // Only what the user has not set.
  out.emplace("OMP_NUM_THREADS",
              std::to_string(threads_per_rank(processor().cores, options.ranks)));
  for (const auto& [name, value] : options.environment) out[name] = value;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) out.erase(name);
  out["RANK"] = out["LOCAL_RANK"] = std::to_string(rank);
  out["WORLD_SIZE"] = out["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  out["MASTER_ADDR"] = "127.0.0.1";
  out["MASTER_PORT"] = std::to_string(port);
  out["BRAID_LAUNCHER"] = std::to_string(::getpid());
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// After fork: only calls that are safe between fork and exec.
[[noreturn]] void become_rank(pid_t parent, int output, bool first, char** argv, char** variables) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::dup2(output, STDERR_FILENO);
  if (!first) ::dup2(output, STDOUT_FILENO);
  ::execve(argv[0], argv, variables);
  ::_exit(127);
}

Result<LaunchedRank> start_rank(const LaunchOptions& options, int64_t rank, int64_t port) {
  BRAID_ASSIGN(Pipe pipe, make_pipe());
  std::vector<std::string> argv = options.argv, variables;
  for (const auto& [name, value] : variables_of(options, rank, port))
    variables.push_back(cat(name, "=", value));
  const std::vector<char*> arg_pointers = pointers(argv), variable_pointers = pointers(variables);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return io_error(cat("fork: ", std::strerror(errno)));
  if (pid == 0)
    become_rank(parent, pipe.write.get(), rank == 0, const_cast<char**>(arg_pointers.data()),
                const_cast<char**>(variable_pointers.data()));
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  LaunchedRank out;
  out.rank = rank;
  out.pid = pid;
  out.output = std::move(pipe.read);
  return out;
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, std::unique_ptr<Store> store)
      : options_(options), store_(std::move(store)) {}
  ~Launcher() { kill_all(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  Status start() {
    for (int64_t rank = 0; rank < options_.ranks; ++rank) {
      BRAID_ASSIGN(LaunchedRank launched, start_rank(options_, rank, store_->port()));
      ranks_.push_back(std::move(launched));
    }
    return {};
  }

  int run() {
    while (running() > 0) {
      if (const int number = g_signal.exchange(0); number != 0) signal_all(number);
      pass_output();
      for (LaunchedRank& rank : ranks_)
        if (!rank.ended && !rank.position) rank.position = PositionView::open(rank.pid);
      for (LaunchedRank& rank : ranks_) reap(rank);
      if (exit_code_ != 0 && std::chrono::steady_clock::now() > kill_at_) kill_all();
    }
    for (LaunchedRank& rank : ranks_) pass_lines(rank);
    return exit_code_;
  }

 private:
  int64_t running() const {
    int64_t count = 0;
    for (const LaunchedRank& rank : ranks_) count += rank.ended ? 0 : 1;
    return count;
  }

  void signal_all(int number) {
    for (const LaunchedRank& rank : ranks_)
      if (!rank.ended) ::kill(rank.pid, number);
  }

  void kill_all() {
    signal_all(SIGKILL);
    for (LaunchedRank& rank : ranks_)
      if (!rank.ended) {
        ::waitpid(rank.pid, nullptr, 0);
        rank.ended = true;
      }
  }

  void pass_output() {
    std::vector<pollfd> waits;
    for (const LaunchedRank& rank : ranks_)
      if (rank.output.is_open()) waits.push_back({rank.output.get(), POLLIN, 0});
    ::poll(waits.data(), waits.size(), static_cast<int>(1000 * options_.look_s));
    for (LaunchedRank& rank : ranks_) pass_lines(rank);
  }

  void pass_lines(LaunchedRank& rank) {
    std::array<char, 4096> buffer;
    while (rank.output.is_open()) {
      const ssize_t size = ::read(rank.output.get(), buffer.data(), buffer.size());
      if (size < 0) return;  // nothing at the moment
      if (size == 0) {
        rank.output.close();
        if (!rank.partial.empty()) print_line(rank, std::exchange(rank.partial, ""));
        return;
      }
      rank.partial.append(buffer.data(), size);
      for (size_t end; (end = rank.partial.find('\n')) != std::string::npos;) {
        print_line(rank, rank.partial.substr(0, end));
        rank.partial.erase(0, end + 1);
      }
    }
  }

  void print_line(const LaunchedRank& rank, const std::string& line) {
    const bool error = line.rfind(kErrorPrefix, 0) == 0;
    if (error && std::exchange(error_printed_, true)) return;
    const std::string prefix = rank.rank == 0 || error ? "" : cat("[rank ", rank.rank, "] ");
    std::fprintf(stderr, "%s%s\n", prefix.c_str(), line.c_str());
  }

  void reap(LaunchedRank& rank) {
    int status = 0;
    if (rank.ended || ::waitpid(rank.pid, &status, WNOHANG) != rank.pid) return;
    rank.ended = true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    pass_lines(rank);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (exit_code_ == 0) {
      kill_at_ = deadline_in(options_.grace_s);
      report(rank, status);
      exit_code_ = code;
    }
    // The others may end sooner than the rank that made them end.
    if (rank.rank == failed_rank_) exit_code_ = code;
  }

  // Tells the other ranks, and the user where the rank could not.
  void report(const LaunchedRank& rank, int status) {
    const std::string cause =
        WIFSIGNALED(status)
            ? cat("killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")")
            : cat("ended with exit code ", WEXITSTATUS(status));
    std::string position =
        rank.position ? rank.position->text() : last_position(*store_, rank.rank);
    if (position.empty()) position = kBeforeMeeting;
    const RankFailure failure{rank.rank, cause, position};
    const auto first = store_->set_once(kFailureKey, failure_record(failure));
    const auto known = first.ok() ? parse_failure(*first) : Result<RankFailure>(failure);
    failed_rank_ = known.ok() ? known->global_rank : rank.rank;
    const bool untold = first.ok() && *first == failure_record(failure);
    if (untold && !error_printed_) print_line(rank, cat(kErrorPrefix, failure_text(failure)));
  }

  const LaunchOptions& options_;
  std::unique_ptr<Store> store_;
  std::vector<LaunchedRank> ranks_;
  int exit_code_ = 0;
  int64_t failed_rank_ = -1;  // the one whose failure ends the others
  bool error_printed_ = false;
  Deadline kill_at_;
};

}  // namespace

Result<int> launch_ranks(const LaunchOptions& options) {
  BRAID_CHECK(options.ranks > 0 && !options.argv.empty(), "ranks of a program");
  BRAID_TRY(check_open_files(kFilesOfALauncher + kFilesOfALaunched * options.ranks)
                .at(cat("who starts ", options.ranks, " ranks")));
  const SignalRelay relay;
  // The attempt that membership.h reads where no restarting starter is named.
  BRAID_ASSIGN(std::unique_ptr<Store> store, Store::serve_local("run-0"));
  Launcher launcher(options, std::move(store));
  BRAID_TRY(launcher.start());
  return launcher.run();
}

}  // namespace braid::inline comm
