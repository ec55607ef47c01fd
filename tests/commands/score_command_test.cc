// `braid score` as a user runs it, and exported folders as transformers reads them.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/json.h"
#include "host/testing.h"
#include "nn/test_models.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::HasSubstr;

// Interpreter with transformers: BRAID_PYTHON, else python3.
std::string python() {
  const char* chosen = std::getenv("BRAID_PYTHON");
  return chosen == nullptr ? "python3" : chosen;
}

class ScoreCommand : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    if (!path_exists(BRAID_BINARY)) GTEST_SKIP() << "the program is not built: " << BRAID_BINARY;
  }
  Finished score(const std::string& model, const std::string& input) {
    const std::string path = join_path(folder_, "in.jsonl");
    EXPECT_TRUE(write_file_atomic(path, input).ok());
    return run_program({BRAID_BINARY, "score", model, "--input", path, "--json"});
  }
  // What another implementation says of the folder's scores; it exits with 3 where it is missing.
  Finished check_in_python(const std::string& model) {
    const Finished scores = score(model, "{\"ids\": [5, 17, 101, 42, 8, 1]}");
    EXPECT_EQ(scores.lines.size(), 1u) << scores.errors;
    const std::string path = join_path(folder_, "scores.jsonl");
    EXPECT_TRUE(write_file_atomic(path, cat(join(scores.lines, "\n"), "\n")).ok());
    return run_program({python(), cat(BRAID_SOURCE_DIR, "/tools/check_export.py"), model, path});
  }
};

TEST_F(ScoreCommand, LogprobsAreThoseOfTheModel) {
  const Finished out = score(golden_folder("llama"),
                             "{\"ids\": [5, 17, 101]}\n\n{\"ids\": [7]}\n{\"ids\": [9, 1]}\n");
  ASSERT_EQ(out.lines.size(), 3u) << out.errors;
  const auto model = load_model(golden_folder("llama"), {});
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = (*model)->forward(pack_sequences({{5, 17, 101}}, at::kCPU), nullptr);
  const at::Tensor expected = logits(**model, hidden).log_softmax(-1);
  const Json first = *parse_json(out.lines[0], "line 1");
  EXPECT_EQ(first.at("ids"), Json({5, 17, 101}));
  ASSERT_EQ(first.at("logprobs").size(), 3u);
  EXPECT_TRUE(first.at("logprobs")[0].is_null());
  EXPECT_NEAR(first.at("logprobs")[1].get<double>(), expected[0][17].item<double>(), 1e-5);
  EXPECT_NEAR(first.at("logprobs")[2].get<double>(), expected[1][101].item<double>(), 1e-5);
  EXPECT_EQ(*parse_json(out.lines[1], "line 2"), Json({{"ids", {7}}, {"logprobs", {nullptr}}}));
  EXPECT_FALSE(first.contains("values"));
}

TEST_F(ScoreCommand, ScalarHeadGivesAValuePerToken) {
  const std::string folder = golden_folder("qwen2-score");
  const Json golden =
      parse_json(*read_file(join_path(folder, "golden.json")), "golden")->at("prompts")[0];
  const Finished out = score(folder, Json({{"ids", golden.at("ids")}}).dump());
  ASSERT_EQ(out.lines.size(), 1u) << out.errors;
  const Json line = *parse_json(out.lines[0], "line");
  const Json values = line.at("values");
  EXPECT_EQ(line.at("logprobs"), Json(std::vector<Json>(values.size(), nullptr)));
  ASSERT_EQ(values.size(), golden.at("values").size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i].get<double>(), golden.at("values")[i].get<double>(), 2e-4);
}

TEST_F(ScoreCommand, TextIsTokenizedByTheFolder) {
  const std::string source = cat(BRAID_SOURCE_DIR, "/examples/quickstart/model");
  const auto spec = parse_model_spec(*read_file(join_path(source, "config.json")), source);
  const std::string model = join_path(folder_, "model");
  ASSERT_TRUE(save_model(**make_model(*spec, {}), model, {.source_folder = source}).ok());
  const Finished text = score(model, "{\"text\": \"sort 31=\"}");
  ASSERT_EQ(text.lines.size(), 1u) << text.errors;
  const Json ids = parse_json(text.lines[0], "line")->at("ids");
  EXPECT_GT(ids.size(), 8u);  // a token per character, after the beginning of sequence
  EXPECT_EQ(score(model, Json({{"ids", ids}}).dump()).lines, text.lines);
}

TEST_F(ScoreCommand, BadLinesAndFoldersExitWith2AndOneLine) {
  const char* const cases[][2] = {{"{\"ids\": [5, 199]}", "in.jsonl:1: token id 199"},
                                  {"{\"ids\": [1]}\n{\"ids\": []}", "in.jsonl:2: no tokens"},
                                  {"{\"ids\": [1]}\n{\"text\": \"\xff\"}", "in.jsonl:2: not valid"},
                                  {"{\"prompt\": \"x\"}", "needs either 'ids' or 'text'"},
                                  {"{\"text\": \"x\"}", "tokenizer.json"},
                                  {"[1, 2", "in.jsonl:1"}};
  for (const auto& bad : cases) {
    const Finished out = score(golden_folder("llama"), bad[0]);
    EXPECT_EQ(out.end, "exited with status 2");
    EXPECT_TRUE(out.lines.empty());
    EXPECT_THAT(out.errors, HasSubstr(bad[1]));
    EXPECT_EQ(std::count(out.errors.begin(), out.errors.end(), '\n'), 1) << out.errors;
  }
  EXPECT_EQ(score(folder_, "{\"ids\": [1]}").end, "exited with status 2");
}

TEST_F(ScoreCommand, ExportedFolderGivesTheSameNumbersInTransformers) {
  if (run_program({"sh", "-c", cat("command -v ", python())}).end != "exited with status 0")
    GTEST_SKIP() << python() << " is not installed";
  for (const char* name :
       {"gpt2", "qwen3", "gemma2", "gemma3", "phi3", "llama-score", "gemma3-score"}) {
    const std::string source = golden_folder(name), target = join_path(folder_, name);
    const auto model = load_model(source, {});
    ASSERT_TRUE(save_model(**model, target, {.source_folder = source}).ok());
    const Finished check = check_in_python(target);
    if (check.end == "exited with status 3") GTEST_SKIP() << "transformers is not installed";
    EXPECT_EQ(check.end, "exited with status 0") << check.errors;
  }
}

TEST_F(ScoreCommand, ExportedAdaptersGiveTheSameNumbersInPeft) {
  if (run_program({"sh", "-c", cat("command -v ", python())}).end != "exited with status 0")
    GTEST_SKIP() << python() << " is not installed";
  for (const bool scalar_head : {false, true}) {
    LoadOptions options;
    options.model.lora = {.rank = 2, .alpha = 4, .targets = {"q_proj", "down_proj"}};
    options.scalar_head = scalar_head;
    const std::string source = golden_folder("llama"), target = join_path(folder_, "adapter");
    const auto model = load_model(source, options);
    {
      const at::NoGradGuard no_grad;
      for (const auto& item : (*model)->trainable_parameters())
        at::Tensor(item.second).normal_(0, 0.1, std::nullopt);
    }
    ExportOptions apart = {.source_folder = source};
    apart.merge_adapters = false;
    ASSERT_TRUE(save_model(**model, target, apart).ok());
    const Finished check = check_in_python(target);
    if (check.end == "exited with status 3") GTEST_SKIP() << "transformers or peft is missing";
    EXPECT_EQ(check.end, "exited with status 0") << check.errors;
  }
}

}  // namespace
}  // namespace braid
