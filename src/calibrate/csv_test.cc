#include "calibrate/csv.h"

#include <gtest/gtest.h>

namespace braid::inline calibrate {
namespace {

std::string csv_failure(const std::string& text) {
  const auto table = parse_csv(text, "t.csv");
  EXPECT_EQ(table.status().code(), Code::kInvalidInput);
  return table.status().message();
}

TEST(Csv, ReadsQuotesLineEndsAndCountsLines) {
  const auto table = parse_csv("a,b\r\n1,\"x, \"\"y\"\"\nz\"\n\n3,\n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(table->header, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->rows[0].cells, (std::vector<std::string>{"1", "x, \"y\"\nz"}));
  EXPECT_EQ(table->rows[0].line, 2);
  EXPECT_EQ(table->rows[1].cells, (std::vector<std::string>{"3", ""}));
  EXPECT_EQ(table->rows[1].line, 5);
}

TEST(Csv, AByteOrderMarkIsNoPartOfTheFirstName) {
  const auto table = parse_csv("\xEF\xBB\xBFid,b\r\n1,2\r\n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(table->header, (std::vector<std::string>{"id", "b"}));
  EXPECT_EQ(table->rows.front().cells, (std::vector<std::string>{"1", "2"}));
}

TEST(Csv, ErrorsNameTheLine) {
  EXPECT_EQ(csv_failure(" \n"), "t.csv:1: the file is empty; a header line is needed");
  EXPECT_EQ(csv_failure("a,,b\n"), "t.csv:1: a column has no name");
  EXPECT_EQ(csv_failure("a,b,a\n"), "t.csv:1: column 'a' is there twice");
  EXPECT_EQ(csv_failure("a,b\n1,2\n1,2,3\n"),
            "t.csv:3: 3 cells, but the header has 2; quote a cell that holds a comma");
  EXPECT_EQ(csv_failure("a\n\"x\n"), "t.csv:2: a quote is never closed");
  EXPECT_EQ(csv_failure("a,b\n1,\"x\"y\n"),
            "t.csv:2: text after a closing quote; double the quote inside");
}

}  // namespace
}  // namespace braid::inline calibrate
