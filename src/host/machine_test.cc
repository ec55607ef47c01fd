#include "host/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <vector>

namespace braid::inline host {
namespace {

// Memory of this process that is resident now, by the kernel's own account.
int64_t resident_bytes() {
  int64_t total_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

// Fills and frees 64 blocks of a MiB; a small block above them keeps the heap from shrinking.
std::unique_ptr<char[]> leave_free_blocks() {
  std::vector<std::vector<char>> blocks;
  for (int i = 0; i < 64; ++i) blocks.emplace_back(1 << 20, 'x');
  return std::make_unique<char[]>(64);
}

TEST(Heap, FreedBlocksStayUntilTheyAreReleased) {
  keep_free_heap();
  const int64_t before = resident_bytes();
  const std::unique_ptr<char[]> above = leave_free_blocks();
  const int64_t kept = resident_bytes();
  EXPECT_GE(kept - before, 60 << 20);
  release_free_heap();
  EXPECT_LE(resident_bytes() - before, 8 << 20);
}

TEST(Machine, PeakMemoryIsNotBelowWhatIsResident) {
  const int64_t resident = resident_bytes();
  EXPECT_GE(peak_memory_bytes(), resident - (1 << 20));  // counted in batches of pages
  EXPECT_GT(machine_memory().total_bytes, machine_memory().available_bytes);
}

TEST(OpenFiles, TheLimitIsRaisedAndNamed) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit lowered{std::min<rlim_t>(limit.rlim_max, 256), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  EXPECT_TRUE(check_open_files(static_cast<int64_t>(lowered.rlim_cur)).ok());
  rlimit now{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, limit.rlim_max);
  const Status refused = check_open_files(int64_t{1} << 40);
  EXPECT_EQ(refused.code(), Code::kInvalidInput);
  EXPECT_NE(refused.message().find("(ulimit -n 1099511627776 raises that)"), std::string::npos)
      << refused.message();
}

}  // namespace
}  // namespace braid::inline host
