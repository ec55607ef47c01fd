// Preloaded by tests: every file system has BRAID_TEST_FREE_BYTES left, whatever the real one says.
#include <dlfcn.h>
#include <sys/statvfs.h>

#include <cstdlib>

namespace {

using Inspect = int (*)(const char*, struct statvfs*);

}  // namespace

extern "C" int statvfs(const char* path, struct statvfs* info) noexcept {
  const auto real = reinterpret_cast<Inspect>(::dlsym(RTLD_NEXT, "statvfs"));
  const int failed = real(path, info);
  const char* bytes = std::getenv("BRAID_TEST_FREE_BYTES");
  if (failed != 0 || bytes == nullptr) return failed;
  info->f_frsize = 1;
  info->f_bavail = std::strtoull(bytes, nullptr, 10);
  return 0;
}
