#include "host/sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "host/process.h"
#include "host/sandbox_filter.h"

namespace braid::inline host {
namespace {

constexpr uid_t kNobody = 65534;
constexpr double kGrace_s = 5;       // beyond the deadline, for setting up and handing back
constexpr double kBackground_s = 3;  // that programs in the background have after the last line
constexpr int kPoll_ms = 10;
constexpr int64_t kSpareBytes = int64_t{64} << 20;  // of the root, for what the program writes
constexpr int64_t kMostCollected = int64_t{64} << 20;
constexpr const char* kMountPoint = "/tmp";  // covered by the root while it is filled
constexpr const char* kFailed = "sandbox-failed";

// Frames on the pipe to the caller: name, size and content.
void send_frame(int fd, const std::string& name, const std::string& content) {
  std::string frame = cat(name, '\0', content.size(), '\0');
  frame += content;
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t n = ::write(fd, frame.data() + sent, frame.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(1);
    sent += static_cast<size_t>(n);
  }
}

[[noreturn]] void fail(int fd, const char* step) {
  send_frame(fd, kFailed, cat(step, ": ", std::strerror(errno)));
  ::_exit(1);
}

void check(bool ok, int fd, const char* step) {
  if (!ok) fail(fd, step);
}

bool write_text(const std::string& path, const std::string& text, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return false;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return ::close(fd) == 0 && done == text.size();
}

bool make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

// Who runs: root drops to nobody. Others get a name space of users, in which they keep their id and
// may mount.
struct Identity {
  bool user_space;
  uid_t uid;
  gid_t gid;
};

void become(const Identity& who, int report) {
  if (::getuid() == who.uid && ::getuid() != 0) return;
  check(::setgroups(0, nullptr) == 0, report, "setgroups");
  check(::setresgid(who.gid, who.gid, who.gid) == 0, report, "setresgid");
  check(::setresuid(who.uid, who.uid, who.uid) == 0, report, "setresuid");
}

void enter_namespaces(const Identity& who, int report) {
  int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  if (who.user_space) {
    become(who, report);
    ::prctl(PR_SET_DUMPABLE, 1);  // the maps of ids belong to this process again
    flags |= CLONE_NEWUSER;
  }
  check(::unshare(flags) == 0, report, "unshare");
  if (!who.user_space) return;
  check(write_text("/proc/self/setgroups", "deny", 0), report, "setgroups of the user namespace");
  check(write_text("/proc/self/uid_map", cat(who.uid, " ", who.uid, " 1"), 0), report, "uid_map");
  check(write_text("/proc/self/gid_map", cat(who.gid, " ", who.gid, " 1"), 0), report, "gid_map");
}

// A new root in memory; the old one is gone afterwards. Without /proc (containers may hide parts of
// theirs and then forbid another) a program cannot name its own descriptors, and that is all.
void change_root(const SandboxJob& job, int report) {
  int64_t bytes = kSpareBytes;
  for (const auto& [path, file] : job.files)
    bytes += static_cast<int64_t>(file.content.size()) + 8192;
  const std::string size =
      cat("mode=0777,size=", bytes, ",nr_inodes=", job.files.size() * 4 + 20000);
  check(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, report, "mount /");
  check(::mount("tmpfs", kMountPoint, "tmpfs", MS_NOSUID | MS_NODEV, size.c_str()) == 0, report,
        "mount tmpfs");
  check(::chdir(kMountPoint) == 0, report, "chdir");
  check(::mkdir("proc", 0555) == 0 && ::mkdir("dev", 0755) == 0, report, "mkdir");
  (void)::mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, nullptr);
  check(write_text("dev/null", "", 0666), report, "/dev/null");
  check(::mount("/dev/null", "dev/null", nullptr, MS_BIND, nullptr) == 0, report, "/dev/null");
  check(::symlink("/proc/self/fd", "dev/fd") == 0, report, "/dev/fd");
  check(::symlink("/proc/self/fd/1", "dev/stdout") == 0, report, "/dev/stdout");
  check(::symlink("/proc/self/fd/2", "dev/stderr") == 0, report, "/dev/stderr");
  check(::symlink("/proc/self/fd/0", "dev/stdin") == 0, report, "/dev/stdin");
  check(::mkdir("dev/shm", 0777) == 0 && ::chmod("dev/shm", 01777) == 0, report, "/dev/shm");
  check(::syscall(SYS_pivot_root, ".", ".") == 0, report, "pivot_root");
  check(::umount2(".", MNT_DETACH) == 0 && ::chdir("/") == 0, report, "umount of the old root");
}

void fill_root(const SandboxJob& job, int report) {
  for (const std::string& folder : job.folders)
    check(make_folders(folder), report, "mkdir in the new root");
  for (const auto& [path, target] : job.links) {
    const size_t slash = path.rfind('/');
    check(slash == 0 || make_folders(path.substr(0, slash)), report, "mkdir in the new root");
    check(::symlink(target.c_str(), path.c_str()) == 0, report, "symlink in the new root");
  }
  for (const auto& [path, file] : job.files) {
    const size_t slash = path.rfind('/');
    check(slash == 0 || make_folders(path.substr(0, slash)), report, "mkdir in the new root");
    check(write_text(path, file.content, file.executable ? 0755 : 0644), report,
          "write in the new root");
  }
}

void set_limit(int what, int64_t value, int report) {
  rlimit limit{};
  check(::getrlimit(static_cast<__rlimit_resource>(what), &limit) == 0, report, "getrlimit");
  const auto least = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(value));
  limit = {least, least};
  check(::setrlimit(static_cast<__rlimit_resource>(what), &limit) == 0, report, "setrlimit");
}

void set_limits(const SandboxJob& job, int report) {
  set_limit(RLIMIT_AS, job.process_bytes, report);
  set_limit(RLIMIT_FSIZE, job.file_bytes, report);
  set_limit(RLIMIT_CORE, 0, report);
  set_limit(RLIMIT_NOFILE, 256, report);
  set_limit(RLIMIT_MEMLOCK, 0, report);
  set_limit(RLIMIT_MSGQUEUE, 0, report);
  set_limit(RLIMIT_CPU, static_cast<int64_t>(job.deadline_s) + 1, report);
  set_limit(RLIMIT_NPROC, job.processes, report);
}

void give_up_rights(const std::vector<sock_filter>& filter, int report) {
  for (int capability = 0; capability < 64; ++capability)
    (void)::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  check(clear_capabilities(), report, "capset");
  check(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, report, "no_new_privs");
  check(install_filter(filter), report, "seccomp");
}

void open_as(const std::string& path, int flags, int fd, int report) {
  const int opened = ::open(path.c_str(), flags, 0644);
  check(opened >= 0 && ::dup2(opened, fd) == fd, report, "open of a standard stream");
  if (opened != fd) ::close(opened);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// The untrusted program itself.
[[noreturn]] void start_program(const SandboxJob& job, const std::vector<sock_filter>& filter,
                                int report) {
  ::setsid();
  ::umask(0022);
  check(::chdir(job.work.c_str()) == 0, report, "chdir to the project");
  open_as("/dev/null", O_RDONLY, 0, report);
  open_as("/dev/null", O_WRONLY, 1, report);
  open_as(job.errors, O_WRONLY | O_CREAT | O_APPEND, 2, report);
  if (!job.trace.empty())
    open_as(job.trace, O_WRONLY | O_CREAT | O_APPEND, kTraceDescriptor, report);
  const std::vector<char*> argv = pointers(job.argv), environment = pointers(job.environment);
  for (int signal = 1; signal < NSIG; ++signal) (void)::signal(signal, SIG_DFL);
  (void)::signal(SIGXFSZ, SIG_IGN);  // a file that grows too long ends, not the program
  set_limits(job, report);
  give_up_rights(filter, report);
  ::execve(argv[0], argv.data(), environment.data());
  fail(report, "exec");
}

double seconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Bytes that all processes of the sandbox hold; 0 where /proc could not be had.
int64_t resident_bytes() {
  int64_t pages = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    char text[128] = {};
    const int fd = ::open(cat("/proc/", name, "/statm").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    const std::vector<std::string> fields = split(std::string(text, n > 0 ? n : 0), ' ');
    int64_t held = 0;
    if (fields.size() > 1 && parse_int(fields[1], &held)) pages += held;
  }
  return pages * ::sysconf(_SC_PAGESIZE);
}

std::string ending_text(int status) {
  if (WIFEXITED(status)) return cat("exited with status ", WEXITSTATUS(status));
  return cat("was killed by signal ", WTERMSIG(status));
}

struct Watch {
  std::string ending, stopped;
};

// Until the program and what it left in the background have ended, or a limit is reached. This is
// the first process of its namespace: all others end with it.
Watch watch_over(const SandboxJob& job, pid_t program) {
  Watch out;
  const double end = seconds_now() + job.deadline_s;
  double background_end = end;
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended == program) {
      out.ending = ending_text(status);
      background_end = std::min(end, seconds_now() + kBackground_s);
    }
    if (ended > 0) continue;
    if (ended < 0 && errno == ECHILD) return out;
    const double now = seconds_now();
    if (out.ending.empty() && now > end)
      out.stopped = cat("is not done after ", format_double(job.deadline_s), " s");
    if (resident_bytes() > job.memory_bytes)
      out.stopped = cat("takes more than ", job.memory_bytes >> 20, " MiB of memory");
    if (!out.stopped.empty() || now > background_end) return out;
    ::poll(nullptr, 0, kPoll_ms);
  }
}

void end_all() {
  ::kill(-1, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

void hand_back(const std::string& folder, int report) {
  std::error_code error;
  int64_t total = 0;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const int fd = ::open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info {};
    if (fd < 0) continue;
    if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
      std::string content(static_cast<size_t>(info.st_size), '\0');
      const ssize_t n = ::read(fd, content.data(), content.size());
      content.resize(n > 0 ? static_cast<size_t>(n) : 0);
      total += static_cast<int64_t>(content.size());
      if (total <= kMostCollected) send_frame(report, entry->path().filename().string(), content);
    }
    ::close(fd);
  }
}

void close_others(int kept) {
  for (int fd = 0; fd < 3; ++fd) {
    ::close(fd);
    ::open("/dev/null", O_RDWR);  // the lowest one that is free
  }
  const bool before =
      kept == 3 || ::syscall(SYS_close_range, 3U, static_cast<unsigned>(kept - 1), 0U) == 0;
  if (!before || ::syscall(SYS_close_range, static_cast<unsigned>(kept + 1), ~0U, 0U) != 0)
    for (int fd = 3; fd < 65536; ++fd)
      if (fd != kept) ::close(fd);
}

// The first process of the namespaces.
[[noreturn]] void run_inside(const SandboxJob& job, const Identity& who,
                             const std::vector<sock_filter>& filter, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  change_root(job, report);
  if (!who.user_space) become(who, report);
  ::prctl(PR_SET_DUMPABLE, 0);  // what it watches may not look into it
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::umask(0);
  fill_root(job, report);
  const pid_t program = ::fork();
  check(program >= 0, report, "fork");
  if (program == 0) start_program(job, filter, report);
  const Watch watch = watch_over(job, program);
  end_all();
  hand_back(job.collected, report);
  send_frame(report, "/ending", watch.ending);
  send_frame(report, "/stopped", watch.stopped);
  ::_exit(0);
}

[[noreturn]] void run_outside(const SandboxJob& job, const Identity& who,
                              const std::vector<sock_filter>& filter, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  if (report < 3 || ::fcntl(report, F_SETFD, FD_CLOEXEC) != 0) ::_exit(1);
  close_others(report);
  enter_namespaces(who, report);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of the user takes it away
  const pid_t first = ::fork();
  check(first >= 0, report, "fork");
  if (first == 0) run_inside(job, who, filter, report);
  while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

// All that comes until the end of the pipe, or nothing more after the deadline.
std::string read_all(int fd, Deadline deadline) {
  std::string out;
  std::vector<char> buffer(1 << 16);
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, kPoll_ms * 10) <= 0) continue;
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return out;
    out.append(buffer.data(), static_cast<size_t>(n));
  }
  return out;
}

std::map<std::string, std::string> frames(const std::string& text) {
  std::map<std::string, std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t name = text.find('\0', at);
    const size_t number = name == std::string::npos ? name : text.find('\0', name + 1);
    int64_t size = 0;
    if (number == std::string::npos ||
        !parse_int(text.substr(name + 1, number - name - 1), &size) ||
        size > static_cast<int64_t>(text.size() - number - 1))
      break;
    out[text.substr(at, name - at)] = text.substr(number + 1, static_cast<size_t>(size));
    at = number + 1 + static_cast<size_t>(size);
  }
  return out;
}

Result<SandboxResult> run_as(const SandboxJob& job, const Identity& who) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Status(Code::kUnavailable, cat("pipe: ", std::strerror(errno)));
  FileHandle output(ends[0]), input(ends[1]);
  const std::vector<sock_filter> filter = call_filter();
  const pid_t child = ::fork();
  if (child < 0) return Status(Code::kUnavailable, cat("fork: ", std::strerror(errno)));
  if (child == 0) run_outside(job, who, filter, input.get());
  input.close();
  std::map<std::string, std::string> parts =
      frames(read_all(output.get(), deadline_in(job.deadline_s + kGrace_s)));
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (const auto failed = parts.find(kFailed); failed != parts.end())
    return Status(Code::kUnavailable, cat("no sandbox can be had here (", failed->second, ")"));
  if (parts.count("/ending") == 0)
    return Status(Code::kUnavailable, "no sandbox can be had here (it ended without a word)");
  SandboxResult out;
  out.ending = parts["/ending"], out.stopped = parts["/stopped"];
  parts.erase("/ending"), parts.erase("/stopped");
  out.files = std::move(parts);
  return out;
}

}  // namespace

Result<SandboxResult> run_in_sandbox(const SandboxJob& job) {
  if (::geteuid() != 0) return run_as(job, {true, ::getuid(), ::getgid()});
  // Where root may not make namespaces for itself, it may be that nobody may.
  auto out = run_as(job, {false, kNobody, kNobody});
  return out.ok() ? std::move(out) : run_as(job, {true, kNobody, kNobody});
}

}  // namespace braid::inline host
