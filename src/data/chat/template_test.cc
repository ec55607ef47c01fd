#include "data/chat/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/chat/template_ops.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

const std::string& data_folder() {
  static const std::string folder = std::string(BRAID_SOURCE_DIR) + "/tests/data/chat";
  return folder;
}

const Json& goldens() {
  static const Json parsed = [] {
    const std::string path = data_folder() + "/goldens.json";
    return parse_json(read_file(path).value(), path).value();
  }();
  return parsed;
}

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = load_tokenizer(data_folder()).value();
  return loaded;
}

std::vector<ChatMessage> conversation(std::vector<ChatMessage> messages) { return messages; }

// The ids that transformers gives, behind the BOS of this tokenizer when the program writes none.
std::vector<int32_t> expected_ids(const Json& golden, bool writes_bos) {
  auto ids = golden.at("ids").get<std::vector<int32_t>>();
  if (!writes_bos) ids.insert(ids.begin(), *tokenizer().bos_id());
  return ids;
}

void expect_rendering(const ChatTemplate& chat, const Json& golden) {
  const auto messages = parse_messages(golden.at("messages")).value();
  const bool prompt = golden.at("add_generation_prompt").get<bool>();
  const auto text = render_chat(chat, messages, {"<s>", "</s>", prompt});
  const auto ids = encode_chat(tokenizer(), chat, messages, prompt);
  if (golden.at("text").is_null()) {
    EXPECT_EQ(text.status().code(), Code::kInvalidInput) << golden;
    EXPECT_EQ(ids.status().code(), Code::kInvalidInput) << golden;
    return;
  }
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, golden.at("text").get<std::string>());
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_EQ(*ids, expected_ids(golden, chat.writes_bos)) << golden;
}

TEST(ChatTemplate, RendersAsTransformers) {
  int rendered = 0;
  for (const Json& golden : goldens()) {
    if (golden.at("name").is_null()) continue;
    const auto chat = recognize_chat_template(golden.at("program").get<std::string>());
    ASSERT_TRUE(chat.ok()) << golden.at("program") << chat.status().message();
    EXPECT_EQ(chat_format_name(chat->format), golden.at("name").get<std::string>());
    for (const Json& one : golden.at("cases")) expect_rendering(*chat, one);
    rendered += static_cast<int>(golden.at("cases").size());
  }
  EXPECT_GE(rendered, 100);
}

TEST(ChatTemplate, RefusesProgramsThatOnlyLookAlike) {
  int refused = 0;
  for (const Json& golden : goldens()) {
    if (!golden.at("name").is_null()) continue;
    const auto chat = recognize_chat_template(golden.at("program").get<std::string>());
    EXPECT_EQ(chat.status().code(), Code::kInvalidInput) << golden.at("program");
    ++refused;
  }
  EXPECT_GE(refused, 8);
}

TEST(ChatTemplate, RefusalNamesTheKnownOnesAndTheScript) {
  const std::string message =
      recognize_chat_template("{% for m in messages %}<|im_start|>{{ m }}{% endfor %}")
          .status()
          .message();
  for (const char* part : {"chatml", "llama2", "llama3", "gemma", "plain",
                           "uses the marks of chatml", "tools/render_prompts.py"})
    EXPECT_THAT(message, HasSubstr(part));
  EXPECT_THAT(recognize_chat_template("").status().message(), HasSubstr("the tokenizer has none"));
}

TEST(ChatTemplate, OneChangedByteIsRefused) {
  int refused = 0;
  for (const Json& golden : goldens()) {
    const std::string program = golden.at("program");
    for (const char* mark : {"<|im_end|>", "<|eot_id|>", "[/INST]", "<end_of_turn>", ": '"}) {
      const size_t at = program.rfind(mark);
      if (golden.at("name").is_null() || at == std::string::npos) continue;
      std::string changed = program;
      changed.insert(at, " ");
      EXPECT_FALSE(recognize_chat_template(changed).ok()) << changed;
      ++refused;
    }
  }
  EXPECT_GE(refused, 8);
}

TEST(ChatTemplate, DefaultSystemTextIsTaken) {
  const auto chat = recognize_chat_template(
      "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}"
      "{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
      "'<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(*chat, (ChatTemplate{ChatFormat::kChatml, false, false, true, "Be kind."}));
  EXPECT_EQ(*render_chat(*chat, conversation({{"user", "u"}}), {}),
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
            "<|im_start|>assistant\n");
}

// A template may write BOS and the post-processor may add it; the ids have it once either way.
TEST(ChatTemplate, ExactlyOneBos) {
  for (const bool writes_bos : {false, true}) {
    const ChatTemplate chat{ChatFormat::kPlain, writes_bos, false, false, ""};
    const auto ids = encode_chat(tokenizer(), chat, conversation({{"user", "hi"}}), true).value();
    EXPECT_EQ(ids[0], *tokenizer().bos_id());
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer().bos_id()), 1);
  }
}

TEST(ChatTemplate, MissingSpecialTokenIsAnError) {
  const std::string path = data_folder() + "/tokenizer.json";
  const Tokenizer bare = parse_tokenizer(read_file(path).value(), path).value();
  const ChatTemplate chat{ChatFormat::kLlama2, true, true, false, ""};
  EXPECT_THAT(encode_chat(bare, chat, conversation({{"user", "hi"}}), true).status().message(),
              HasSubstr("bos_token"));
}

TEST(ChatTemplate, RoleErrorsNameTheMessage) {
  const ChatTemplate chat{ChatFormat::kGemma, true, true, false, ""};
  const auto text = render_chat(chat, conversation({{"user", "a"}, {"system", "b"}}), {});
  EXPECT_THAT(text.status().message(), HasSubstr("message 2 has the role 'system'"));
  EXPECT_EQ(render_chat(chat, {}, {}).status().code(), Code::kInvalidInput);
}

TEST(ParseMessages, ReadsRolesAndContents) {
  const Json messages = Json::parse(R"([{"role":"user","content":"a","name":"x"}])");
  EXPECT_EQ(*parse_messages(messages), conversation({{"user", "a"}}));
}

TEST(ParseMessages, ErrorsNameTheMessage) {
  const auto message_for = [](const char* text) {
    return parse_messages(Json::parse(text)).status().message();
  };
  EXPECT_THAT(message_for("[]"), HasSubstr("at least one"));
  EXPECT_THAT(message_for("{}"), HasSubstr("array"));
  EXPECT_THAT(message_for("[3]"), HasSubstr("message 1 is no object"));
  EXPECT_THAT(message_for(R"([{"role":"user"}])"), HasSubstr("message 1: missing key 'content'"));
  EXPECT_THAT(message_for(R"([{"role":"user","content":[{"type":"text","text":"a"}]}])"),
              HasSubstr("'content'"));
  EXPECT_THAT(message_for(R"([{"role":"a","content":"","tool_calls":[{"id":1}]}])"),
              HasSubstr("tool_calls"));
}

std::vector<TemplateOp> ops(const char* program) { return canonical_template(program).value(); }

TEST(CanonicalTemplate, SpellingDoesNotMatter) {
  const auto wanted =
      ops("{% for m in messages %}{{ m.role + ': ' + m.content|trim }}{% endfor %}");
  for (const char* same :
       {"{%- for turn in messages %}{{ turn['role'] ~ \": \" ~ turn['content'].strip() }}{% endfor "
        "-%}",
        "{# note #}{% for x in messages %}\n{{ x.role }}: {{ x.content | trim }}{% endfor %}\n",
        "{% for m in messages %}\n  {% generation %}\n{{ (m.role + ': ') + (m.content | trim) }}"
        "{% endgeneration %}{% endfor %}"})
    EXPECT_EQ(ops(same), wanted) << same;
}

TEST(CanonicalTemplate, MeaningMatters) {
  const auto one = ops("{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}");
  for (const char* other :
       {"{% for m in messages %}{{ m.role + ':  ' + m.content }}{% endfor %}",
        "{% for m in messages[1:] %}{{ m.role + ': ' + m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content + ': ' + m.role }}{% endfor %}",
        "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}.",
        "{% for m in messages %} {{ m.role + ': ' + m.content }}{% endfor %}"})
    EXPECT_NE(ops(other), one) << other;
}

// Jinja with trim_blocks and lstrip_blocks.
TEST(CanonicalTemplate, WhiteSpaceAroundTags) {
  const auto text_of = [](const char* program) {
    std::string out;
    for (const TemplateOp& op : ops(program))
      if (op.kind == TemplateOp::Kind::kText) out += op.text;
    return out;
  };
  EXPECT_EQ(text_of("a\n  {% if x %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(text_of("a\n  {%- if x -%}\n  b\n  {%- endif -%}\nc"), "abc");
  EXPECT_EQ(text_of("a {% if x %} b {% endif %} c"), "a  b  c");
  EXPECT_EQ(text_of("a\n  {{ x }}\nb"), "a\n  \nb");
  EXPECT_EQ(text_of("a\n  {%+ if x +%}\nb{% endif %}"), "a\n  \nb");
  EXPECT_EQ(text_of("{{ '}}' + \"'\" + '\\n' }}"), "}}'\n");
}

TEST(CanonicalTemplate, BrokenProgramsAreErrors) {
  for (const char* broken : {"{{ 'a }}", "{% for m in", "{{ }}", "{{ '\\q' }}", "{# never closed"})
    EXPECT_FALSE(canonical_template(broken).ok()) << broken;
}

}  // namespace
}  // namespace braid
