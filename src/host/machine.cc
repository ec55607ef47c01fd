#include "host/machine.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {
namespace {

// The rest of the first line of a "name : value" file that has the name.
std::string field_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && trim(line.substr(0, colon)) == name)
      return std::string(trim(line.substr(colon + 1)));
  }
  return "";
}

std::string file_text(const char* path) {
  auto text = read_file(path);
  return text.ok() ? *text : "";
}

int64_t kib_field(const std::string& text, const std::string& name) {
  int64_t kib = 0;
  const std::string value = field_of(text, name);
  parse_int(value.substr(0, value.find(' ')), &kib);
  return kib * 1024;
}

}  // namespace

int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

void keep_free_heap() {
#if defined(__GLIBC__)
  // Older versions take 32 MiB at most.
  if (mallopt(M_MMAP_THRESHOLD, 1 << 30) == 0) mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

void release_free_heap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

Status check_threads(int64_t count) {
  std::mutex mutex;
  std::condition_variable release;
  bool done = false;
  std::vector<std::thread> threads;
  Status status;
  try {
    while (static_cast<int64_t>(threads.size()) < count)
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        release.wait(lock, [&] { return done; });
      });
  } catch (const std::system_error&) {
    status = invalid_input(cat(count, " threads cannot be started here, only ", threads.size(),
                               " (limits of the system: ulimit -u, pids of the container)"));
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  release.notify_all();
  for (std::thread& thread : threads) thread.join();
  return status;
}

Status check_open_files(int64_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return ok_status();
  if (limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur >= static_cast<rlim_t>(count)) return ok_status();
  return invalid_input(cat("up to ", count, " files would be open at once, and the system allows ",
                           limit.rlim_cur, " in a process (ulimit -n ", count, " raises that)"));
}

std::string program_folder() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? parent_folder(std::string(path.data(), static_cast<size_t>(size))) : ".";
}

MachineMemory machine_memory() {
  const std::string text = file_text("/proc/meminfo");
  return {kib_field(text, "MemTotal"), kib_field(text, "MemAvailable")};
}

Processor processor() {
  const std::string text = file_text("/proc/cpuinfo");
  Processor out;
  out.model = field_of(text, "model name");
  for (const std::string& feature : split(field_of(text, "flags"), ' '))
    for (const char* wanted : {"avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"})
      if (feature == wanted) out.features.push_back(feature);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) out.cores = CPU_COUNT(&set);
  return out;
}

}  // namespace braid::inline host
