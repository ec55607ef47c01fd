#include "data/csv_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace braid::inline data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> csv_rows(std::string_view text, char separator = ',') {
  std::vector<std::string> out;
  const Status read = for_each_csv_row(text, separator, [&](std::string_view row) {
    out.emplace_back(row);
    return ok_status();
  });
  if (!read.ok()) out.push_back(read.message());
  return out;
}

TEST(CsvRows, QuotesHoldSeparatorsBreaksAndQuotes) {
  EXPECT_THAT(csv_rows("a,b\n1,\"x,\n\"\"y\"\"\"\n"), ElementsAre(R"({"a":"1","b":"x,\n\"y\""})"));
  EXPECT_THAT(csv_rows("\xEF\xBB\xBF"
                       "a,b\r\n1,2\r\n\r\n3,\"\"\r\n"),
              ElementsAre(R"({"a":"1","b":"2"})", R"({"a":"3","b":""})"));
  EXPECT_THAT(csv_rows("a\tb\n1,5\t", '\t'), ElementsAre(R"({"a":"1,5","b":null})"));
  EXPECT_THAT(csv_rows(",a\n0,x"), ElementsAre(R"({"Unnamed: 0":"0","a":"x"})"));
  EXPECT_THAT(csv_rows("a\rx \"y\"\r"), ElementsAre(R"({"a":"x \"y\""})"));
  EXPECT_THAT(csv_rows("a\n"), ElementsAre());
}

TEST(CsvRows, ErrorsNameTheLine) {
  const struct {
    const char *text, *message;
  } cases[] = {
      {"a,b\n\"x\ny\",2\n1\n", "line 4: 1 field for 2 columns (a, b)"},
      {"a\n1,2\n", "line 2: 2 fields for 1 column (a)"},
      {"a,b,a\n", "line 1: two columns are called 'a'"},
      {"a\n\"x\"y\n", "line 2: text after a closing quote"},
      {"a\n1\n\"", "line 3: a quote is never closed"},
      {"a\n\"x\n\n", "line 2: a quote is never closed"},
      {"a;b\n1;2\n", "line 1: the only column is 'a;b'"},
      {"a\nx\xff\n", "line 2: not UTF-8"},
      {"\xff\xfe"
       "a",
       "the file is in UTF-16"},
  };
  for (const auto& test : cases)
    EXPECT_THAT(csv_rows(test.text).back(), HasSubstr(test.message)) << test.text;
}

TEST(CsvRows, AVisitMayEndIt) {
  const Status ended =
      for_each_csv_row("a\n1\n2\n", ',', [](std::string_view) { return invalid_input("enough"); });
  EXPECT_EQ(ended.message(), "enough");
}

}  // namespace
}  // namespace braid::inline data
