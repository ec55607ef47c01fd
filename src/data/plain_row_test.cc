#include "data/plain_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::inline data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OrderedJson said(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

OrderedJson from(const char* speaker, const char* value) {
  return {{"from", speaker}, {"value", value}};
}

const OrderedJson kTalk = OrderedJson::array({said("user", "hi"), said("assistant", "there")});

Result<PlainRow> prompt_row(const OrderedJson& row) {
  return plain_row(row, DataNeed::kPrompts, {});
}

std::string plain_error(const OrderedJson& row, DataNeed need = DataNeed::kPrompts,
                        const DataConfig& config = {}) {
  return plain_row(row, need, config).status().message();
}

TEST(PlainRow, ShareGptBecomesMessages) {
  const OrderedJson turns = OrderedJson::array({from("human", "hi"), from("gpt", "there")});
  const auto row = plain_row({{"conversations", turns}}, DataNeed::kSamples, {});
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->row["conversations"], kTalk);
  EXPECT_EQ(row->columns.format, RowFormat::kShareGpt);
  EXPECT_EQ(row->description(),
            "conversations of from and value (ShareGPT): 'conversations' is a conversation");
  const auto led = prompt_row({{"system", "be kind"}, {"conversations", turns}});
  EXPECT_EQ(led->row["conversations"][0], said("system", "be kind"));
  EXPECT_EQ(led->row["conversations"].size(), 3u);
}

TEST(PlainRow, EverySpeakerHasARole) {
  const char* pairs[][2] = {
      {"user", "user"},     {"human", "user"}, {"assistant", "assistant"}, {"chatgpt", "assistant"},
      {"system", "system"}, {"tool", "tool"},  {"observation", "tool"}};
  for (const auto& [speaker, role] : pairs) {
    const auto row = prompt_row({{"prompt", OrderedJson::array({from(speaker, "x")})}});
    EXPECT_EQ(row->row["prompt"][0], said(role, "x"));
  }
  EXPECT_THAT(plain_error({{"conversations", {from("human", "x"), from("function_call", "{}")}}}),
              AllOf(HasSubstr("'conversations': message 2 is from 'function_call'"),
                    HasSubstr("known are human")));
  EXPECT_THAT(plain_error({{"conversations", {from("human", "x"), said("user", "y")}}}),
              HasSubstr("message 2 has no 'from' and 'value'"));
}

// LLaMA-Factory's preference rows: one message for each answer.
TEST(PlainRow, AnswersMayBeOneTurn) {
  const auto row = plain_row({{"conversations", {from("human", "hi")}},
                              {"chosen", from("gpt", "there")},
                              {"rejected", from("gpt", "no")}},
                             DataNeed::kPairs, {});
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->row["chosen"], OrderedJson::array({said("assistant", "there")}));
  EXPECT_EQ(row->columns.prompt, "conversations");
}

TEST(PlainRow, AlpacaIsAPromptAndAResponse) {
  const OrderedJson written = {{"instruction", "Add"}, {"input", "1 2"}, {"output", "3"}};
  const auto sample = plain_row(written, DataNeed::kSamples, {});
  ASSERT_TRUE(sample.ok()) << sample.status().message();
  EXPECT_EQ(sample->row["prompt"], "Add\n1 2");
  EXPECT_EQ(sample->columns.answer, "response");
  EXPECT_EQ(sample->row["response"], "3");
  EXPECT_EQ(
      sample->description(),
      "instruction + input + output (Alpaca): 'prompt' is text, 'response' is text; the prompt "
      "is instruction and input");
  const auto prompt = prompt_row({{"instruction", "Say"}, {"input", ""}, {"output", "3"}});
  EXPECT_EQ(prompt->row["prompt"], "Say");
  EXPECT_EQ(prompt->row["label"], "3");
  DataConfig named;
  named.prompt_key = "instruction";
  EXPECT_EQ(plain_row(written, DataNeed::kPrompts, named)->columns.format, RowFormat::kPrompt);
  OrderedJson old = written;
  old["history"] = OrderedJson::array({OrderedJson::array({"a", "b"})});
  EXPECT_THAT(plain_error(old), HasSubstr("'history' of an Alpaca row is not read"));
}

TEST(PlainRow, ColumnsOfItsOwnWinOverAlpaca) {
  const OrderedJson row = {
      {"instruction", "i"}, {"output", "o"}, {"prompt", "p"}, {"response", "r"}};
  EXPECT_EQ(plain_row(row, DataNeed::kSamples, {})->row, row);
  const OrderedJson text = {{"instruction", "i"}, {"output", "o"}, {"text", "t"}};
  EXPECT_EQ(plain_row(text, DataNeed::kSamples, {})->columns.format, RowFormat::kText);
}

TEST(PlainRow, JsonTextOfMessagesIsMessages) {
  const auto row = prompt_row({{"prompt", kTalk.dump(1)}});
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->row["prompt"], kTalk);
  EXPECT_EQ(row->description(),
            "prompt: 'prompt' is a conversation; 'prompt' is JSON text, read as the messages that "
            "it holds");
  EXPECT_EQ(prompt_row({{"conversations", "[{\"from\": \"human\", \"value\": \"hi\"}]"}})
                ->row["conversations"],
            OrderedJson::array({said("user", "hi")}));
  for (const char* text : {"[1, 2] sorted?", "[{\"a\": 1}]", "{\"role\": \"x\"}", "[{'a': 1}]"})
    EXPECT_EQ(prompt_row({{"prompt", text}})->row["prompt"], text);
  DataConfig nested;
  nested.prompt_key = "in.talk";
  EXPECT_EQ(
      plain_row({{"in", {{"talk", kTalk.dump()}}}}, DataNeed::kPrompts, nested)->row["in"]["talk"],
      kTalk);
}

TEST(PlainRow, MessagesAsPythonPrintsThemAreRefused) {
  for (const char* text : {"[{'role': 'user', 'content': 'hi'}]", "[ {'content': 'hi'}\n {'c': 1}]",
                           "[{\"role\": \"user\", "})
    EXPECT_THAT(plain_error({{"prompt", text}}),
                AllOf(HasSubstr("key 'prompt' looks like a list of messages written as text"),
                      HasSubstr("write the list itself, or its JSON")));
}

TEST(PlainRow, WhatNoModelSeesIsRefused) {
  const OrderedJson file = {{"bytes", nullptr}, {"path", "a.png"}};
  for (const char* name : {"image", "images", "video", "videos", "audio", "audios"})
    EXPECT_THAT(plain_error({{"prompt", "x"}, {name, {"a"}}}),
                HasSubstr(std::string("data.ignore_columns: [") + name + "]"));
  EXPECT_THAT(plain_error({{"prompt", "x"}, {"photo", file}}),
              HasSubstr("key 'photo' holds pictures"));
  EXPECT_THAT(plain_error({{"prompt", "x"}, {"photos", {file}}}), HasSubstr("key 'photos'"));
  for (const OrderedJson& nothing : {OrderedJson(), OrderedJson::array(), OrderedJson("")})
    EXPECT_TRUE(prompt_row({{"prompt", "x"}, {"images", nothing}}).ok());
  DataConfig config;
  config.ignore_columns = {"images"};
  const auto without = plain_row({{"prompt", "x"}, {"images", {"a"}}}, DataNeed::kPrompts, config);
  ASSERT_TRUE(without.ok()) << without.status().message();
  EXPECT_FALSE(without->row.contains("images"));
  const OrderedJson parts = {{{"type", "text"}, {"text", "what?"}}, {{"type", "image_url"}}};
  EXPECT_THAT(plain_error({{"messages", {{{"role", "user"}, {"content", parts}}}}}),
              HasSubstr("'messages': message 1 has a part of type 'image_url'"));
}

TEST(PlainRow, BytesAreNoText) {
  const OrderedJson bytes = {{"base64", "AP8="}};
  EXPECT_THAT(plain_error({{"prompt", bytes}}), HasSubstr("key 'prompt' holds bytes, not text"));
  EXPECT_THAT(plain_error({{"prompt", {{{"role", "user"}, {"content", bytes}}}}}),
              HasSubstr("'prompt': message 1 holds bytes, not text"));
  EXPECT_TRUE(prompt_row({{"prompt", "x"}, {"hash", bytes}}).ok());
  EXPECT_TRUE(prompt_row({{"prompt", "x"}, {"response", bytes}}).ok()) << "which nothing reads";
}

}  // namespace
}  // namespace braid::inline data
