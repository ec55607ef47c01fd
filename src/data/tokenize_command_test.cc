// `braid tokenize` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "host/file.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code;
  std::string output;  // standard output and error together
};

Outcome run_tokenize(const std::string& arguments) {
  const std::string command = std::string(BRAID_BINARY) + " tokenize " + BRAID_SOURCE_DIR +
                              "/tests/data/tokenizer/" + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t size = fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), size);
  return {WEXITSTATUS(pclose(pipe)), output};
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
  const Outcome encoded = run_tokenize("llama2.json --json --input " + texts);
  EXPECT_EQ(encoded.exit_code, 0);
  EXPECT_THAT(encoded.output, HasSubstr("\n{\"ids\":[1]}\n"));
  const std::string ids = write_lines("ids.jsonl", encoded.output);
  EXPECT_EQ(run_tokenize("llama2.json --json --decode --input - < " + ids).output,
            "{\"text\":\"<s> a b\"}\n{\"text\":\"<s>\"}\n");
}

TEST_F(TokenizeCommand, BadLinesAreNamed) {
  const std::string good = "{\"text\": \"a\"}\n";
  for (const std::string bad : {"{\"text\": \"a\xFF\"}\n", "{\"text\": 1}\n", "{\"txt\": \"a\"}\n",
                                "[]\n", "{\"text\": \"a\"\n"}) {
    const std::string path = write_lines("bad.jsonl", good + bad);
    const Outcome outcome = run_tokenize("gpt2.json --json --input " + path);
    EXPECT_EQ(outcome.exit_code, 2) << bad;
    EXPECT_THAT(outcome.output, HasSubstr(path + ":2")) << bad;
  }
}

TEST_F(TokenizeCommand, BadIdsAreNamed) {
  for (const char* ids : {"[-1]", "[100000]", "[1.5]", "7", "[99999999999999999999]"}) {
    const std::string path = write_lines("bad_ids.jsonl", std::string("{\"ids\": ") + ids + "}\n");
    const Outcome outcome = run_tokenize("gpt2.json --decode --json --input " + path);
    EXPECT_EQ(outcome.exit_code, 2) << ids;
    EXPECT_THAT(outcome.output, HasSubstr(path + ":1")) << ids;
  }
}

TEST_F(TokenizeCommand, MissingModelIsNamed) {
  const Outcome outcome = run_tokenize("none --json --input -");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("none does not exist"));
}

}  // namespace
}  // namespace braid
