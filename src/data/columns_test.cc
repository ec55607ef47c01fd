#include "data/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::inline data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OrderedJson turn(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

std::string recognised(const OrderedJson& row, DataNeed need, const DataConfig& config = {}) {
  const auto columns = recognise_columns(row, need, config);
  return columns.ok() ? describe_columns(row, *columns) : columns.status().message();
}

TEST(Columns, EveryFormatIsToldByItsColumns) {
  const OrderedJson talk = OrderedJson::array({turn("user", "hi"), turn("assistant", "there")});
  const struct {
    OrderedJson row;
    DataNeed need;
    const char* description;
  } cases[] = {
      {{{"prompt", "a"}}, DataNeed::kPrompts, "prompt: 'prompt' is text"},
      {{{"ids", {1, 2}}}, DataNeed::kPrompts, "prompt: 'ids' is token ids"},
      {{{"prompt", talk}, {"label", "7"}},
       DataNeed::kPrompts,
       "prompt: 'prompt' is a conversation, 'label' is the label"},
      {{{"messages", talk}}, DataNeed::kPrompts, "messages: 'messages' is a conversation"},
      {{{"prompt", talk}, {"data_source", "gsm8k"}, {"reward_model", {{"ground_truth", "7"}}}},
       DataNeed::kPrompts,
       "prompt + reward_model (verl): 'prompt' is a conversation, 'reward_model.ground_truth' is "
       "the label"},
      {{{"messages", talk}, {"label", 1}},
       DataNeed::kSamples,
       "messages: 'messages' is a conversation, 'label' is the label"},
      {{{"prompt", "a"}, {"completion", "b"}},
       DataNeed::kSamples,
       "prompt + completion (TRL): 'prompt' is text, 'completion' is text"},
      {{{"prompt", "a"}, {"completion", "b"}, {"label", true}},
       DataNeed::kSamples,
       "prompt + completion + label (TRL, unpaired preference): 'prompt' is text, 'completion' is "
       "text, 'label' is the label"},
      {{{"prompt", "a"}, {"response", "b"}, {"label", false}},
       DataNeed::kSamples,
       "prompt + completion + label (TRL, unpaired preference): 'prompt' is text, 'response' is "
       "text, 'label' is the label"},
      {{{"prompt", "a"}, {"label", "b"}},
       DataNeed::kSamples,
       "prompt + response: 'prompt' is text, 'label' is text"},
      {{{"text", "a"}}, DataNeed::kSamples, "text (TRL, language modelling): 'text' is text"},
      {{{"prompt", "a"}, {"chosen", "b"}, {"rejected", "c"}},
       DataNeed::kPairs,
       "prompt + chosen + rejected (TRL, preference): 'prompt' is text, 'chosen' is text, "
       "'rejected' is text"},
      {{{"chosen", talk}, {"rejected", talk}},
       DataNeed::kPairs,
       "chosen + rejected (TRL, preference with the prompt inside): 'chosen' is a conversation, "
       "'rejected' is a conversation"},
      {{{"prompt", "a"}, {"response", "b"}, {"label", false}},
       DataNeed::kLabelled,
       "prompt + completion + label (TRL, unpaired preference): 'prompt' is text, 'response' is "
       "text, 'label' is the label"},
      {{{"prompt", "a"}, {"response", "b"}, {"score", -0.5}},
       DataNeed::kScored,
       "prompt + response + score: 'prompt' is text, 'response' is text, 'score' is the score"},
  };
  for (const auto& test : cases) EXPECT_EQ(recognised(test.row, test.need), test.description);
}

TEST(Columns, NullColumnsAreAbsent) {
  const OrderedJson row = {
      {"prompt", "a"}, {"ids", nullptr}, {"messages", nullptr}, {"label", nullptr}};
  EXPECT_EQ(recognised(row, DataNeed::kPrompts), "prompt: 'prompt' is text");
}

// A named column is taken, whatever else there is, and must be there.
TEST(Columns, NamedColumnsWin) {
  const OrderedJson row = {{"prompt", "a"}, {"question", "q"}, {"label", "x"}, {"answer", "7"}};
  DataConfig config;
  config.prompt_key = "question", config.label_key = "answer";
  EXPECT_EQ(recognised(row, DataNeed::kPrompts, config),
            "prompt: 'question' is text, 'answer' is the label");
  config.label_key = "solution";
  EXPECT_EQ(recognised(row, DataNeed::kPrompts, config),
            "missing key 'solution' (data.label_key); keys here: prompt, question, label, answer");
  config.label_key = "answer", config.prompt_key = "problem";
  EXPECT_THAT(recognised(row, DataNeed::kPrompts, config),
              HasSubstr("missing key 'problem' (data.prompt_key)"));
}

TEST(Columns, PathsReachIntoNestedColumns) {
  const OrderedJson row = {
      {"extra_info", {{"answer", {{"value", 7}}}}}, {"a.b", 1}, {"x", {{"y", nullptr}}}};
  EXPECT_EQ(*find_column(row, "extra_info.answer.value"), 7);
  EXPECT_EQ(*find_column(row, "a.b"), 1);
  for (const char* absent : {"x.y", "extra_info.question", "extra_info.answer.value.more", "z"})
    EXPECT_EQ(find_column(row, absent), nullptr) << absent;
}

// As a number or as the text of one (tables), in `score` or in what data.label_key names.
TEST(Columns, ScoresAreNumbers) {
  const auto scored = [](const OrderedJson& score, const DataConfig& config = {}) {
    return recognised({{"prompt", "a"}, {"completion", "b"}, {"score", score}, {"useful", 4}},
                      DataNeed::kScored, config);
  };
  for (const OrderedJson& good : {OrderedJson(1), OrderedJson(-2.5), OrderedJson("0.25")})
    EXPECT_THAT(scored(good), HasSubstr("'score' is the score")) << good;
  for (const OrderedJson& bad :
       {OrderedJson("good"), OrderedJson(true), OrderedJson("nan"), OrderedJson({1})})
    EXPECT_THAT(scored(bad), HasSubstr("key 'score' must be a finite number")) << bad;
  EXPECT_THAT(scored(nullptr), HasSubstr("missing key 'score'"));
  DataConfig config;
  config.label_key = "useful";
  EXPECT_THAT(scored("good", config), HasSubstr("'useful' is the score"));
}

TEST(Columns, DataForAnotherAlgorithmSaySo) {
  EXPECT_THAT(recognised({{"prompt", "a"}, {"response", "b"}, {"score", 1}}, DataNeed::kPairs),
              HasSubstr("squared_error, of scores"));
  EXPECT_THAT(recognised({{"prompt", "a"}, {"chosen", "b"}, {"rejected", "c"}}, DataNeed::kScored),
              HasSubstr("are for algorithm.reward_loss: pairwise"));
  for (const DataNeed need : {DataNeed::kLabelled, DataNeed::kScored})
    EXPECT_THAT(recognised({{"response", "b"}, {"score", 1}, {"label", true}}, need),
                HasSubstr("missing key 'prompt'"));
  EXPECT_THAT(recognised({{"chosen", "a"}, {"rejected", "b"}}, DataNeed::kPrompts),
              AllOf(HasSubstr("algorithm rm, dpo or orpo learns from chosen and rejected"),
                    HasSubstr("an evaluation reads prompts")));
  EXPECT_THAT(recognised({{"text", "a"}}, DataNeed::kPrompts),
              HasSubstr("data.prompt_key: text makes it the prompt"));
  EXPECT_THAT(recognised({{"prompt", "a"}, {"completion", "b"}, {"label", true}}, DataNeed::kPairs),
              HasSubstr("single answers"));
  EXPECT_THAT(recognised({{"completion", "b"}, {"label", true}}, DataNeed::kSamples),
              HasSubstr("missing key 'prompt'"));
}

}  // namespace
}  // namespace braid::inline data
