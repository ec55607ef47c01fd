// Preloaded by tests: every file system has BRAID_TEST_FREE_BYTES left, whatever the real one says;
// with BRAID_TEST_FREE_ASKS only from that question on (from 1), as when a disk fills up.
#include <dlfcn.h>
#include <sys/statvfs.h>

#include <atomic>
#include <cstdlib>

namespace {

using Inspect = int (*)(const char*, struct statvfs*);

}  // namespace

extern "C" int statvfs(const char* path, struct statvfs* info) noexcept {
  const auto real = reinterpret_cast<Inspect>(::dlsym(RTLD_NEXT, "statvfs"));
  const int failed = real(path, info);
  const char* bytes = std::getenv("BRAID_TEST_FREE_BYTES");
  if (failed != 0 || bytes == nullptr) return failed;
  static std::atomic<int> asks{0};
  const char* first = std::getenv("BRAID_TEST_FREE_ASKS");
  if (++asks < (first == nullptr ? 1 : std::atoi(first))) return failed;
  info->f_frsize = 1;
  info->f_bavail = std::strtoull(bytes, nullptr, 10);
  return 0;
}
