// `braid tokenize` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing.h"
#include "base/text.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// The arguments begin with the model: an absolute path or a name in tests/data/tokenizer.
CommandOutcome run_tokenize(const std::string& arguments) {
  const std::string folder = std::string(BRAID_SOURCE_DIR) + "/tests/data/tokenizer";
  return run_shell(cat(BRAID_BINARY, " tokenize ", join_path(folder, arguments), " 2>&1"));
}

std::string write_lines(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  EXPECT_TRUE(write_file_atomic(path, text).ok());
  return path;
}

class TokenizeCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!path_exists(BRAID_BINARY)) GTEST_SKIP() << BRAID_BINARY << " is not built";
  }
};

TEST_F(TokenizeCommand, TextToIdsAndBack) {
  const std::string texts = write_lines("texts.jsonl", "{\"text\": \"a b\"}\n\n{\"text\": \"\"}\n");
  const CommandOutcome encoded = run_tokenize("llama2.json --json --input " + texts);
  EXPECT_EQ(encoded.exit_code, 0);
  EXPECT_THAT(encoded.output, HasSubstr("\n{\"ids\":[1]}\n"));
  const std::string ids = write_lines("ids.jsonl", encoded.output);
  EXPECT_EQ(run_tokenize("llama2.json --json --decode --input - < " + ids).output,
            "{\"text\":\"<s> a b\"}\n{\"text\":\"<s>\"}\n");
}

TEST_F(TokenizeCommand, SpecialTokensCanBeSkipped) {
  const std::string ids = write_lines("ids.jsonl", "{\"ids\": [1]}\n");
  EXPECT_EQ(run_tokenize("llama2.json --decode --input " + ids).output, "<s>\n");
  EXPECT_EQ(run_tokenize("llama2.json --decode --skip-special --input " + ids).output, "\n");
  EXPECT_EQ(run_tokenize("llama2.json --skip-special --input " + ids).exit_code, 2);
}

TEST_F(TokenizeCommand, PlainOutputIsIdsWithBlanks) {
  const std::string texts = write_lines("texts.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n");
  EXPECT_EQ(run_tokenize("../chat/tokenizer.json --input " + texts).output, "256 64 65\n256\n");
}

// The folder of the chat tests with a template beside the tokenizer.
TEST_F(TokenizeCommand, MessagesUseTheTemplateOfTheFolder) {
  const std::string folder = ::testing::TempDir() + "/chat_model";
  ASSERT_TRUE(make_folder(folder).ok());
  const std::string source = std::string(BRAID_SOURCE_DIR) + "/tests/data/chat/";
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"})
    ASSERT_TRUE(write_file_atomic(folder + name, *read_file(source + name)).ok());
  ASSERT_TRUE(write_file_atomic(folder + "/chat_template.jinja",
                                "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}"
                                "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}"
                                "{% endif %}")
                  .ok());
  const std::string lines = write_lines(
      "messages.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n");
  const auto shown = [&](const std::string& options) {
    const std::string ids =
        write_lines("ids.jsonl", run_tokenize(options + " --json --input " + lines).output);
    return run_tokenize(options.substr(0, options.find(' ')) + " --decode --json --input " + ids)
        .output;
  };
  EXPECT_EQ(shown(folder), "{\"text\":\"user: hi\\n\"}\n");
  EXPECT_EQ(shown(folder + " --add-generation-prompt"), "{\"text\":\"user: hi\\nassistant: \"}\n");
  const CommandOutcome without = run_tokenize("gpt2.json --json --input " + lines);
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.output, HasSubstr("messages.jsonl:1: messages need a chat template"));
}

TEST_F(TokenizeCommand, BadLinesAreNamed) {
  const std::string good = "{\"text\": \"a\"}\n";
  for (const std::string bad : {"{\"text\": \"a\xFF\"}\n", "{\"text\": 1}\n", "{\"txt\": \"a\"}\n",
                                "[]\n", "{\"text\": \"a\"\n"}) {
    const std::string path = write_lines("bad.jsonl", good + bad);
    const CommandOutcome outcome = run_tokenize("gpt2.json --json --input " + path);
    EXPECT_EQ(outcome.exit_code, 2) << bad;
    EXPECT_THAT(outcome.output, HasSubstr(path + ":2")) << bad;
  }
}

TEST_F(TokenizeCommand, BadIdsAreNamed) {
  for (const char* ids : {"[-1]", "[100000]", "[1.5]", "7", "[99999999999999999999]"}) {
    const std::string path = write_lines("bad_ids.jsonl", std::string("{\"ids\": ") + ids + "}\n");
    const CommandOutcome outcome = run_tokenize("gpt2.json --decode --json --input " + path);
    EXPECT_EQ(outcome.exit_code, 2) << ids;
    EXPECT_THAT(outcome.output, HasSubstr(path + ":1")) << ids;
  }
}

TEST_F(TokenizeCommand, MissingModelIsNamed) {
  const CommandOutcome outcome = run_tokenize("none --json --input -");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("none: there is no such model folder"));
}

}  // namespace
}  // namespace braid
