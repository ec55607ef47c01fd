// Preloaded by tests: of the allocations that libtorch makes for tensors, number
// BRAID_TEST_FAIL_ALLOCATION (from 1) fails as on a machine without memory; with
// BRAID_TEST_FAIL_RANK only on that rank of a job. At its end the process appends how many there
// were to the file BRAID_TEST_ALLOCATION_COUNT.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Allocate = int (*)(void**, size_t, size_t);

// Smaller ones are too many to count.
constexpr size_t kLargeBytes = 4096;

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

bool is_rank_that_fails() {
  const char* const wanted = std::getenv("BRAID_TEST_FAIL_RANK");
  const char* const own = std::getenv("RANK");
  return wanted == nullptr || (own != nullptr && std::strcmp(wanted, own) == 0);
}

// Whether code of libtorch's allocator asks. oneDNN asks for its own descriptors too, and does not
// look at what it got.
bool is_of_tensor(void* caller) {
  Dl_info info;
  return ::dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "libc10") != nullptr;
}

}  // namespace

extern "C" int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  static const auto real = reinterpret_cast<Allocate>(::dlsym(RTLD_NEXT, "posix_memalign"));
  static const char* const number =
      is_rank_that_fails() ? std::getenv("BRAID_TEST_FAIL_ALLOCATION") : nullptr;
  const bool counts = size >= kLargeBytes && is_of_tensor(__builtin_return_address(0));
  if (counts && ++g_count == (number == nullptr ? 0 : std::atol(number))) return ENOMEM;
  return real(out, alignment, size);
}
