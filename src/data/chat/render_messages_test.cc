#include "data/chat/render_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host/file.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

Tokenizer with_template(const std::string& name, const std::string& jinja) {
  const std::string folder = ::testing::TempDir() + "/render_" + name;
  const std::string source = std::string(BRAID_SOURCE_DIR) + "/tests/data/tokenizer/qwen2.json";
  EXPECT_TRUE(make_folder(folder).ok());
  EXPECT_TRUE(write_file_atomic(folder + "/tokenizer.json", *read_file(source)).ok());
  EXPECT_TRUE(write_file_atomic(folder + "/chat_template.jinja", jinja).ok());
  return *load_tokenizer(folder);
}

TEST(RenderMessages, ChatmlOfTheTokenizersTemplate) {
  const Tokenizer tokenizer = with_template(
      "chatml",
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}");
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  const auto ids = render_messages(tokenizer, messages, true);
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_EQ(*tokenizer.decode(*ids, false),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(RenderMessages, UnknownTemplateNamesTheScript) {
  const Tokenizer tokenizer = with_template("unknown", "{{ messages | length }}");
  const auto ids = render_messages(tokenizer, Json::array(), true);
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.status().message(), HasSubstr("tools/render_prompts.py"));
}

}  // namespace
}  // namespace braid
