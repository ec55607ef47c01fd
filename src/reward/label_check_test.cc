#include "reward/label_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::inline reward {
namespace {

using ::testing::HasSubstr;

std::string message(const std::string& rule, const Json& extra,
                    const std::string& on_error = "stop", const std::string& pattern = "") {
  RewardConfig options;
  options.type = "rule";
  options.rule = rule, options.on_error = on_error, options.pattern = pattern;
  return check_label(options, extra).message();
}

TEST(LabelCheck, RulesThatCompareNeedALabelOfTheirType) {
  for (const char* rule : {"numeric", "exact", "lcs", "contains"}) {
    EXPECT_THAT(message(rule, Json::object()), HasSubstr("data.label_key")) << rule;
    EXPECT_THAT(message(rule, {{"label", nullptr}}), HasSubstr("data.label_key")) << rule;
    EXPECT_THAT(message(rule, {{"label", {1}}}), HasSubstr("text or a number")) << rule;
    EXPECT_EQ(message(rule, {{"label", "7"}}), "") << rule;
    EXPECT_EQ(message(rule, Json::object(), "drop"), "") << rule;
  }
  EXPECT_THAT(message("numeric", {{"label", "seven"}}), HasSubstr("holds no number"));
  EXPECT_THAT(message("contains", {{"label", ""}}), HasSubstr("is empty"));
}

TEST(LabelCheck, OthersNeedNone) {
  for (const char* rule : {"length", "digit_share", "regex"})
    EXPECT_EQ(message(rule, Json::object()), "") << rule;
  EXPECT_EQ(message("contains", Json::object(), "stop", "yes"), "");
  RewardConfig http;
  http.type = "http";
  EXPECT_TRUE(check_label(http, Json::object()).ok());
}

}  // namespace
}  // namespace braid::inline reward
