#include "optimize/limits.h"

#include <gtest/gtest.h>

namespace braid::optimize {
namespace {

TEST(SearchLimits, AStatedNumberOfUnitsNeedsNoTime) {
  EXPECT_EQ(SearchLimits().limit_s(), 10);
  EXPECT_EQ(SearchLimits{.max_units = 4}.limit_s(), HUGE_VAL);
  const SearchLimits both{.time_limit_s = 2.5, .max_units = 4};
  EXPECT_EQ(both.limit_s(), 2.5);
}

TEST(Stopwatch, MeasuresByTheCallersClock) {
  double now_s = 100;
  const Stopwatch watch([&now_s] { return now_s; });
  now_s = 103;
  EXPECT_EQ(watch.elapsed_s(), 3);
  const Stopwatch later = watch.anew();
  now_s = 104;
  EXPECT_EQ(later.elapsed_s(), 1);
  EXPECT_EQ(watch.elapsed_s(), 4);
  EXPECT_EQ(Stopwatch().anew().elapsed_s(), 0);
}

TEST(SearchLimits, UnitsStopWithTheTimeButNotBeforeTheLeast) {
  double now_s = 0;
  const Stopwatch watch([&now_s] { return now_s; });
  const UnitOptions options = unit_options({.threads = 3}, watch, 5, 2);
  EXPECT_EQ(options.threads, 3);
  EXPECT_FALSE(options.stop());
  now_s = 5;
  EXPECT_EQ(options.elapsed_s(), 5);
  EXPECT_FALSE(options.stop()) << "the second unit";
  EXPECT_TRUE(options.stop());
}

}  // namespace
}  // namespace braid::optimize
