// `braid generate` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/testing.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

const std::string kGenerateModel = std::string(BRAID_SOURCE_DIR) + "/tests/data/models/llama";

// Standard output, or standard error alone.
CommandOutcome run_generate(const std::string& lines, const std::string& flags,
                            bool errors = false) {
  const std::string path = ::testing::TempDir() + "/generate_prompts.jsonl";
  EXPECT_TRUE(write_file_atomic(path, lines).ok());
  const std::string command = std::string(BRAID_BINARY) + " generate " + kGenerateModel +
                              " --prompts " + path + " --threads 1 " + flags +
                              (errors ? " 2>&1 >/dev/null" : " 2>/dev/null");
  return run_shell(command);
}

TEST(GenerateCommand, GreedyContinuesAsTransformersDoes) {
  const std::string golden_text = read_file(kGenerateModel + "/golden.json").value();
  const Json golden = parse_json(golden_text, "golden.json").value();
  std::string lines;
  for (const Json& prompt : golden["prompts"])
    lines += Json{{"ids", prompt["ids"]}}.dump() + "\n\n";
  const size_t count = golden["prompts"][0]["greedy"].size();
  const CommandOutcome outcome = run_generate(
      lines, "--json --temperature 0 --ignore-eos --max-new-tokens " + std::to_string(count));
  ASSERT_EQ(outcome.exit_code, 0);
  const std::vector<std::string> out = split(outcome.output, '\n');
  ASSERT_EQ(out.size(), golden["prompts"].size() + 1) << outcome.output;
  for (size_t i = 0; i < golden["prompts"].size(); ++i) {
    const Json line = parse_json(out[i], "output").value();
    EXPECT_EQ(line["ids"], golden["prompts"][i]["greedy"]);
    EXPECT_EQ(line["logprobs"].size(), count);
    EXPECT_TRUE(line["text"].is_null());
    EXPECT_EQ(line["finish"], "length");
  }
}

TEST(GenerateCommand, BadInputIsOneLineWithItsPlaceAndExitCodeTwo) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"{\"ids\":[5]}\n{\"ids\":[]}\n", "", "jsonl:2: sample 1: the prompt is empty"},
      {"{\"ids\":[999]}\n", "", "jsonl:1: sample 0: token id 999 is outside"},
      {"{\"ids\":[1.5]}\n", "", "jsonl:1: token id 1.5"},
      {"{\"ids\":[1]\n", "", "jsonl:1: not valid JSON"},
      {"{\"ids\":[1]}\n{\"prompt\":\"\xff\"}\n", "", "jsonl:2: not valid JSON"},
      {"[1]\n", "", "jsonl:1: must be an object"},
      {"{\"prompt\":\"a\"}\n", "", "has no tokenizer.json"},
      {"\n", "", "has no prompts"},
      {"{\"ids\":[5]}\n", "--max-new-tokens 600", "256 positions"},
      {"{\"ids\":[5]}\n", "--top-p 0", "top_p is 0"},
      {"{\"ids\":[5]}\n", "--stop x", "--stop needs a tokenizer.json"},
      {"{\"ids\":[5]}\n", "--prompt x", "give one of --prompt"},
      {"{\"ids\":[5]}\n", "--device cuda:99", "--device: "},
  };
  for (const auto& [lines, flags, message] : cases) {
    const CommandOutcome outcome = run_generate(lines, flags, true);
    EXPECT_EQ(outcome.exit_code, 2) << message;
    EXPECT_THAT(outcome.output, HasSubstr(message));
    EXPECT_EQ(split(outcome.output, '\n').size(), 2u) << outcome.output;
  }
}

}  // namespace
}  // namespace braid
