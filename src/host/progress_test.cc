#include "host/progress.h"

#include <gtest/gtest.h>

#include <thread>

#include "host/awaited_work.h"
#include "host/sha256.h"
#include "host/work_section.h"

namespace braid::inline host {
namespace {

TEST(Progress, GrowsWithWorkOfAnyThreadButNotBesideIt) {
  const uint64_t before = progress_count();
  note_progress();
  std::thread([] { note_progress(); }).join();
  EXPECT_EQ(progress_count(), before + 2);
  std::thread([] {
    work_beside();
    note_progress();
  }).join();
  EXPECT_EQ(progress_count(), before + 2);
}

TEST(Progress, GrowsWithWorkBesideOnlyWhileItIsAwaited) {
  const uint64_t before = progress_count();
  std::atomic<bool> awaited = false;
  std::thread([&] {
    work_when_awaited(awaited);
    note_progress();
    awaited = true;
    note_progress();
    awaited = false;
    note_progress();
  }).join();
  EXPECT_EQ(progress_count(), before + 1);
}

TEST(Progress, SectionsBeginAndEndAndInstructionsAreProgress) {
  const uint64_t before = progress_count();
  {
    const WorkSection section;
    EXPECT_EQ(progress_count(), before + 1);
  }
  EXPECT_EQ(progress_count(), before + 2);
  count_instruction();
  EXPECT_EQ(progress_count(), before + 3);
  (void)sha256_hex("abc");
  EXPECT_EQ(progress_count(), before + 4);
}

}  // namespace
}  // namespace braid::inline host
