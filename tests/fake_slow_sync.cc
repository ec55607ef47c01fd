// Preloaded by tests: in the rank BRAID_TEST_SYNC_RANK the disk takes BRAID_TEST_SYNC_S seconds for
// every file that is synced.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

using Sync = int (*)(int);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

extern "C" int fsync(int file) {
  const auto real = reinterpret_cast<Sync>(::dlsym(RTLD_NEXT, "fsync"));
  const std::string rank = variable("RANK");
  if (!rank.empty() && rank == variable("BRAID_TEST_SYNC_RANK"))
    ::sleep(static_cast<unsigned>(std::atoi(variable("BRAID_TEST_SYNC_S").c_str())));
  return real(file);
}
