#include "host/scratch_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "host/file.h"

namespace braid::inline host {
namespace {

// Pages of the map that are in this process's resident set, by the kernel's own account.
int64_t resident_kib(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    long kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      inside = begin <= wanted && wanted < end;
    if (inside && std::sscanf(line.c_str(), "Rss: %ld kB", &kib) == 1) return kib;
  }
  return -1;
}

TEST(ScratchMap, HoldsThePiecesAndForgetsItsPages) {
  const std::string folder = testing::TempDir();
  const std::string large(1 << 20, 'x');
  const auto map = ScratchMap::create(folder, {"abc", "", large});
  ASSERT_TRUE(map.ok()) << map.status().message();
  const ScratchMap& scratch = **map;
  EXPECT_EQ(std::string(scratch.piece(0), scratch.piece(0) + 3), "abc");
  EXPECT_EQ(std::string(scratch.piece(2), scratch.piece(2) + large.size()), large);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.piece(i)) % 64, 0u);
  EXPECT_GE(resident_kib(scratch.piece(0)), 1024);
  scratch.drop_pages();
  EXPECT_EQ(resident_kib(scratch.piece(0)), 0);
  EXPECT_EQ(std::string(scratch.piece(2), scratch.piece(2) + large.size()), large);
}

TEST(ScratchMap, LeavesNoNameBehind) {
  const std::string folder =
      std::string(testing::TempDir()) + "/scratch_" + std::to_string(::getpid());
  ASSERT_TRUE(make_folder(folder).ok());
  const auto map = ScratchMap::create(folder, {"abc"});
  ASSERT_TRUE(map.ok());
  EXPECT_TRUE(list_folder(folder)->empty());
  std::filesystem::remove_all(folder);
  EXPECT_THAT(ScratchMap::create(folder, {"abc"}).status().message(), testing::HasSubstr(folder));
}

TEST(ScratchMap, NothingToHoldIsFine) {
  const auto map = ScratchMap::create("", {});
  ASSERT_TRUE(map.ok());
  EXPECT_EQ((*map)->size_bytes(), 0u);
  (*map)->drop_pages();
}

}  // namespace
}  // namespace braid::inline host
