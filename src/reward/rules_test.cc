#include "reward/rules.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace braid::inline reward {
namespace {

TEST(NumericAnswer, MarkOfGsm8kComesFirst) {
  EXPECT_EQ(numeric_answer("3 + 4 = 7\n#### 42"), 42);
  EXPECT_EQ(numeric_answer("#### 1\nwait, 5\n#### 2,125 apples and 3 pears"), 2125);
  EXPECT_EQ(numeric_answer("7 ####"), std::nullopt);
}

TEST(NumericAnswer, LastNumberWithoutAMark) {
  EXPECT_EQ(numeric_answer("She has 12 eggs, sells 3 and keeps 9."), 9);
  EXPECT_EQ(numeric_answer("the total is $1,234,567.50."), 1234567.5);
  EXPECT_EQ(numeric_answer("1, 2"), 2);
  EXPECT_EQ(numeric_answer("1,23"), 23);
  EXPECT_EQ(numeric_answer("no number"), std::nullopt);
  EXPECT_EQ(numeric_answer(""), std::nullopt);
}

TEST(NumericAnswer, Signs) {
  EXPECT_EQ(numeric_answer("x = -5"), -5);
  EXPECT_EQ(numeric_answer("-$5"), -5);
  EXPECT_EQ(numeric_answer("10-5"), 5);
  EXPECT_EQ(numeric_answer("-.5"), -0.5);
  EXPECT_EQ(numeric_answer("72.0"), 72);
}

// The textbook recurrence, as reference.
double slow_lcs_ratio(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> best(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j)
      best[i][j] =
          a[i - 1] == b[j - 1] ? best[i - 1][j - 1] + 1 : std::max(best[i - 1][j], best[i][j - 1]);
  return 2.0 * best[a.size()][b.size()] / static_cast<double>(a.size() + b.size());
}

TEST(LcsRatio, AgreesWithTheRecurrence) {
  std::mt19937 generator(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::string a(1 + generator() % 200, ' '), b(1 + generator() % 200, ' ');
    for (char& c : a) c = static_cast<char>('a' + generator() % 4);
    for (char& c : b) c = static_cast<char>('a' + generator() % 4);
    EXPECT_DOUBLE_EQ(lcs_ratio(a, b), slow_lcs_ratio(a, b)) << a << " / " << b;
  }
}

TEST(LcsRatio, CountsCodePoints) {
  EXPECT_DOUBLE_EQ(lcs_ratio("é", "é"), 1);
  EXPECT_DOUBLE_EQ(lcs_ratio("äb", "öb"), 0.5);  // the common lead byte of ä and ö does not count
  EXPECT_DOUBLE_EQ(lcs_ratio("", ""), 1);
  EXPECT_DOUBLE_EQ(lcs_ratio("abc", ""), 0);
}

TEST(DigitShare, Shares) {
  EXPECT_DOUBLE_EQ(digit_share("1a2é"), 0.5);
  EXPECT_DOUBLE_EQ(digit_share(""), 0);
}

TEST(LengthScore, FallsOffOnBothSides) {
  EXPECT_DOUBLE_EQ(length_score(10, 10), 1);
  EXPECT_DOUBLE_EQ(length_score(5, 10), 0.5);
  EXPECT_DOUBLE_EQ(length_score(15, 10), 0.5);
  EXPECT_DOUBLE_EQ(length_score(100, 10), 0);
}

}  // namespace
}  // namespace braid::inline reward
