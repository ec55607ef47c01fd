#include "data/json_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::inline data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> elements(const std::string& text) {
  std::vector<std::string> out;
  const Status read = for_each_array_element(text, [&](std::string_view element) {
    out.emplace_back(element);
    return ok_status();
  });
  if (!read.ok()) out = {"error: " + read.message()};
  return out;
}

TEST(JsonArray, ElementsComeOnALineEach) {
  EXPECT_THAT(elements(" [{\"a\":\n [1,\n2]}, \"x,]\\\"\" ,3]\n"),
              ElementsAre("{\"a\":  [1, 2]}", " \"x,]\\\"\" ", "3"));
  EXPECT_THAT(elements("[]"), ElementsAre());
  EXPECT_THAT(elements("[ [] , {} ]"), ElementsAre("[] ", " {} "));
}

TEST(JsonArray, BrokenArraysNameTheByte) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "byte 0 of the JSON array: '[' is missing"},
      {"", "'[' is missing"},
      {"[1", "the file ends inside of it"},
      {"[1,]", "an element is missing"},
      {"[,1]", "an element is missing"},
      {"[1] 2", "byte 4 of the JSON array: more behind its end"},
      {"[\"a\n\"]", "a line break inside of a text"},
      {"[\"a\\\n\"]", "a line break inside of a text"},
      {"[\"a", "a text without an end"},
      {"[\"a\\", "a line break inside of a text"},
      {"[1}]", "a bracket that nothing opened"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_THAT(elements(text).back(), HasSubstr(message)) << text;
}

TEST(JsonArray, AFailedVisitEndsIt) {
  int seen = 0;
  const Status read = for_each_array_element("[1,2,3]", [&](std::string_view) {
    return ++seen == 2 ? invalid_input("enough") : ok_status();
  });
  EXPECT_EQ(read.message(), "enough");
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace braid::inline data
