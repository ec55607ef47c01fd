// Tests on several ranks. Only tests include this.
//   RANK_TEST(Communicator, sums, 4) { ... world().everyone() ... }
// is one test of GoogleTest. The first such test of a number of ranks starts this program again as
// that many ranks, one launch for all tests of that number; every test then shows its own outcome.
// A rank that fails an expectation goes on; all ranks meet before each test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/testing.h"
#include "base/text.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "host/file.h"

namespace braid::inline comm::rank_testing {

// Names of the tests by number of ranks.
inline std::map<int64_t, std::vector<std::string>>& registry() {
  static std::map<int64_t, std::vector<std::string>> tests;
  return tests;
}

inline bool add_test(const std::string& name, int64_t ranks) {
  registry()[ranks].push_back(name);
  return true;
}

// The world of this rank; left when the program ends.
class TestWorld {
 public:
  static TestWorld& instance() {
    static TestWorld world;
    return world;
  }
  World& world() { return *world_; }
  ~TestWorld() {
    if (world_ != nullptr) (void)world_->leave();
  }

 private:
  TestWorld() {
    auto membership = read_membership(process_environment());
    if (!membership.ok() || !*membership) std::abort();
    auto joined = World::join(**membership, {.join_s = 120, .notice_s = 60, .deadline_s = 120});
    if (!joined.ok()) {
      std::fprintf(stderr, "%s\n", joined.status().message().c_str());
      std::abort();
    }
    world_ = std::move(*joined);
  }
  std::unique_ptr<World> world_;
};

inline bool inside_rank() { return std::getenv("BRAID_RANK_TEST_FOLDER") != nullptr; }

inline std::string outcome_path(const std::string& folder, const std::string& test, int64_t rank) {
  return join_path(folder, cat(test, ".", rank));
}

// Runs the body on this rank and leaves its failures, or an empty file.
inline void run_inside(const std::string& name, void (*body)(World&)) {
  World& world = TestWorld::instance().world();
  world.position().enter(name);
  auto everyone = world.everyone();
  if (!everyone.ok() || !(*everyone)->barrier(name).ok()) std::abort();
  try {
    body(world);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  const auto* result = testing::UnitTest::GetInstance()->current_test_info()->result();
  std::string failures;
  for (int i = 0; i < result->total_part_count(); ++i)
    if (result->GetTestPartResult(i).failed()) {
      const auto& part = result->GetTestPartResult(i);
      failures += cat("rank ", world.global_rank(), ": ", part.file_name() ? part.file_name() : "",
                      ":", part.line_number(), ": ", part.summary(), "\n");
    }
  std::ofstream(outcome_path(std::getenv("BRAID_RANK_TEST_FOLDER"), name, world.global_rank()))
      << failures;
}

// The tests of this number of ranks that were chosen, as a filter.
inline std::string selected_tests(int64_t ranks) {
  std::vector<std::string> names;
  const auto* unit = testing::UnitTest::GetInstance();
  const auto& mine = registry()[ranks];
  for (int i = 0; i < unit->total_test_suite_count(); ++i)
    for (int j = 0; j < unit->GetTestSuite(i)->total_test_count(); ++j) {
      const auto* info = unit->GetTestSuite(i)->GetTestInfo(j);
      const std::string name = cat(info->test_suite_name(), ".", info->name());
      if (info->should_run() && std::find(mine.begin(), mine.end(), name) != mine.end())
        names.push_back(name);
    }
  return join(names, ":");
}

// Runs all chosen tests of this number of ranks; the folder of their outcomes.
inline std::string launch_tests(int64_t ranks) {
  const std::string folder = join_path(testing::TempDir(), cat("ranks-", ::getpid(), "-", ranks));
  EXPECT_TRUE(make_folder(folder).ok());
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  LaunchOptions options;
  options.ranks = ranks;
  options.argv = {self, cat("--gtest_filter=", selected_tests(ranks)), "--gtest_brief=1"};
  options.environment = {{"BRAID_RANK_TEST_FOLDER", folder},
                         {"OMP_NUM_THREADS", "1"},
                         {"GTEST_TOTAL_SHARDS", "1"},
                         {"GTEST_SHARD_INDEX", "0"}};
  const auto code = launch_ranks(options);
  EXPECT_TRUE(code.ok()) << code.status().message();
  return folder;
}

// Shows the outcome of one test, after the launch of all tests of that number of ranks.
inline void show_outcome(const std::string& name, int64_t ranks) {
  struct Folders {
    std::map<int64_t, std::string> by_ranks;
    ~Folders() {
      for (const auto& [ranks, folder] : by_ranks) std::filesystem::remove_all(folder);
    }
  };
  static Folders folders;
  if (folders.by_ranks.count(ranks) == 0) folders.by_ranks[ranks] = launch_tests(ranks);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto outcome = read_file(outcome_path(folders.by_ranks[ranks], name, rank));
    if (!outcome.ok()) {
      ADD_FAILURE() << "rank " << rank << " did not finish " << name;
    } else if (!outcome->empty()) {
      ADD_FAILURE() << *outcome;
    }
  }
}

inline void run(const std::string& name, int64_t ranks, void (*body)(World&)) {
  if (inside_rank()) {
    run_inside(name, body);
  } else {
    show_outcome(name, ranks);
  }
}

}  // namespace braid::inline comm::rank_testing

#define RANK_TEST(suite, name, ranks) RANK_TEST_IF(suite, name, ranks, true)
// In the full tier alone: the fast one starts no ranks for it.
#define FULL_RANK_TEST(suite, name, ranks) RANK_TEST_IF(suite, name, ranks, ::braid::full_tier())

#define RANK_TEST_IF(suite, name, ranks, wanted)                                \
  static void suite##_##name##_body(::braid::World& world);                     \
  [[maybe_unused]] static const bool suite##_##name##_added =                   \
      ::braid::rank_testing::add_test(#suite "." #name, ranks);                 \
  TEST(suite, name) {                                                           \
    if (!(wanted)) GTEST_SKIP() << "in the full tier";                          \
    ::braid::rank_testing::run(#suite "." #name, ranks, suite##_##name##_body); \
  }                                                                             \
  static void suite##_##name##_body([[maybe_unused]] ::braid::World& world)
