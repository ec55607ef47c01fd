#include "data/mistake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace braid::inline data {
namespace {

std::string sorted(std::string text) {
  std::sort(text.begin(), text.end());
  return text;
}

bool all_digits(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos;
}

// Which kind of wrong answer to a sorted one this is, by what a reader would see.
std::string kind_of(const std::string& wrong, const std::string& answer) {
  if (!all_digits(wrong)) return "letter";
  if (wrong.size() > answer.size() + 2) return "goes on";
  if (wrong != sorted(wrong)) return "out of order";
  if (wrong.size() < answer.size()) return "short";
  return wrong.size() > answer.size() ? "long" : "other digits";
}

TEST(Mistake, EveryKindIsCommonEnoughToBeLearnt) {
  RandomStream random(3, 1);
  const std::string answer = "03346";
  std::map<std::string, int> counts;
  const int total = 4000;
  for (int i = 0; i < total; ++i) {
    const std::string wrong = wrong_answer(answer, true, random);
    ASSERT_NE(wrong, answer);
    ASSERT_FALSE(wrong.empty());
    ++counts[kind_of(wrong, answer)];
  }
  for (const char* kind : {"letter", "goes on", "out of order", "short", "long", "other digits"})
    EXPECT_GT(counts[kind], total / 20) << kind;
  EXPECT_GT(counts["other digits"], total / 4) << "the ones hardest to see";
}

TEST(Mistake, RepeatedCharactersAreHitMost) {
  RandomStream random(4, 1);
  int repeated = 0, single = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string wrong = wrong_answer("013345678", true, random);
    const auto threes = std::count(wrong.begin(), wrong.end(), '3');
    const auto sixes = std::count(wrong.begin(), wrong.end(), '6');
    repeated += threes < 2 ? 1 : 0;
    single += sixes < 1 ? 1 : 0;
  }
  EXPECT_GT(repeated, 3 * single);
}

TEST(Mistake, ShortAnswersHaveMistakesToo) {
  RandomStream random(5, 1);
  for (const char* answer : {"7", "a", "33"})
    for (int i = 0; i < 200; ++i) {
      const std::string wrong = wrong_answer(answer, false, random);
      EXPECT_NE(wrong, answer);
      EXPECT_FALSE(wrong.empty());
    }
}

}  // namespace
}  // namespace braid::inline data
