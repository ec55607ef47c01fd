// Preloaded by tests: of the large allocations that libtorch makes, number
// BRAID_TEST_FAIL_ALLOCATION (from 1) fails as on a machine without memory. At its end the process
// appends how many there were to the file BRAID_TEST_ALLOCATION_COUNT.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace {

using Allocate = int (*)(void**, size_t, size_t);

// Below this oneDNN allocates its own descriptors, and does not look at what it got.
constexpr size_t kLargeBytes = 16384;

std::atomic<long> g_count{0};

// Written when the library is unloaded, which is when the process ends.
struct Report {
  ~Report() {
    const char* path = std::getenv("BRAID_TEST_ALLOCATION_COUNT");
    std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "a");
    if (file == nullptr) return;
    std::fprintf(file, "%ld\n", g_count.load());
    std::fclose(file);
  }
} g_report;

}  // namespace

extern "C" int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  static const auto real = reinterpret_cast<Allocate>(::dlsym(RTLD_NEXT, "posix_memalign"));
  static const char* const number = std::getenv("BRAID_TEST_FAIL_ALLOCATION");
  if (size >= kLargeBytes && ++g_count == (number == nullptr ? 0 : std::atol(number)))
    return ENOMEM;
  return real(out, alignment, size);
}
