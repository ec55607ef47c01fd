#include "data/chat/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host/file.h"
#include "test_paths.h"

namespace braid::inline data {
namespace {

using ::testing::HasSubstr;

const std::string& data_folder() {
  static const std::string folder = std::string(BRAID_SOURCE_DIR) + "/tests/data/chat";
  return folder;
}

// The tokenizer of the goldens (bytes and special tokens) with files beside it.
Tokenizer with_files(const std::string& name, const std::map<std::string, std::string>& files) {
  const std::string folder = ::testing::TempDir() + "/chat_" + name;
  EXPECT_TRUE(make_folder(folder + "/additional_chat_templates").ok());
  for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"})
    EXPECT_TRUE(write_file_atomic(folder + file, *read_file(data_folder() + file)).ok());
  for (const auto& [file, text] : files)
    EXPECT_TRUE(write_file_atomic(join_path(folder, file), text).ok());
  auto loaded = load_tokenizer(folder);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return *loaded;
}

Tokenizer with_template(const std::string& name, const std::string& source) {
  return with_files(name, {{"chat_template.jinja", source}});
}

Conversation conversation(const char* messages) { return {OrderedJson::parse(messages), {}, {}}; }

ChatOptions options_of(const OrderedJson& json) {
  ChatOptions out;
  out.add_generation_prompt = json.value("add_generation_prompt", false);
  out.continue_final_message = json.value("continue_final_message", false);
  out.arguments = json.value("arguments", OrderedJson::object());
  return out;
}

// One case of goldens.json.
void expect_case(const Tokenizer& tokenizer, const OrderedJson& golden) {
  const OrderedJson& options = golden.at("options");
  const Conversation asked = *read_conversation(options, "messages");
  const auto chat = encode_chat(tokenizer, asked, options_of(options));
  if (golden.at("text").is_null()) {
    EXPECT_EQ(chat.status().code(), Code::kInvalidInput) << golden;
    return;
  }
  ASSERT_TRUE(chat.ok()) << chat.status().message() << golden;
  EXPECT_EQ(chat->text, golden.at("text").get<std::string>());
  EXPECT_EQ(chat->ids, golden.at("ids").get<std::vector<int32_t>>());
  if (!golden.contains("mask") || chat->text.find("assistant\n") == std::string::npos) return;
  const auto masked =
      encode_chat_with_mask(tokenizer, asked, options_of(options), LearnedTurns::kAssistant);
  ASSERT_TRUE(masked.ok()) << masked.status().message();
  EXPECT_EQ(masked->learned, golden.at("mask").get<std::vector<uint8_t>>()) << golden;
}

TEST(RenderChat, GivesWhatTransformersGives) {
  const std::string path = data_folder() + "/goldens.json";
  int cases = 0;
  for (const OrderedJson& golden : *parse_ordered_json(*read_file(path), path)) {
    const Tokenizer tokenizer = with_template("golden", golden.at("template"));
    for (const OrderedJson& one : golden.at("cases")) expect_case(tokenizer, one);
    cases += static_cast<int>(golden.at("cases").size());
  }
  EXPECT_GE(cases, 250);
}

// What the mask marks, each run in brackets.
std::string marked(const Tokenizer& tokenizer, const Conversation& asked, LearnedTurns turns) {
  const auto chat = encode_chat_with_mask(tokenizer, asked, {}, turns);
  if (!chat.ok()) return "ERROR " + chat.status().message();
  std::string out;
  bool inside = false;
  for (size_t i = 0; i <= chat->ids.size(); ++i) {
    const bool learned = i < chat->ids.size() && chat->learned[i] == 1;
    if (learned != inside) out += learned ? "[" : "]";
    inside = learned;
    if (i < chat->ids.size()) out += *tokenizer.decode({chat->ids[i]}, false);
  }
  return out;
}

constexpr const char* kTurns =
    R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
    R"({"role":"user","content":"r"},{"role":"assistant","content":"b"}])";
constexpr const char* kSimple =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(ChatMask, DifferenceOfPrefixesFindsEveryTurn) {
  const Tokenizer tokenizer = with_template("simple", kSimple);
  EXPECT_EQ(marked(tokenizer, conversation(kTurns), LearnedTurns::kAssistant),
            "<user>q;<assistant>[a;]<user>r;<assistant>[b;]");
  EXPECT_EQ(marked(tokenizer, conversation(kTurns), LearnedTurns::kLast),
            "<user>q;<assistant>a;<user>r;<assistant>[b;]");
  EXPECT_EQ(marked(tokenizer, conversation(kTurns), LearnedTurns::kEverything),
            "[<user>q;<assistant>a;<user>r;<assistant>b;]");
}

// The template writes "(…)" only in front of the last answer.
TEST(ChatMask, TurnsThatAreWrittenDifferentlyLaterAreFoundByTheirContent) {
  const Tokenizer tokenizer = with_template(
      "reasoning",
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}(){% endif "
      "%}{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_EQ(marked(tokenizer, conversation(kTurns), LearnedTurns::kAssistant),
            "<user>q;<assistant>[a;]<user>r;<assistant>[()b;]");
}

TEST(ChatMask, ATurnThatVanishesIsAnError) {
  const Tokenizer tokenizer = with_template(
      "vanishing",
      "{% for m in messages %}<{{ m.role }}>{% if loop.last or m.role == 'user' %}{{ m.content }}"
      "{% endif %};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_THAT(marked(tokenizer, conversation(kTurns), LearnedTurns::kAssistant),
              HasSubstr("message 2: the chat template writes this turn of the assistant"));
  EXPECT_THAT(marked(tokenizer, conversation(kTurns), LearnedTurns::kLast),
              HasSubstr("<assistant>[b;]"));
}

TEST(ChatTemplates, SeveralAreChosenByNameAndTools) {
  const Tokenizer tokenizer =
      with_files("several", {{"chat_template.jinja", "D"},
                             {"additional_chat_templates/tool_use.jinja", "T"},
                             {"additional_chat_templates/rag.jinja", "R{{ documents | length }}"}});
  Conversation asked = conversation(R"([{"role":"user","content":"q"}])");
  EXPECT_EQ(render_chat(tokenizer, asked, {})->text, "D");
  ChatOptions rag;
  rag.template_name = "rag";
  asked.documents = OrderedJson::parse("[{}]");
  EXPECT_EQ(render_chat(tokenizer, asked, rag)->text, "R1");
  asked.tools = OrderedJson::parse("[{}]");
  EXPECT_EQ(render_chat(tokenizer, asked, {})->text, "T");
  rag.template_name = "none";
  EXPECT_THAT(
      render_chat(tokenizer, asked, rag).status().message(),
      HasSubstr("no chat template 'none'; data.template_name can be: default, rag, tool_use"));
}

TEST(ChatTemplates, ABrokenOneIsAnErrorOnlyWhenItIsAskedFor) {
  const Tokenizer tokenizer = with_template("broken", "a\n{{ 'x }}");
  EXPECT_TRUE(tokenizer.encode("text", true).ok());
  EXPECT_THAT(render_chat(tokenizer, conversation(kTurns), {}).status().message(),
              HasSubstr("chat template 'default': line 2: a text in quotes is never closed"));
}

TEST(RenderChat, TheDateOfTheTemplateCanBeFixed) {
  const Tokenizer tokenizer = with_template("date", "{{ strftime_now('%d %b %Y') }}");
  ChatOptions options;
  options.date = "2024-07-26";
  EXPECT_EQ(render_chat(tokenizer, conversation(kTurns), options)->text, "26 Jul 2024");
  DataConfig config;
  config.template_date = "26 July";
  EXPECT_THAT(chat_options(config).status().message(), HasSubstr("is no date such as 2024-07-26"));
}

TEST(RenderChat, ArgumentsComeFromTheConfiguration) {
  const Tokenizer tokenizer = with_template("arguments", "{{ [a, b, c, d] }}");
  DataConfig config;
  config.template_arguments = *parse_yaml("{a: false, b: 2, c: text, d: [1.5, null]}", "x.yaml");
  EXPECT_EQ(render_chat(tokenizer, conversation(kTurns), *chat_options(config))->text,
            "[False, 2, 'text', [1.5, None]]");
  config.template_arguments = *parse_yaml("{messages: 1}", "x.yaml");
  EXPECT_THAT(chat_options(config).status().message(),
              HasSubstr("'messages' is given by the data"));
}

TEST(RenderChat, BadConversationsAreNamed) {
  const Tokenizer tokenizer = with_template("bad", kSimple);
  const auto error = [&](const char* messages) {
    return render_chat(tokenizer, conversation(messages), {}).status().message();
  };
  EXPECT_THAT(error("[]"), HasSubstr("at least one message"));
  EXPECT_THAT(error("{}"), HasSubstr("at least one message"));
  EXPECT_THAT(error("[3]"), HasSubstr("message 1 is no object"));
  EXPECT_THAT(
      read_conversation(OrderedJson::parse(R"({"tools": 3})"), "messages").status().message(),
      HasSubstr("key 'tools' must be a list"));
}

}  // namespace
}  // namespace braid::inline data
