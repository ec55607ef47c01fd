#include "host/work_section.h"

#include <gtest/gtest.h>

namespace braid::inline host {
namespace {

void burn(double seconds) {
  const double end = thread_cpu_s() + seconds;
  while (thread_cpu_s() < end) {
  }
}

TEST(WorkSectionTest, OneWithinAnotherCountsOnce) {
  const double before = work_count().work_s, cpu = thread_cpu_s();
  {
    const WorkSection outer;
    burn(0.01);
    const WorkSection inner;
    burn(0.01);
  }
  const double inside = work_count().work_s - before;
  burn(0.01);
  EXPECT_GE(inside, 0.02);
  EXPECT_EQ(work_count().work_s - before, inside);
  EXPECT_GE(thread_cpu_s() - cpu, inside + 0.01);
}

TEST(WorkSectionTest, CountsInstructions) {
  const int64_t before = work_count().instructions;
  count_instruction();
  EXPECT_EQ(work_count().instructions, before + 1);
}

}  // namespace
}  // namespace braid::inline host
