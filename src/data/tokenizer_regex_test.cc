// The differences between Oniguruma's and PCRE2's reading of a pattern, and Unicode tables.
#include "data/tokenizer_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizer_unicode.h"

namespace braid {
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

TEST(RegexTest, LongRunsDoNotExhaustTheMatcher) {
  const std::string text(1 << 20, ' ');
  EXPECT_THAT(matches("\\s+(?!\\S)|\\s+", text), ElementsAre(text));
}

TEST(RegexTest, WhatPcreReadsDifferentlyIsAnError) {
  for (const char* pattern :
       {"[a&&b]", "a{1,3}+", "\\h", "\\ba", "[^\\W_]", "[a[b]]", "(", "[[:"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_THAT(regex.status().message(), HasSubstr(pattern));
  }
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
}  // namespace braid
