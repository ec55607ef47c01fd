#include "data/row_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>

#include "base/json.h"
#include "data/arrow_rows.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid::inline data {
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
  if (!can_read_arrow()) {
    EXPECT_THAT(lines(file), ElementsAre(HasSubstr("pip install pyarrow")));
  }
}

std::string golden(const std::string& name) {
  return cat(BRAID_SOURCE_DIR, "/tests/data/rows/", name);
}

// tests/data/rows holds the same rows as tables and as what pyarrow reads from them.
TEST_F(RowFilesTest, RowsOfArrowAreThoseOfPyarrow) {
  if (!can_read_arrow()) GTEST_SKIP() << "built without Arrow";
  for (const char* name :
       {"types.parquet", "verl.parquet", "groups.parquet", "types-stream.arrow", "types-file.arrow",
        "types.feather", "verl-stream.arrow", "verl-file.arrow", "verl.feather"}) {
    const std::string stem = std::string(name).substr(0, std::string(name).find_first_of("-."));
    const std::vector<std::string> expected = lines(golden(stem + ".jsonl")),
                                   actual = lines(golden(name));
    ASSERT_EQ(actual.size(), expected.size()) << name << ": " << actual[0];
    for (size_t i = 0; i < actual.size(); ++i)
      EXPECT_EQ(parse_json(actual[i], "p").value(), parse_json(expected[i], "j").value()) << name;
  }
}

TEST_F(RowFilesTest, CsvIsWhatPythonWrites) {
  const std::vector<std::string> expected = lines(golden("csv.jsonl"));
  const std::string packed = pack("plain.csv.gz", *read_file(golden("plain.csv")));
  for (const std::string& path :
       {golden("plain.csv"), golden("plain.tsv"), golden("unix.csv"), packed}) {
    const std::vector<std::string> actual = lines(path);
    ASSERT_EQ(actual.size(), expected.size()) << path << ": " << actual[0];
    for (size_t i = 0; i < actual.size(); ++i)
      EXPECT_EQ(parse_json(actual[i], "c").value(), parse_json(expected[i], "j").value()) << path;
  }
  EXPECT_THAT(lines(write("a.csv", "a,b\n1\n")), ElementsAre(HasSubstr("a.csv: line 2: 1 field")));
}

// Folders that save_to_disk() of `datasets` wrote.
TEST_F(RowFilesTest, SavedDataSetsAreTheirFiles) {
  if (!can_read_arrow()) GTEST_SKIP() << "built without Arrow";
  const std::vector<std::string> rows = lines(golden("saved"));
  ASSERT_EQ(rows.size(), 5u) << rows[0];
  EXPECT_EQ(rows[4],
            R"({"messages":[{"role":"user","content":"4+1?"},{"role":"assistant","content":"5"}],)"
            R"("n":4})");
  const auto files = RowFiles::open(golden("saved"));
  const auto described = rows_of(*files);
  EXPECT_THAT((*described)[3].where, HasSubstr("data-00001-of-00002.arrow, row 1"));
  EXPECT_EQ(lines(golden("saved_dict/train")), rows);
  EXPECT_THAT(
      lines(golden("saved_dict")),
      ElementsAre(AllOf(HasSubstr("several splits (train, test)"), HasSubstr("saved_dict/train"))));
}

TEST_F(RowFilesTest, BrokenSavedDataSetsAreNamed) {
  write("dataset_info.json", "{}");
  write("state.json", R"({"_data_files": [{"filename": "data-0.arrow"}]})");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("data-0.arrow: the file is missing")));
  write("state.json", R"({"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]})");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("flatten_indices()")));
  write("state.json", "{}");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("state.json: '_data_files' does not list")));
  write("state.json", "{");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("state.json")));
  write("dataset_dict.json", R"({"splits": ["only"]})");
  std::filesystem::remove(folder_ + "/state.json");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("only/state.json")));
}

// Arrow itself takes the end of the file for that of the stream.
TEST_F(RowFilesTest, ACutOffStreamIsRefused) {
  if (!can_read_arrow()) GTEST_SKIP() << "built without Arrow";
  const std::string whole = *read_file(golden("verl-stream.arrow"));
  EXPECT_THAT(lines(write("a.arrow", whole.substr(0, whole.size() - 8))),
              ElementsAre(HasSubstr("a.arrow: the Arrow stream has no end mark")));
  EXPECT_THAT(lines(write("b.arrow", whole.substr(0, whole.size() / 2))),
              ElementsAre(HasSubstr("b.arrow: ")));
}

TEST_F(RowFilesTest, OtherFilesAreCalledByTheirNames) {
  const struct {
    const char *name, *content, *message;
  } cases[] = {
      {"a.jsonl.gz", "{}\n", "it is not packed with gzip"},
      {"a.parquet", "{}\n", "its name ends in .parquet"},
      {"a.arrow", "", "its name ends in .arrow"},
      {"a.jsonl", "PK\x03\x04", "a zip archive"},
      {"a.jsonl.zst", "\x28\xB5\x2F\xFD", "zstd"},
      {"b.parquet", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
      {"b.jsonl", "<!DOCTYPE html>", "a web page"},
  };
  for (const auto& test : cases)
    EXPECT_THAT(lines(write(test.name, test.content)), ElementsAre(HasSubstr(test.message)));
  EXPECT_THAT(lines(pack("a.tar.gz", "x")), ElementsAre(HasSubstr("an archive of files")));
}

TEST_F(RowFilesTest, FoldersOfOtherThingsAreRefused) {
  write("config.json", "{}"), write("tokenizer.json", "{}");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("is a model's folder, not data")));
  std::filesystem::remove(folder_ + "/tokenizer.json");
  std::filesystem::remove(folder_ + "/config.json");
  write("manifest.json", "{}"), write("state.json", "{}");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("is a checkpoint of a run, not data")));
  std::filesystem::remove(folder_ + "/manifest.json");
  EXPECT_THAT(lines(folder_), ElementsAre(HasSubstr("it holds state.json")));
}

// What would be trained on twice, or on the test set.
TEST_F(RowFilesTest, FoldersOfOneRowTwiceAreRefused) {
  write("a.jsonl", "1\n"), write("a.csv", "x\n1\n");
  EXPECT_THAT(lines(folder_),
              ElementsAre(AllOf(HasSubstr("a.csv and a.jsonl"), HasSubstr(folder_ + "/*.jsonl"))));
  std::filesystem::remove(folder_ + "/a.csv");
  std::filesystem::rename(folder_ + "/a.jsonl", folder_ + "/set-train.jsonl");
  write("set-test.jsonl", "2\n");
  EXPECT_THAT(lines(folder_), ElementsAre(AllOf(HasSubstr("several splits (test, train)"),
                                                HasSubstr(folder_ + "/*train*"))));
}

}  // namespace
}  // namespace braid::inline data
