#include "data/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/row_forms.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid::inline data {
namespace {

using ::testing::HasSubstr;

// The digits tokenizer of the tests with a chat template of its own, after `beginning`.
Tokenizer chat_tokenizer(const std::string& name = "braid-record-tokenizer",
                         const std::string& beginning = "") {
  const std::string folder = [&] {
    const std::string path = testing::TempDir() + "/" + name;
    const std::string source = std::string(BRAID_SOURCE_DIR) + "/tests/data/tokenizer/qwen2.json";
    EXPECT_TRUE(make_folder(path).ok());
    EXPECT_TRUE(write_file_atomic(join_path(path, "tokenizer.json"), *read_file(source)).ok());
    EXPECT_TRUE(
        write_file_atomic(
            join_path(path, "chat_template.jinja"),
            beginning +
                "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
                "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
            .ok());
    return path;
  }();
  return load_tokenizer(folder).value();
}

std::string error_of(const OrderedJson& line, DataNeed need, const Tokenizer* tokenizer = nullptr,
                     const DataConfig& config = {}) {
  const auto record = make_record(line, need, tokenizer, config);
  return record.ok() ? "" : record.status().message();
}

// The error of a file of prompts.
std::string failure(const std::string& text) {
  return make_data_set(RowFiles::of(LineReader::of_text(text, "f.jsonl")), DataNeed::kPrompts,
                       nullptr, {})
      .status()
      .message();
}

TEST(Record, ATemplateSurroundsThePrompt) {
  const Tokenizer tokenizer = chat_tokenizer();
  DataConfig config;
  config.prompt_template = "Q: {prompt} A:";
  const auto record = make_record({{"prompt", "1+1"}}, DataNeed::kPrompts, &tokenizer, config);
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->prompt, "Q: 1+1 A:");
  EXPECT_EQ(record->prompt_ids, *tokenizer.encode("Q: 1+1 A:", true));
}

TEST(Record, ChatFormatEqualsTheSameMessages) {
  const Tokenizer tokenizer = chat_tokenizer();
  DataConfig config;
  config.prompt_format = "chat";
  const auto text = make_record({{"prompt", "hello"}}, DataNeed::kPrompts, &tokenizer, config);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", "hello"}}});
  for (const char* key : {"messages", "prompt"}) {
    const auto spoken = make_record({{key, messages}}, DataNeed::kPrompts, &tokenizer, {});
    ASSERT_TRUE(spoken.ok()) << spoken.status().message();
    EXPECT_EQ(spoken->prompt_ids, text->prompt_ids);
    EXPECT_EQ(spoken->prompt, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
  }
}

TEST(Record, AConversationThatEndsWithTheAssistantIsASample) {
  const Tokenizer tokenizer = chat_tokenizer();
  const OrderedJson messages = OrderedJson::array(
      {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", "there"}}});
  const auto record = make_record({{"messages", messages}}, DataNeed::kSamples, &tokenizer, {});
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(*tokenizer.decode(record->prompt_ids, false),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(*tokenizer.decode(record->response_ids, false), "there<|im_end|>\n");
  EXPECT_THAT(
      error_of({{"messages", OrderedJson::array({messages[0]})}}, DataNeed::kSamples, &tokenizer),
      HasSubstr("the assistant says nothing"));
}

// Every turn of the assistant is learned unless data.learn says otherwise; what stands behind the
// last one is left out.
TEST(Record, TurnsOfAConversationAreMasked) {
  const Tokenizer tokenizer = chat_tokenizer();
  const auto message = [](const char* role, const char* content) {
    return OrderedJson{{"role", role}, {"content", content}};
  };
  const OrderedJson line = {
      {"messages",
       OrderedJson::array({message("user", "q"), message("assistant", "a"), message("user", "r"),
                           message("assistant", "b"), message("user", "s")})}};
  const auto learned = [&](const char* learn) {
    DataConfig config;
    config.learn = learn;
    const auto record = make_record(line, DataNeed::kSamples, &tokenizer, config);
    EXPECT_TRUE(record.ok()) << record.status().message();
    std::vector<int32_t> ids;
    for (size_t i = 0; i < record->learned.size(); ++i)
      if (record->learned[i] == 1) ids.push_back(record->response_ids[i]);
    return *tokenizer.decode(ids, false);
  };
  EXPECT_EQ(learned("assistant"), "a<|im_end|>\nb<|im_end|>\n");
  EXPECT_EQ(learned("last"), "b<|im_end|>\n");
  EXPECT_THAT(learned("all"), HasSubstr("s<|im_end|>\n"));
}

TEST(Record, ErrorsNameTheKey) {
  const Tokenizer tokenizer = chat_tokenizer();
  EXPECT_THAT(error_of({{"question", "x"}}, DataNeed::kPrompts),
              HasSubstr("missing key 'prompt' (data.prompt_key); keys here: question"));
  EXPECT_THAT(error_of({{"prompt", 5}}, DataNeed::kPrompts), HasSubstr("not number"));
  EXPECT_THAT(error_of({{"prompt", "x"}}, DataNeed::kPrompts), HasSubstr("no tokenizer"));
  EXPECT_THAT(error_of({{"prompt", ""}}, DataNeed::kPrompts, &tokenizer),
              HasSubstr("the prompt is empty"));
  // Also where the tokenizer adds a first token; sft may learn from that one alone.
  const auto adding = load_tokenizer(std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model");
  EXPECT_THAT(error_of({{"prompt", ""}}, DataNeed::kPrompts, &*adding),
              HasSubstr("the prompt is empty"));
  EXPECT_TRUE(
      make_record({{"prompt", ""}, {"completion", "12"}}, DataNeed::kSamples, &*adding, {}).ok());
  EXPECT_THAT(error_of({{"ids", {1, -2}}}, DataNeed::kPrompts), HasSubstr("-2 is no token id"));
  EXPECT_THAT(error_of({{"ids", {1.5}}}, DataNeed::kPrompts), HasSubstr("1.5 is no token id"));
  EXPECT_THAT(error_of({{"ids", {3000000000}}}, DataNeed::kPrompts), HasSubstr("is no token id"));
  EXPECT_THAT(error_of({{"ids", "1 2"}}, DataNeed::kPrompts), HasSubstr("key 'ids' must be"));
  EXPECT_THAT(error_of({{"ids", {1}}}, DataNeed::kSamples),
              HasSubstr("missing key 'completion', 'response' or 'label'"));
  EXPECT_THAT(error_of({{"ids", {1}}, {"label", true}}, DataNeed::kSamples),
              HasSubstr("key 'label' must be text or a list of ids, not boolean"));
  EXPECT_THAT(error_of({{"ids", {1}}, {"chosen", {2}}}, DataNeed::kPairs),
              HasSubstr("missing key 'rejected'"));
  EXPECT_THAT(error_of(OrderedJson::array({1}), DataNeed::kPrompts),
              HasSubstr("must be a JSON object"));
  EXPECT_THAT(error_of({{"messages", "x"}}, DataNeed::kPrompts, &tokenizer),
              HasSubstr("key 'messages'"));
}

// TRL's ways to write one sample agree with each other and with Braid's own.
TEST(Record, CompletionsAreResponses) {
  const Tokenizer tokenizer = chat_tokenizer();
  const Json user = {{"role", "user"}, {"content", "hi"}},
             there = {{"role", "assistant"}, {"content", "there"}};
  const auto whole =
      make_record({{"messages", Json::array({user, there})}}, DataNeed::kSamples, &tokenizer, {});
  const auto split =
      make_record({{"prompt", Json::array({user})}, {"completion", Json::array({there})}},
                  DataNeed::kSamples, &tokenizer, {});
  ASSERT_TRUE(split.ok()) << split.status().message();
  EXPECT_EQ(split->prompt_ids, whole->prompt_ids);
  EXPECT_EQ(split->response_ids, whole->response_ids);
  EXPECT_EQ(split->conversation, OrderedJson(Json::array({user})));
  const auto ours =
      make_record({{"prompt", "a"}, {"response", "b"}}, DataNeed::kSamples, &tokenizer, {});
  const auto theirs =
      make_record({{"prompt", "a"}, {"completion", "b"}}, DataNeed::kSamples, &tokenizer, {});
  EXPECT_EQ(ours->response_ids, theirs->response_ids);
  EXPECT_THAT(error_of({{"prompt", "a"}, {"completion", Json::array({there})}}, DataNeed::kSamples,
                       &tokenizer),
              HasSubstr("'completion' is a conversation, so the prompt must be one too"));
}

TEST(Record, PairsMayHoldThePromptInside) {
  const Tokenizer tokenizer = chat_tokenizer();
  const auto inside =
      make_record({{"chosen", "The sky is blue."}, {"rejected", "The sky is green."}},
                  DataNeed::kPairs, &tokenizer, {});
  ASSERT_TRUE(inside.ok()) << inside.status().message();
  const auto outside =
      make_record({{"prompt", "The sky is"}, {"chosen", " blue."}, {"rejected", " green."}},
                  DataNeed::kPairs, &tokenizer, {});
  EXPECT_EQ(inside->prompt_ids, outside->prompt_ids);
  EXPECT_EQ(inside->response_ids, outside->response_ids);
  EXPECT_EQ(inside->rejected_ids, outside->rejected_ids);
  const Json user = {{"role", "user"}, {"content", "hi"}},
             good = {{"role", "assistant"}, {"content", "yes"}},
             bad = {{"role", "assistant"}, {"content", "no"}};
  const auto spoken =
      make_record({{"chosen", Json::array({user, good})}, {"rejected", Json::array({user, bad})}},
                  DataNeed::kPairs, &tokenizer, {});
  ASSERT_TRUE(spoken.ok()) << spoken.status().message();
  EXPECT_EQ(*tokenizer.decode(spoken->rejected_ids, false), "no<|im_end|>\n");
  EXPECT_THAT(error_of({{"chosen", "a"}, {"rejected", "b"}}, DataNeed::kPairs, &tokenizer),
              HasSubstr("do not begin alike"));
  EXPECT_THAT(error_of({{"chosen", "a"}, {"rejected", "a"}}, DataNeed::kPairs, &tokenizer),
              HasSubstr("are the same"));
}

// A template that writes the date writes that of the run into what both answers begin with, too.
TEST(Record, PairsWithThePromptInsideHaveTheDateOfTheRun) {
  const Tokenizer tokenizer =
      chat_tokenizer("braid-record-dated", "{{ strftime_now('%d %b %Y') }}");
  const Json user = {{"role", "user"}, {"content", "hi"}},
             good = {{"role", "assistant"}, {"content", "yes"}},
             bad = {{"role", "assistant"}, {"content", "no"}};
  DataConfig config;
  config.template_date = "2001-02-03";
  config.prompt_template = "{prompt}!";  // is of prompts that have a column
  const auto record =
      make_record({{"chosen", Json::array({user, good})}, {"rejected", Json::array({user, bad})}},
                  DataNeed::kPairs, &tokenizer, config);
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_THAT(*tokenizer.decode(record->prompt_ids, false), HasSubstr("03 Feb 2001"));
  EXPECT_EQ(*tokenizer.decode(record->rejected_ids, false), "no<|im_end|>\n");
}

// A border inside of a character would leave no text on either side.
TEST(Record, ACommonBeginningEndsBetweenCharacters) {
  const Tokenizer tokenizer = chat_tokenizer();
  const auto record = make_record({{"chosen", "x\xC3\xA9"}, {"rejected", "x\xC3\xA8"}},
                                  DataNeed::kPairs, &tokenizer, {});
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->prompt, "x");
}

TEST(Record, ATextIsLearntBehindItsFirstToken) {
  const Tokenizer tokenizer = chat_tokenizer();
  const auto record = make_record({{"text", "hello world"}}, DataNeed::kSamples, &tokenizer, {});
  ASSERT_TRUE(record.ok()) << record.status().message();
  std::vector<int32_t> all = record->prompt_ids;
  EXPECT_EQ(all.size(), 1u);
  all.insert(all.end(), record->response_ids.begin(), record->response_ids.end());
  EXPECT_EQ(all, *tokenizer.encode("hello world", true)) << "and no end where there is no token";
}

TEST(Record, APolicyIsAskedForTheAssistantsLastTurn) {
  const Tokenizer tokenizer = chat_tokenizer();
  const Json user = {{"role", "user"}, {"content", "hi"}},
             there = {{"role", "assistant"}, {"content", "there"}};
  const auto answered =
      make_record({{"messages", Json::array({user, there})}}, DataNeed::kPrompts, &tokenizer, {});
  const auto open =
      make_record({{"messages", Json::array({user})}}, DataNeed::kPrompts, &tokenizer, {});
  ASSERT_TRUE(answered.ok()) << answered.status().message();
  EXPECT_EQ(answered->prompt_ids, open->prompt_ids);
}

// tests/data/chat holds what transformers writes under continue_final_message.
TEST(Record, APromptThatEndsWithTheAssistantIsContinued) {
  const std::string source = std::string(BRAID_SOURCE_DIR) + "/tests/data/chat/";
  const std::string folder = testing::TempDir() + "/braid-record-continued";
  ASSERT_TRUE(make_folder(folder).ok());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    ASSERT_TRUE(write_file_atomic(join_path(folder, name), *read_file(source + name)).ok());
  int continued = 0;
  for (const OrderedJson& golden : *parse_ordered_json(*read_file(source + "goldens.json"), "")) {
    const std::string chat = golden["template"];
    ASSERT_TRUE(write_file_atomic(join_path(folder, "chat_template.jinja"), chat).ok());
    const Tokenizer tokenizer = load_tokenizer(folder).value();
    for (const OrderedJson& one : golden["cases"]) {
      const OrderedJson& options = one["options"];
      const bool open = options.value("continue_final_message", false);
      if (!open || one["text"].is_null() || !ends_with_assistant(options["messages"])) continue;
      const OrderedJson row = {{"prompt", options["messages"]}};
      const auto record = make_record(row, DataNeed::kPrompts, &tokenizer, {});
      ASSERT_TRUE(record.ok()) << record.status().message();
      EXPECT_EQ(record->prompt, one["text"].get<std::string>());
      EXPECT_EQ(record->prompt_ids, one["ids"].get<std::vector<int32_t>>());
      ++continued;
    }
  }
  EXPECT_GE(continued, 10);
}

// Answers that the data give begin a turn of their own, whatever the prompt ends with.
TEST(Record, OnlyWhereTheModelWritesIsAMessageLeftOpen) {
  const Tokenizer tokenizer = chat_tokenizer();
  const OrderedJson talk = OrderedJson::array(
      {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", "The"}}});
  const std::string closed = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nThe";
  const OrderedJson row = {{"prompt", talk}, {"response", "x"}, {"chosen", "y"}, {"rejected", "z"}};
  EXPECT_EQ(make_record(row, DataNeed::kPrompts, &tokenizer, {})->prompt, closed);
  for (const DataNeed need : {DataNeed::kSamples, DataNeed::kPairs})
    EXPECT_EQ(make_record(row, need, &tokenizer, {})->prompt,
              closed + "<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Record, ShareGptAndAlpacaAreWhatTheyMean) {
  const Tokenizer tokenizer = chat_tokenizer();
  const OrderedJson talk = OrderedJson::array(
      {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", "there"}}});
  const OrderedJson turns = OrderedJson::array(
      {{{"from", "human"}, {"value", "hi"}}, {{"from", "gpt"}, {"value", "there"}}});
  for (const DataNeed need : {DataNeed::kSamples, DataNeed::kPrompts}) {
    const auto ours = make_record({{"messages", talk}}, need, &tokenizer, {});
    const auto theirs = make_record({{"conversations", turns}}, need, &tokenizer, {});
    ASSERT_TRUE(theirs.ok()) << theirs.status().message();
    EXPECT_EQ(theirs->prompt_ids, ours->prompt_ids);
    EXPECT_EQ(theirs->response_ids, ours->response_ids);
    EXPECT_EQ(theirs->format, RowFormat::kShareGpt);
  }
  const auto alpaca = make_record({{"instruction", "Add"}, {"input", "1 2"}, {"output", "3"}},
                                  DataNeed::kSamples, &tokenizer, {});
  ASSERT_TRUE(alpaca.ok()) << alpaca.status().message();
  EXPECT_EQ(alpaca->prompt, "Add\n1 2");
  EXPECT_EQ(alpaca->response_ids,
            make_record({{"prompt", "a"}, {"response", "3"}}, DataNeed::kSamples, &tokenizer, {})
                ->response_ids);
}

// A table of text has no other way to say true and false.
TEST(Record, TextMaySayThatACompletionIsBad) {
  const Tokenizer tokenizer = chat_tokenizer();
  const auto unwanted = [&](const char* label) {
    return make_record({{"prompt", "a"}, {"completion", "b"}, {"label", label}}, DataNeed::kSamples,
                       &tokenizer, {})
        ->unwanted;
  };
  EXPECT_TRUE(unwanted("False"));
  EXPECT_FALSE(unwanted("true"));
  EXPECT_FALSE(unwanted("7"));
}

TEST(Record, RowsOfAnotherFormAreNoted) {
  RowForms forms;
  DataRecord text, talk, ids;
  text.prompt = "a";
  talk.prompt = "b";
  talk.conversation = OrderedJson::array({{{"role", "user"}, {"content", "b"}}});
  EXPECT_EQ(forms.note(text, "a.jsonl:1"), "");
  EXPECT_EQ(forms.note(text, "a.jsonl:2"), "");
  EXPECT_THAT(forms.note(talk, "a.jsonl:3"),
              HasSubstr("a.jsonl:3: the prompt is messages, that of a.jsonl:1 is text"));
  EXPECT_EQ(forms.note(talk, "a.jsonl:4"), "") << "said once";
  EXPECT_THAT(forms.note(ids, "a.jsonl:5"), HasSubstr("a.jsonl:5: the prompt is token ids"));
}

TEST(Record, TheNamedLabelWins) {
  DataConfig config;
  config.label_key = "answer";
  const Json row = {{"ids", {1}}, {"label", "wrong"}, {"answer", "7"}};
  EXPECT_EQ(make_record(row, DataNeed::kPrompts, nullptr, config)->extra["label"], "7");
  EXPECT_EQ(make_record(row, DataNeed::kPrompts, nullptr, {})->extra["label"], "wrong");
  EXPECT_THAT(error_of({{"ids", {1}}, {"label", "x"}}, DataNeed::kPrompts, nullptr, config),
              HasSubstr("missing key 'answer' (data.label_key); keys here: ids, label"));
}

TEST(Record, VerlRowsGiveTheirGroundTruthAsTheLabel) {
  const Tokenizer tokenizer = chat_tokenizer();
  const Json row = {{"data_source", "gsm8k"},
                    {"prompt", Json::array({{{"role", "user"}, {"content", "1+1"}}})},
                    {"reward_model", {{"style", "rule"}, {"ground_truth", "2"}}},
                    {"extra_info", {{"index", 0}}}};
  const auto record = make_record(row, DataNeed::kPrompts, &tokenizer, {});
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->extra["label"], "2");
  EXPECT_EQ(record->extra["data_source"], "gsm8k");
  EXPECT_EQ(record->extra["extra_info"], (Json{{"index", 0}}));
}

TEST(Record, PlacesAreLineNumbersWithBlankLinesCounted) {
  EXPECT_THAT(failure("{\"ids\": [1]}\n\n\r\n{\"text\": 1}\n"),
              HasSubstr("f.jsonl:4: missing key"));
}

TEST(Record, AFileWithoutAUsableLineIsRefused) {
  EXPECT_THAT(failure("\n\n"), HasSubstr("f.jsonl: no usable line"));
}

TEST(Record, InvalidUtf8AndDuplicateKeysNameTheLine) {
  EXPECT_THAT(failure("{\"ids\": [1]}\n{\"prompt\": \"\xff\"}"), HasSubstr("f.jsonl:2"));
  EXPECT_THAT(failure("{\"a\": 1, \"a\": 2}"), AllOf(HasSubstr("f.jsonl:1"), HasSubstr("twice")));
}

}  // namespace
}  // namespace braid::inline data
