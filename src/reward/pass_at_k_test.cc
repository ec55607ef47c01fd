#include "reward/pass_at_k.h"

#include <gtest/gtest.h>

namespace braid::inline reward {
namespace {

// Share of the k-subsets of n samples, the first c of them right, that hold a right one.
double counted(int n, int c, int k) {
  int subsets = 0, passed = 0;
  for (int mask = 0; mask < 1 << n; ++mask) {
    if (__builtin_popcount(mask) != k) continue;
    ++subsets;
    passed += (mask & ((1 << c) - 1)) != 0;
  }
  return static_cast<double>(passed) / subsets;
}

TEST(PassAtK, IsTheShareOfSubsetsWithARightSample) {
  for (int n = 1; n <= 8; ++n)
    for (int c = 0; c <= n; ++c)
      for (int k = 1; k <= n; ++k)
        EXPECT_NEAR(pass_at_k(n, c, k), counted(n, c, k), 1e-12) << n << " " << c << " " << k;
}

TEST(PassAtK, ManySamplesDoNotOverflow) {
  EXPECT_NEAR(pass_at_k(1000, 1, 500), 0.5, 1e-9);
  EXPECT_EQ(pass_at_k(1000, 501, 500), 1);
}

TEST(PassAtK, ReportsPowersOfTwoAndTheWhole) {
  EXPECT_EQ(reported_k(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(reported_k(8), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(reported_k(6), (std::vector<int64_t>{1, 2, 4, 6}));
}

}  // namespace
}  // namespace braid::inline reward
