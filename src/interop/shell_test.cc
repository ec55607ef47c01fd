#include "interop/shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "interop/arithmetic.h"

namespace braid::foreign {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string last_word(const std::string& script) {
  const auto words = shell_words(script);
  return words.ok() && !words->empty() ? words->back() : words.status().message();
}

TEST(ShellWords, ResolveQuotesVariablesAndComments) {
  EXPECT_THAT(*shell_words("A=1 B='x y' # no\n cmd \\\n key=$A other=\"${B}z\" $C"),
              ElementsAre("A=1", "B=x y", "cmd", "key=1", "other=x yz", "$C"));
  EXPECT_EQ(last_word("A=1\nx='$A'"), "x=$A");
  EXPECT_EQ(last_word("A=1\nx=\"\\$A\""), "x=$A");
  EXPECT_EQ(last_word("export A=7\nset -x\nx=$A"), "x=7");
  EXPECT_EQ(last_word("A=1\r\ncmd \\\r\nx=$A"), "x=1");
}

TEST(ShellWords, DefaultsStandForWhatIsNotAssigned) {
  EXPECT_EQ(last_word("x=${TP:-4}"), "x=4");
  EXPECT_EQ(last_word("TP=2\nx=${TP:-4}"), "x=2");
  EXPECT_EQ(last_word("TP=\nx=${TP:-4}"), "x=4");
  EXPECT_EQ(last_word("TP=\nx=${TP-4}"), "x=");
  EXPECT_EQ(last_word("x=${P:-\"${HOME}/verl\"}"), "x=${HOME}/verl");
  EXPECT_EQ(last_word("A=3\nx=${B:-$((A * 2))}"), "x=6");
  EXPECT_EQ(last_word("x=${NAME%.sh}"), "x=${NAME%.sh}");
}

TEST(ShellWords, ArithmeticIsComputed) {
  EXPECT_EQ(last_word("x=$((1024 * 2))"), "x=2048");
  EXPECT_EQ(last_word("a=3\nb=$((a + 1))\nx=$(( (a + b) * 2 - ${a} % $b ))"), "x=11");
  EXPECT_EQ(last_word("x=$((unknown + 1))"), "x=$((unknown + 1))");
}

TEST(ShellWords, ArgumentsOfTheScriptAreEmpty) {
  EXPECT_THAT(*shell_words("cmd a=1 \"$@\" $@ ${@:2}"), ElementsAre("cmd", "a=1"));
}

TEST(ShellWords, UnquotedVariablesAreSplit) {
  EXPECT_THAT(*shell_words("A='x=1 y=2'\ncmd $A \"$A\""),
              ElementsAre("A=x=1 y=2", "cmd", "x=1", "y=2", "x=1 y=2"));
}

TEST(ShellWords, WhatAnExpansionGivesAssignsNothing) {
  EXPECT_EQ(last_word("A=1\nB='x A=2 y'\n$B\nx=$A"), "x=1");
  // Nor while its own value is read.
  const std::string longer(60, 'y');
  EXPECT_THAT(*shell_words(cat("A='x A=", longer, " z'\n$A $A")),
              ElementsAre(cat("A=x A=", longer, " z"), "x", cat("A=", longer), "z", "x",
                          cat("A=", longer), "z"));
}

TEST(ShellWords, ArraysGiveTheirWords) {
  EXPECT_THAT(*shell_words("A=(\n x=1 # one\n y='2 3'\n)\nA+=(z=4)\ncmd \"${A[@]}\" w=5"),
              ElementsAre("cmd", "x=1", "y=2 3", "z=4", "w=5"));
}

TEST(ShellWords, OperatorsEndWordsAndRedirectionsAreLeftOut) {
  EXPECT_THAT(*shell_words("A=1; cmd --flag 2>&1 | tee log && x=$A > /dev/null"),
              ElementsAre("A=1", ";", "cmd", "--flag", ";", "tee", "log", ";", "x=1"));
}

TEST(ShellWords, WhatOnlyAShellKnowsIsAnErrorWhereItStandsForArguments) {
  EXPECT_THAT(last_word("cmd a=1 \\\n $(cat args)"), HasSubstr("line 2: '$(cat args)' is not run"));
  EXPECT_THAT(last_word("cmd \"${A[@]}\""), HasSubstr("the array '${A[@]}' is not assigned here"));
  EXPECT_EQ(last_word("cmd name=$(date +%s)"), "name=$(date +%s)");
  EXPECT_THAT(*shell_words("$(which python) a=1"), ElementsAre("$(which python)", "a=1"));
}

TEST(ShellWords, BrokenTextIsReadToItsEnd) {
  for (const char* text : {"'", "\"", "$", "${", "$((", "$(", "`", "\\", "A=(", "x=\"$", "${A[@]"})
    EXPECT_TRUE(shell_words(text).ok()) << text;
  std::string doubled = "A=xxxxxxxx\n";
  for (int i = 0; i < 100; ++i) doubled += "A=$A$A\n";
  EXPECT_LT(last_word(doubled).size(), size_t{1} << 20);
}

TEST(ShellArithmetic, KnowsPrecedenceAndRefusesWhatItCannotCompute) {
  const auto value = [](const std::string& text) {
    return shell_arithmetic(text, [](const std::string& name) -> std::optional<std::string> {
      if (name == "n") return "5";
      return std::nullopt;
    });
  };
  EXPECT_EQ(value("1 + 2 * 3 - 8 / 4 % 2"), 7);
  EXPECT_EQ(value("-(n - 7)"), 2);
  for (const char* text : {"", "1 +", "1 / 0", "n m", "m", "1.5", "(1", "9223372036854775807 + 1"})
    EXPECT_EQ(value(text), std::nullopt) << text;
  EXPECT_EQ(value(std::string(10000, '(')), std::nullopt);
}

}  // namespace
}  // namespace braid::foreign
