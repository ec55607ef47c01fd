// The differences between Oniguruma's and PCRE2's reading of a pattern, and Unicode tables.
#include "data/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  std::vector<TextSpan> spans;
  const Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  EXPECT_TRUE(regex->find_all(text, &spans).ok());
  for (const TextSpan& span : spans)
    if (span.is_match) found.push_back(text.substr(span.begin, span.end - span.begin));
  return found;
}

TEST(RegexTest, WordCharactersIncludeMarksAndConnectors) {
  EXPECT_THAT(matches("\\w+", "e\u0301a b\u203Fc!"), ElementsAre("e\u0301a", "b\u203Fc"));
  EXPECT_THAT(matches("[\\w!]+", "a! ,"), ElementsAre("a!"));
  EXPECT_THAT(matches("\\W+", "ab, c"), ElementsAre(", "));
}

TEST(RegexTest, ScriptNamesMeanTheScriptNotItsExtensions) {
  EXPECT_THAT(matches("\\p{Han}+", "\u72D7\u3001\u72D7"), ElementsAre("\u72D7", "\u72D7"));
}

TEST(RegexTest, CodePointsNewerThanPcreHaveTheirClass) {
  EXPECT_THAT(matches("\\p{L}+", "a\u1C89\U000105C0b"), ElementsAre("a\u1C89\U000105C0b"));
  EXPECT_THAT(matches("\\p{Nd}", "\U00010D40"), ElementsAre("\U00010D40"));
  EXPECT_THAT(matches("\\s", "\u180E\u00A0"), ElementsAre("\u00A0"));
}

TEST(RegexTest, LineBordersAreAnchors) {
  EXPECT_THAT(matches("^a", "a\na"), ElementsAre("a", "a"));
}

TEST(RegexTest, OnlyStarPlusAndQuestionMarkArePossessive) {
  EXPECT_THAT(matches("a{1,2}+b", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(matches("a++b", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(matches("a++a", "aaa"), ElementsAre());
  EXPECT_THAT(matches("(?:ab){2}?", "abab"), ElementsAre("abab"));
  EXPECT_THAT(matches("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(matches("a{x", "a{x"), ElementsAre("a{x"));
}

TEST(RegexTest, EscapesWithAnotherMeaningInPcre) {
  EXPECT_THAT(matches("\\h+", "9fG \t"), ElementsAre("9f"));
  EXPECT_THAT(matches("[\\h_]+", "9f_G"), ElementsAre("9f_"));
  EXPECT_THAT(matches("\\u0042|\\x41|\\x{43}", "ABCD"), ElementsAre("A", "B", "C"));
  EXPECT_THAT(matches("\\v", "\x0b\x0c"), ElementsAre("\x0b"));
  EXPECT_THAT(matches("(?m:a.)", "a\n"), ElementsAre("a\n"));
  EXPECT_THAT(matches("a.", "a\na\r"), ElementsAre("a\r"));
  EXPECT_THAT(matches("\\bb\u0301?\\b", "b\u0301b b"), ElementsAre("b"));
}

// An empty match is a border between two pieces, except right behind another match.
TEST(RegexTest, EmptyMatchesCount) {
  std::vector<TextSpan> spans;
  ASSERT_TRUE(Regex::compile("(?=[A-Z])")->find_all("aBcD", &spans).ok());
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[1].begin, 1u);
  EXPECT_EQ(spans[1].end, 1u);
  EXPECT_THAT(matches("x*", "xxax"), ElementsAre("xx", "x"));
  EXPECT_THAT(matches("x*", ""), ElementsAre());
}

TEST(RegexTest, LongRunsDoNotExhaustTheMatcher) {
  const std::string text(1 << 20, ' ');
  EXPECT_THAT(matches("\\s+(?!\\S)|\\s+", text), ElementsAre(text));
}

TEST(RegexTest, WhatPcreReadsDifferentlyIsAnError) {
  for (const char* pattern :
       {"[a&&b]", "[^\\W_]", "[a[b]]", "[[:alpha:]]", "[]a]", "[a", "(", ")", "*a", "\\X", "\\k<a>",
        "(?<n>a)", "a(?i)b", "(?i:\u00E9)", "\\p{Cyrillic}", "\\pL", "\\xE9", "\\u12", "a\\"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_THAT(regex.status().message(), HasSubstr(pattern));
  }
}

TEST(RegexTest, NestingHasALimit) {
  std::string open, close;
  for (int i = 0; i < 100'000; ++i) open += "(", close += ")";
  for (const std::string& pattern : {open, open + "a" + close, std::string(100'000, '[')})
    EXPECT_FALSE(Regex::compile(pattern).ok());
}

TEST(UnicodeTest, InvalidBytesAreFoundWhereTheyStart) {
  EXPECT_EQ(find_invalid_utf8("a\u00E9\u20AC\U0001F642"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("a\xC3"), 1u);
  EXPECT_EQ(find_invalid_utf8("\xE2\x82\xAC\x80"), 3u);
  EXPECT_EQ(find_invalid_utf8("\xF0\x80\x80\x80"), 0u);
}

TEST(UnicodeTest, ClassStandInsKeepLengths) {
  std::string storage;
  const std::string text = "a\u1C89b\U00010D40";
  const std::string_view shown = with_current_classes(text, &storage);
  EXPECT_EQ(shown.size(), text.size());
  EXPECT_NE(shown, text);
  EXPECT_EQ(with_current_classes("plain \u00E9", &storage), "plain \u00E9");
}

}  // namespace
}  // namespace braid::inline data
