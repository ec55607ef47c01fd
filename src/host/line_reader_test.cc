#include "host/line_reader.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {
namespace {

using ::testing::HasSubstr;
using Lines = std::vector<std::pair<std::string, int64_t>>;

class LineReaderTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  LineReader opened(const std::string& text) const {
    EXPECT_TRUE(write_file_atomic(path_, text).ok());
    return std::move(LineReader::open(path_)).value();
  }
  const std::string path_ = cat(testing::TempDir(), "/braid_lines_", ::getpid());
};

Lines lines_of(const LineReader& reader) {
  Lines out;
  const Status read = reader.for_each([&](std::string_view line, int64_t begin) {
    out.emplace_back(line, begin);
    return ok_status();
  });
  EXPECT_TRUE(read.ok()) << read.message();
  return out;
}

TEST_F(LineReaderTest, GivesLinesWithTheirPlaces) {
  const std::vector<std::pair<std::string, Lines>> cases = {
      {"", {}},
      {"\n", {{"", 0}}},
      {"a", {{"a", 0}}},
      {"a\n", {{"a", 0}}},
      {"ab\n\nc", {{"ab", 0}, {"", 3}, {"c", 4}}},
      {"ab\r\n c\n", {{"ab\r", 0}, {" c", 4}}}};
  for (const auto& [text, lines] : cases) {
    EXPECT_EQ(lines_of(LineReader::of_text(text, "x")), lines) << text;
    EXPECT_EQ(lines_of(opened(text)), lines) << text;
  }
}

// Lines of every length around the sizes of the blocks that are read at once.
TEST_F(LineReaderTest, LinesOfAnyLengthComeBack) {
  std::string text;
  std::vector<std::string> lines;
  for (const size_t length : {1u, 4095u, 4096u, 4097u, 262143u, 262144u, 900000u, 3u}) {
    lines.emplace_back(length, static_cast<char>('a' + lines.size()));
    text += lines.back() + "\n";
  }
  const LineReader reader = opened(text);
  const Lines found = lines_of(reader);
  ASSERT_EQ(found.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(found[i].first, lines[i]);
    EXPECT_EQ(*reader.line_at(found[i].second), lines[i]);
  }
  EXPECT_EQ(reader.held_bytes(), 0);
}

TEST_F(LineReaderTest, AFailureOfTheVisitorEndsThePass) {
  int visited = 0;
  const Status status =
      LineReader::of_text("a\nb\nc\n", "x").for_each([&](std::string_view line, int64_t) {
        ++visited;
        return line == "b" ? invalid_input("no b") : ok_status();
      });
  EXPECT_EQ(status.message(), "no b");
  EXPECT_EQ(visited, 2);
}

TEST_F(LineReaderTest, ReplacingTheFileByNameChangesNothing) {
  const LineReader reader = opened("one\ntwo\n");
  ASSERT_TRUE(write_file_atomic(path_, "other\n").ok());
  EXPECT_EQ(*reader.line_at(4), "two");
}

TEST_F(LineReaderTest, WhatCannotBeOpenedIsNamed) {
  EXPECT_THAT(LineReader::open("/no/such/file").status().message(), HasSubstr("/no/such/file"));
  EXPECT_THAT(LineReader::open(testing::TempDir()).status().message(), HasSubstr("is a folder"));
}

TEST_F(LineReaderTest, APipeIsHeld) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "a\nb\n", 4), 4);
  ::close(ends[1]);
  const auto reader = LineReader::open(cat("/dev/fd/", ends[0]));
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->held_bytes(), 4);
  EXPECT_EQ(*reader->line_at(2), "b");
  ::close(ends[0]);
}

}  // namespace
}  // namespace braid::inline host
