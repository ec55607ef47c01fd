#include "data/dataset.h"

#include <gtest/gtest.h>

#include <set>

namespace braid {
namespace {

std::vector<Json> lines_of_ids(int count) {
  std::vector<Json> lines;
  for (int i = 0; i < count; ++i) lines.push_back({{"ids", {i, i + 1}}, {"label", i}});
  return lines;
}

TEST(DataSet, EveryEpochIsADifferentPermutation) {
  DataConfig config;
  const auto data = make_data_set(lines_of_ids(37), "x", DataNeed::kPrompts, nullptr, config);
  ASSERT_TRUE(data.ok()) << data.status().message();
  std::vector<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> order;
    for (int i = 0; i < 37; ++i) order.push_back(data->at(epoch * 37 + i).prompt_ids[0]);
    EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), 37u);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(DataSet, OverlongPolicies) {
  std::vector<Json> lines = lines_of_ids(2);
  lines.push_back({{"ids", {1, 2, 3, 4, 5}}});
  DataConfig config;
  config.max_prompt_length = 3;
  config.shuffle = false;
  const Status refused =
      make_data_set(lines, "f.jsonl", DataNeed::kPrompts, nullptr, config).status();
  EXPECT_NE(refused.message().find("f.jsonl:3: the prompt has 5 tokens"), std::string::npos);
  config.overlong = "drop";
  EXPECT_EQ(make_data_set(lines, "f", DataNeed::kPrompts, nullptr, config)->dropped(), 1);
  config.overlong = "truncate_left";
  EXPECT_EQ(make_data_set(lines, "f", DataNeed::kPrompts, nullptr, config)->at(2).prompt_ids,
            (std::vector<int32_t>{3, 4, 5}));
}

TEST(DataSet, BadLinesAreNamed) {
  EXPECT_NE(parse_jsonl("{}\n{x\n", "f.jsonl").status().message().find("f.jsonl:2"),
            std::string::npos);
  const DataConfig config;
  EXPECT_NE(make_data_set({Json::object()}, "f", DataNeed::kPrompts, nullptr, config)
                .status()
                .message()
                .find("missing key 'prompt'"),
            std::string::npos);
  EXPECT_NE(make_data_set({{{"prompt", "a"}}}, "f", DataNeed::kPrompts, nullptr, config)
                .status()
                .message()
                .find("no tokenizer"),
            std::string::npos);
  EXPECT_FALSE(make_data_set({{{"ids", {1}}}}, "f", DataNeed::kPairs, nullptr, config).ok());
}

TEST(DataSet, ExtraFieldsAreKept) {
  const auto data = make_data_set({{{"ids", {1}}, {"answer", "7"}, {"source", "s"}}}, "f",
                                  DataNeed::kPrompts, nullptr, [] {
                                    DataConfig config;
                                    config.label_key = "answer";
                                    return config;
                                  }());
  EXPECT_EQ(data->at(0).extra, (Json{{"label", "7"}, {"source", "s"}}));
}

TEST(DataSet, TasksAreRightAndRepeatable) {
  const auto lines = task_lines("sum_digits", 50, 3);
  EXPECT_EQ(*lines, *task_lines("sum_digits", 50, 3));
  EXPECT_NE(*lines, *task_lines("sum_digits", 50, 4));
  for (const Json& line : *lines) {
    int total = 0;
    for (const char c : line["prompt"].get<std::string>())
      if (c >= '0' && c <= '9') total += c - '0';
    EXPECT_EQ(line["label"], std::to_string(total));
    EXPECT_EQ(line["chosen"], line["label"]);
    EXPECT_NE(line["rejected"], line["label"]);
  }
  DataConfig config;
  const auto tokenizer =
      load_tokenizer(std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto counted = load_data_set("task:reverse:77", DataNeed::kPairs, &*tokenizer, config);
  ASSERT_TRUE(counted.ok()) << counted.status().message();
  EXPECT_EQ(counted->size(), 77);
  for (const char* bad : {"task:reverse:0", "task:reverse:x", "task:reverse:5:6"})
    EXPECT_NE(load_data_set(bad, DataNeed::kPairs, &*tokenizer, config)
                  .status()
                  .message()
                  .find("a number of lines from 1 to"),
              std::string::npos);
  EXPECT_NE(task_lines("revese", 1, 0).status().message().find("did you mean 'reverse'"),
            std::string::npos);
}

}  // namespace
}  // namespace braid
