#include <gmock/gmock.h>

#include "reward/testing.h"

namespace braid::inline reward {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RewardOptions rule(const std::string& name) {
  RewardOptions options;
  options.type = "rule";
  options.rule = name;
  return options;
}

TEST(RuleReward, ContainsPatternOrLabel) {
  RewardOptions options = rule("contains");
  EXPECT_THAT(brief(score_with(options, {make_sample(0, "it is blue", {{"label", "blue"}}),
                                         make_sample(1, "it is red", {{"label", "blue"}}),
                                         make_sample(2, "it is red", {{"label", ""}})})),
              ElementsAre("1", "0", "error"));
  options.pattern = "red";
  EXPECT_THAT(brief(score_with(options, {make_sample(0, "it is red")})), ElementsAre("1"));
}

TEST(RuleReward, Regex) {
  RewardOptions options = rule("regex");
  options.pattern = R"(^<think>.*</think>\s*\p{L}+$)";
  EXPECT_THAT(brief(score_with(options,
                               {make_sample(0, "<think>hm</think> grün"), make_sample(1, "grün")})),
              ElementsAre("1", "0"));
}

TEST(RuleReward, CatastrophicRegexIsAnErrorNotAHang) {
  RewardOptions options = rule("regex");
  options.pattern = "^(a+)+$";
  const auto outcomes = score_with(options, {make_sample(0, std::string(60, 'a') + "b")});
  ASSERT_THAT(brief(outcomes), ElementsAre("error"));
  EXPECT_THAT(outcomes[0].error, HasSubstr("match limit"));
}

TEST(RuleReward, NumericAnswerAgainstTextAndNumberLabels) {
  EXPECT_THAT(brief(score_with(rule("numeric"),
                               {make_sample(0, "so 42", {{"label", "6*7 = #### 42"}}),
                                make_sample(1, "so 41", {{"label", 42}}),
                                make_sample(2, "#### 1,000", {{"label", 1000.0}}),
                                make_sample(3, "none", {{"label", "42"}}),
                                make_sample(4, "42", {{"label", "none"}}), make_sample(5, "42")})),
              ElementsAre("1", "0", "1", "0", "error", "error"));
}

TEST(RuleReward, ZeroAsLabelIsALabel) {
  EXPECT_THAT(brief(score_with(rule("numeric"), {make_sample(0, "0", {{"label", 0}}),
                                                 make_sample(1, "0", {{"label", nullptr}})})),
              ElementsAre("1", "error"));
}

TEST(RuleReward, ExactLabelIgnoresOuterBlanks) {
  EXPECT_THAT(brief(score_with(rule("exact"), {make_sample(0, " yes\n", {{"label", "yes"}}),
                                               make_sample(1, "yes!", {{"label", "yes"}}),
                                               make_sample(2, "yes", {{"label", Json::array()}})})),
              ElementsAre("1", "0", "error"));
}

TEST(RuleReward, LengthInTokensOrCharacters) {
  RewardOptions options = rule("length");
  options.target = 4;
  RewardSample with_ids = make_sample(0, "ab");
  with_ids.response_ids = {1, 2, 3};
  EXPECT_THAT(brief(score_with(options, {with_ids, make_sample(1, "abcd")})),
              ElementsAre("0.75", "error"));
  options.unit = "chars";
  EXPECT_THAT(brief(score_with(options, {with_ids, make_sample(1, "abcé")})),
              ElementsAre("0.5", "1"));
}

TEST(RuleReward, LcsAndDigitShare) {
  EXPECT_THAT(brief(score_with(rule("lcs"), {make_sample(0, "abcd", {{"label", "abxd"}})})),
              ElementsAre("0.75"));
  EXPECT_THAT(brief(score_with(rule("digit_share"), {make_sample(0, "12ab")})), ElementsAre("0.5"));
}

std::string refusal(const RewardOptions& options) {
  return make_reward(options).status().message();
}

TEST(CheckReward, NamesTheBadKey) {
  EXPECT_THAT(refusal(rule("numerc")), HasSubstr("did you mean 'numeric'?"));
  RewardOptions options = rule("regex");
  EXPECT_THAT(refusal(options), HasSubstr("'pattern'"));
  options.pattern = "(";
  EXPECT_THAT(refusal(options), HasSubstr("character 1"));
  EXPECT_THAT(refusal(rule("length")), HasSubstr("'target'"));
  options = rule("exact");
  options.on_error = "ignore";
  EXPECT_THAT(refusal(options), HasSubstr("stop, drop, retry, zero"));
  options = rule("exact");
  options.type = "pyton";
  EXPECT_THAT(refusal(options), HasSubstr("did you mean 'python'?"));
  options.type = "python";
  EXPECT_THAT(refusal(options), HasSubstr("'path'"));
  options.type = "command";
  EXPECT_THAT(refusal(options), HasSubstr("'command'"));
  options.type = "model";
  EXPECT_THAT(refusal(options), HasSubstr("engine"));
  options.type = "http";
  options.url = "localhost:80/x";
  EXPECT_THAT(refusal(options), HasSubstr("http://"));
  options = rule("exact");
  options.timeout_s = 0;
  EXPECT_THAT(refusal(options), HasSubstr("timeout_s"));
}

TEST(CheckReward, NamesMustDiffer) {
  EXPECT_THAT(check_rewards({rule("exact"), rule("lcs")}).message(), HasSubstr("called 'rule'"));
}

}  // namespace
}  // namespace braid::inline reward
