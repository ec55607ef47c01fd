#include "data/row_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>

#include "base/json.h"
#include "data/parquet.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Row {
  std::string line, where;
  int64_t place;
};

Result<std::vector<Row>> rows_of(const RowFiles& files) {
  std::vector<Row> out;
  const Status read =
      files.for_each([&](std::string_view line, int64_t place, const std::string& where) {
        out.push_back({std::string(line), where, place});
        return ok_status();
      });
  BRAID_TRY(read);
  return out;
}

class RowFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = cat(testing::TempDir(), "/braid-rows-", ::getpid());
    ASSERT_TRUE(make_folder(folder_).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(write_file_atomic(join_path(folder_, name), text).ok());
    return join_path(folder_, name);
  }
  std::string pack(const std::string& name, const std::string& text) const {
    const std::string path = join_path(folder_, name);
    gzFile file = ::gzopen(path.c_str(), "wb");
    EXPECT_EQ(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    ::gzclose(file);
    return path;
  }
  // The lines of a source; each must be found again by its place.
  std::vector<std::string> lines(const std::string& source) const {
    const auto files = RowFiles::open(source);
    if (!files.ok()) return {files.status().message()};
    const auto rows = rows_of(*files);
    if (!rows.ok()) return {rows.status().message()};
    std::vector<std::string> out;
    for (const Row& row : *rows) {
      out.push_back(row.line);
      EXPECT_EQ(*files->line_at(row.place), row.line);
    }
    return out;
  }
  std::string folder_;
};

TEST_F(RowFilesTest, OneSetOfRowsInEveryForm) {
  const std::string text = "{\"a\":1}\n{\"a\":2}\n";
  for (const std::string& path :
       {write("a.jsonl", text), write("b.json", text), write("c.txt", text),
        write("d.json", " [{\"a\":1},{\"a\":2}]"), pack("e.jsonl.gz", text),
        pack("f.json.gz", "[{\"a\":1},{\"a\":2}]"), pack("g", text)})
    EXPECT_THAT(lines(path), ElementsAre("{\"a\":1}", "{\"a\":2}")) << path;
}

TEST_F(RowFilesTest, PlacesAreNamedByFileAndLine) {
  write("1.jsonl", "x\n\ny");
  write("2.json", "[{},\n{}]");
  const auto files = RowFiles::open(folder_);
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->files(), 2u);
  const auto rows = rows_of(*files);
  std::vector<std::string> where;
  for (const Row& row : *rows) where.push_back(row.where.substr(folder_.size() + 1));
  EXPECT_THAT(where,
              ElementsAre("1.jsonl:1", "1.jsonl:2", "1.jsonl:3", "2.json, row 1", "2.json, row 2"));
  for (const Row& row : *rows) EXPECT_EQ(files->describe(row.place), row.where);
}

TEST_F(RowFilesTest, ShardsComeInTheOrderOfTheirNames) {
  for (const char* name : {"train-2.jsonl", "train-0.jsonl", "train-1.jsonl"})
    write(name, std::string(name) + "\n");
  write("README.md", "no rows");
  EXPECT_THAT(lines(folder_), ElementsAre("train-0.jsonl", "train-1.jsonl", "train-2.jsonl"));
  EXPECT_THAT(lines(folder_ + "/train-[12]*"), ElementsAre("train-1.jsonl", "train-2.jsonl"));
}

// Training on the test set must not happen in silence.
TEST_F(RowFilesTest, AFolderOfSeveralSplitsIsRefused) {
  write("train-0.jsonl", "a");
  write("test-0.jsonl", "b");
  EXPECT_THAT(lines(folder_), ElementsAre(AllOf(HasSubstr("several splits (test, train)"),
                                                HasSubstr(folder_ + "/train*"))));
  EXPECT_THAT(lines(folder_ + "/test*"), ElementsAre("b"));
}

TEST_F(RowFilesTest, WhatCannotBeReadIsSaid) {
  EXPECT_THAT(lines(folder_ + "/*.jsonl"), ElementsAre(HasSubstr("no file matches")));
  ASSERT_TRUE(make_folder(folder_ + "/main").ok());
  EXPECT_THAT(lines(folder_), ElementsAre(AllOf(HasSubstr("holds no .jsonl"), HasSubstr("main"))));
  EXPECT_THAT(lines(write("a.json", "[{}")), ElementsAre(HasSubstr("a.json: byte 3")));
  EXPECT_THAT(lines(write("a.gz", "\x1f\x8bnonsense")), ElementsAre(HasSubstr("a.gz: gzip data")));
  EXPECT_THAT(lines(folder_ + "/none"), ElementsAre(HasSubstr("none: cannot open")));
}

TEST_F(RowFilesTest, BrokenParquetIsNamed) {
  const std::string file = write("a.parquet", "PAR1 and no more");
  EXPECT_THAT(lines(file), ElementsAre(HasSubstr("a.parquet: ")));
  if (!can_read_parquet()) {
    EXPECT_THAT(lines(file), ElementsAre(HasSubstr("pip install pyarrow")));
  }
}

// tests/data/rows holds the same rows as parquet and as what pyarrow reads from it.
TEST_F(RowFilesTest, ParquetRowsAreThoseOfPyarrow) {
  if (!can_read_parquet()) GTEST_SKIP() << "built without Arrow";
  const std::string folder = std::string(BRAID_SOURCE_DIR) + "/tests/data/rows/";
  for (const char* name : {"types", "verl", "groups"}) {
    const std::vector<std::string> expected = lines(folder + name + ".jsonl"),
                                   actual = lines(folder + name + ".parquet");
    ASSERT_EQ(actual.size(), expected.size()) << name << ": " << actual[0];
    for (size_t i = 0; i < actual.size(); ++i)
      EXPECT_EQ(parse_json(actual[i], "p").value(), parse_json(expected[i], "j").value()) << name;
  }
}

}  // namespace
}  // namespace braid
