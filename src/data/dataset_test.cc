#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/text.h"
#include "data/data_check.h"
#include "data/task.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid::inline data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string lines_of_ids(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += Json{{"ids", {i, i + 1}}, {"label", i}}.dump() + "\n";
  return text;
}

Result<DataSet> prompts(const std::string& text, const DataConfig& config) {
  return make_data_set(RowFiles::of(LineReader::of_text(text, "f.jsonl")), DataNeed::kPrompts,
                       nullptr, config);
}

// First ids of the prompts at positions begin .. end-1.
std::vector<int32_t> order(const DataSet& data, int64_t begin, int64_t end) {
  std::vector<int32_t> out;
  for (int64_t i = begin; i < end; ++i) out.push_back(data.at(i)->prompt_ids[0]);
  return out;
}

TEST(DataSet, EveryEpochIsADifferentPermutation) {
  const auto data = prompts(lines_of_ids(37), {});
  ASSERT_TRUE(data.ok()) << data.status().message();
  std::vector<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    orders.push_back(order(*data, epoch * 37, epoch * 37 + 37));
    EXPECT_EQ(std::set<int32_t>(orders.back().begin(), orders.back().end()).size(), 37u);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

// A cursor of an old checkpoint must mean the same record for ever.
TEST(DataSet, TheOrderOfASeedNeverChanges) {
  DataConfig config;
  config.seed = 5;
  const auto data = prompts(lines_of_ids(37), config);
  EXPECT_THAT(order(*data, 0, 8), ElementsAre(4, 32, 26, 18, 19, 25, 1, 31));
}

// Both orders: where an index comes next is what at() says there.
TEST(DataSet, NextPositionFindsARecord) {
  for (const bool shuffle : {true, false}) {
    DataConfig config;
    config.shuffle = shuffle;
    const auto data = prompts(lines_of_ids(37), config);
    for (int64_t index = 0; index < 37; ++index)
      for (const int64_t begin : {0, 20, 70}) {
        const int64_t found = data->next_position(index, begin);
        EXPECT_GE(found, begin);
        EXPECT_LT(found, begin + 2 * 37);
        EXPECT_EQ(data->at(found)->prompt_ids[0], index);
      }
  }
}

// More lines than are looked at together.
class LargeDataSet : public testing::Test {
 protected:
  static constexpr int kLines = 6000;
  static Result<DataSet> load(const std::string& text, const std::string& overlong = "error") {
    DataConfig config;
    config.overlong = overlong;
    LoadingOptions options;
    options.check_s = 1e-9;
    options.check = [](const DataRecord& record) {
      return record.prompt_ids[0] == 5500 ? invalid_input("5500 is too large") : ok_status();
    };
    return make_data_set(RowFiles::of(LineReader::of_text(text, "f.jsonl")), DataNeed::kPrompts,
                         nullptr, config, options);
  }
  static void wait(const DataCheck& check) {
    while (!check.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

TEST_F(LargeDataSet, TheRestIsCheckedLater) {
  const std::string text = lines_of_ids(5500);
  const auto whole = prompts(text, {});
  const auto data = load(text);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->size(), 5500);
  EXPECT_LT(data->checked(), 5500);
  EXPECT_EQ(data->sha256(), "");
  EXPECT_EQ(data->lines_sha256(), whole->lines_sha256());
  EXPECT_EQ(order(*data, 0, 5500), order(*whole, 0, 5500));
  DataCheck check(*data);
  wait(check);
  EXPECT_EQ(check.sha256(), whole->sha256());
  EXPECT_TRUE(check.take_bad_rows().empty());
}

TEST_F(LargeDataSet, BadRowsAreNamedAndNeverUsed) {
  std::string text = lines_of_ids(kLines);
  text.replace(text.find("{\"ids\":[5000,"), 6, "{\"idz\"");
  const auto data = load(text);
  ASSERT_TRUE(data.ok()) << data.status().message();
  DataCheck check(*data);
  wait(check);
  const auto rows = check.take_bad_rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0].message, HasSubstr("f.jsonl:5001: "));
  EXPECT_EQ(rows[1].message, "f.jsonl:5501: 5500 is too large");
  EXPECT_EQ(check.sha256(), "");
  for (const BadRow& row : rows) EXPECT_EQ(data->record(row.index).status().message(), row.message);
  EXPECT_TRUE(check.take_bad_rows().empty());
}

// How many rows are left out decides the order of the others.
TEST_F(LargeDataSet, AllAreCheckedWhereRowsMayBeLeftOut) {
  EXPECT_THAT(load(lines_of_ids(kLines), "drop").status().message(),
              HasSubstr("f.jsonl:5501: 5500 is too large"));
}

TEST(DataSet, OverlongPolicies) {
  const std::string text = lines_of_ids(2) + "{\"ids\": [1, 2, 3, 4, 5]}\n{\"ids\": [9]}\n";
  DataConfig config;
  config.max_prompt_length = 3;
  config.shuffle = false;
  EXPECT_THAT(prompts(text, config).status().message(),
              HasSubstr("f.jsonl:3: the prompt has 5 tokens"));
  config.overlong = "drop";
  const auto dropped = prompts(text, config);
  EXPECT_EQ(dropped->dropped(), 1);
  EXPECT_EQ(dropped->lines(), 4);
  EXPECT_THAT(order(*dropped, 0, 3), ElementsAre(0, 1, 9));
  config.overlong = "truncate_left";
  const auto cut = prompts(text, config);
  EXPECT_EQ(cut->truncated(), 1);
  EXPECT_THAT(cut->at(2)->prompt_ids, ElementsAre(3, 4, 5));
  EXPECT_EQ(cut->prompt_lengths().most, 3);
  EXPECT_EQ(cut->prompt_lengths().total, 2 + 2 + 3 + 1);
}

TEST(DataSet, BadLinesAreNamed) {
  EXPECT_THAT(prompts("{\"ids\": [1]}\n{x\n", {}).status().message(), HasSubstr("f.jsonl:2"));
  EXPECT_THAT(prompts("{}", {}).status().message(), HasSubstr("missing key 'prompt'"));
  EXPECT_THAT(prompts("{\"prompt\": \"a\"}", {}).status().message(), HasSubstr("no tokenizer"));
  EXPECT_FALSE(make_data_set(RowFiles::of(LineReader::of_text("{\"ids\": [1]}", "f")),
                             DataNeed::kPairs, nullptr, {})
                   .ok());
}

// Records are made on several threads, in batches of lines: the first bad line is the one named.
TEST(DataSet, TheFirstOfManyBadLinesIsNamed) {
  std::string text = lines_of_ids(9000);
  for (const int line : {8000, 5001, 5000, 4999}) {
    size_t begin = 0;
    for (int i = 1; i < line; ++i) begin = text.find('\n', begin) + 1;
    text[begin] = 'x';
    EXPECT_THAT(prompts(text, {}).status().message(), HasSubstr(cat("f.jsonl:", line)));
  }
}

TEST(DataSet, ExtraFieldsAreKept) {
  DataConfig config;
  config.label_key = "answer";
  const auto data = prompts("{\"ids\": [1], \"answer\": \"7\", \"source\": \"s\"}", config);
  EXPECT_EQ(data->at(0)->extra, (Json{{"answer", "7"}, {"label", "7"}, {"source", "s"}}));
}

// The hash sees every line, not only the first ones, and the ids beside the text.
TEST(DataSet, AnyChangedLineChangesTheHash) {
  const std::string text = lines_of_ids(2000);
  const std::string sum = prompts(text, {})->sha256();
  EXPECT_EQ(prompts(text, {})->sha256(), sum);
  EXPECT_EQ(prompts("\n" + text + "\n", {})->sha256(), sum) << "blank lines do not count";
  std::string changed = text;
  const size_t label = changed.rfind("1999}");
  ASSERT_NE(label, std::string::npos);
  changed[label] = '2';
  EXPECT_NE(prompts(changed, {})->sha256(), sum);
  const auto tokenizer =
      load_tokenizer(std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model");
  ASSERT_TRUE(tokenizer.ok());
  DataConfig templated;
  templated.prompt_template = "1{prompt}";
  const auto hash_of = [&](const DataConfig& config) {
    return make_data_set(RowFiles::of(LineReader::of_text("{\"prompt\": \"23\"}", "f")),
                         DataNeed::kPrompts, &*tokenizer, config)
        ->sha256();
  };
  EXPECT_NE(hash_of({}), hash_of(templated)) << "the same line as other ids";
}

// A check of the caller's sees every usable record, and its error the place.
TEST(DataSet, ChecksNameTheLine) {
  LoadingOptions options;
  options.check = [](const DataRecord& record) {
    return record.prompt_ids[0] == 5 ? invalid_input("five") : ok_status();
  };
  const auto data = make_data_set(RowFiles::of(LineReader::of_text(lines_of_ids(9), "f.jsonl")),
                                  DataNeed::kPrompts, nullptr, {}, options);
  EXPECT_THAT(data.status().message(), HasSubstr("f.jsonl:6: five"));
}

// sft learns from completions that are good ones; the others are counted.
TEST(DataSet, UnwantedCompletionsAreLeftOut) {
  const auto of = [](const std::string& text) {
    return make_data_set(RowFiles::of(LineReader::of_text(text, "f.jsonl")), DataNeed::kSamples,
                         nullptr, {});
  };
  const std::string bad = "{\"prompt\": [1], \"completion\": [2], \"label\": false}\n",
                    good = "{\"prompt\": [3], \"completion\": [4], \"label\": true}\n";
  const auto data = of(bad + good + bad);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->size(), 1);
  EXPECT_EQ(data->unwanted(), 2);
  EXPECT_EQ(data->rows_of(RowFormat::kUnpaired), 1);
  EXPECT_THAT(data->at(0)->prompt_ids, ElementsAre(3));
  EXPECT_THAT(of(bad).status().message(), HasSubstr("the label of 1 is false"));
  const auto response = of("{\"prompt\": [1], \"response\": [2], \"label\": false}\n" + good);
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_EQ(response->unwanted(), 1);
}

// kto learns from both kinds; of a pair each response is a row.
TEST(DataSet, LabelledResponsesAreAllRows) {
  DataConfig in_order;
  in_order.shuffle = false;
  const auto of = [&](const std::string& text) {
    return make_data_set(RowFiles::of(LineReader::of_text(text, "f.jsonl")), DataNeed::kLabelled,
                         nullptr, in_order);
  };
  const auto data =
      of("{\"prompt\": [1], \"completion\": [2], \"label\": false}\n"
         "{\"prompt\": [3], \"chosen\": [4, 5], \"rejected\": [6], \"label\": \"text\"}\n"
         "{\"prompt\": [7], \"response\": [8], \"label\": \"True\"}\n");
  ASSERT_TRUE(data.ok()) << data.status().message();
  std::vector<std::vector<int32_t>> responses;
  std::vector<bool> unwanted;
  for (int64_t i = 0; i < data->size(); ++i) {
    responses.push_back(data->at(i)->response_ids);
    unwanted.push_back(data->at(i)->unwanted);
  }
  EXPECT_THAT(responses,
              ElementsAre(ElementsAre(2), ElementsAre(4, 5), ElementsAre(6), ElementsAre(8)));
  EXPECT_THAT(unwanted, ElementsAre(true, false, true, false));
  EXPECT_EQ(data->response_lengths().total, 5);
  EXPECT_EQ(data->unwanted(), 0);
  EXPECT_THAT(of("{\"prompt\": [1], \"completion\": [2]}\n").status().message(),
              HasSubstr("missing key 'label'"));
  EXPECT_THAT(of("{\"prompt\": [1], \"completion\": [2], \"label\": 3}\n").status().message(),
              HasSubstr("must be true or false, not 3"));
}

class DataFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ = cat(testing::TempDir(), "/braid-data-", ::getpid(), ".jsonl");
};

// Memory grows by the index alone: 12 bytes per line, however long the lines are.
TEST_F(DataFile, HoldsTwelveBytesPerLine) {
  constexpr int kLines = 20000;
  {
    std::ofstream file(path_);
    const std::string padding(500, 'x');
    for (int i = 0; i < kLines; ++i)
      file << Json{{"ids", {i, i + 1}}, {"note", padding}}.dump() << "\n";
  }
  const auto data = load_data_set(path_, DataNeed::kPrompts, nullptr, {});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->size(), kLines);
  EXPECT_EQ(data->held_bytes(), 12 * kLines);
  const std::vector<int32_t> first = order(*data, 0, kLines);
  EXPECT_EQ(std::set<int32_t>(first.begin(), first.end()).size(), static_cast<size_t>(kLines));
}

TEST_F(DataFile, AFileAndTheSameTextGiveTheSameRecords) {
  const std::string text = lines_of_ids(100);
  ASSERT_TRUE(write_file_atomic(path_, text).ok());
  const auto file = load_data_set(path_, DataNeed::kPrompts, nullptr, {}), held = prompts(text, {});
  EXPECT_EQ(order(*file, 0, 250), order(*held, 0, 250));
  EXPECT_EQ(file->sha256(), held->sha256());
  EXPECT_EQ(file->at(120)->extra, held->at(120)->extra);
}

// Lines that are appended or replaced by another file of the name leave a loaded data set alone; a
// line that changes in its place is an error, not other data.
TEST_F(DataFile, ChangesInPlaceAreNoticed) {
  ASSERT_TRUE(write_file_atomic(path_, lines_of_ids(9)).ok());
  DataConfig config;
  config.shuffle = false;
  const auto data = load_data_set(path_, DataNeed::kPrompts, nullptr, config);
  { std::ofstream(path_, std::ios::app) << "{\"ids\": [77]}\n"; }
  EXPECT_THAT(order(*data, 0, 10), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 0));
  {
    std::fstream file(path_, std::ios::in | std::ios::out);
    file.seekp(9);  // the first id of the first line
    file << '4';
  }
  EXPECT_THAT(data->at(0).status().message(),
              AllOf(HasSubstr(path_), HasSubstr(":1: "), HasSubstr("was changed")));
  EXPECT_TRUE(data->at(1).ok());
  std::filesystem::resize_file(path_, 3);
  EXPECT_EQ(data->at(5).status().code(), Code::kDataLoss);
}

TEST(Task, IsRightAndRepeatable) {
  const auto text = task_text("sum_digits", 50, 3);
  EXPECT_EQ(*text, *task_text("sum_digits", 50, 3));
  EXPECT_NE(*text, *task_text("sum_digits", 50, 4));
  int count = 0;
  const Status read =
      LineReader::of_text(*text, "task").for_each([&](std::string_view row, int64_t) {
        ++count;
        const Json line = parse_json(row, "task").value();
        int total = 0;
        for (const char c : line["prompt"].get<std::string>())
          if (c >= '0' && c <= '9') total += c - '0';
        EXPECT_EQ(line["label"], std::to_string(total));
        EXPECT_EQ(line["chosen"], line["label"]);
        EXPECT_NE(line["rejected"], line["label"]);
        return ok_status();
      });
  EXPECT_TRUE(read.ok());
  EXPECT_EQ(count, 50);
  EXPECT_THAT(task_text("revese", 1, 0).status().message(), HasSubstr("did you mean 'reverse'"));
}

TEST(Task, SourcesSayHowManyLines) {
  const DataConfig config;
  const auto tokenizer =
      load_tokenizer(std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto counted = load_data_set("task:reverse:77", DataNeed::kPairs, &*tokenizer, config);
  ASSERT_TRUE(counted.ok()) << counted.status().message();
  EXPECT_EQ(counted->size(), 77);
  for (const char* bad : {"task:reverse:0", "task:reverse:x", "task:reverse:5:6"})
    EXPECT_THAT(load_data_set(bad, DataNeed::kPairs, &*tokenizer, config).status().message(),
                HasSubstr("a number of lines from 1 to"));
}

}  // namespace
}  // namespace braid::inline data
