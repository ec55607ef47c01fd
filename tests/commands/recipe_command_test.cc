// The shipped recipe for grade-school problems on a tiny random model with a byte-level BPE
// tokenizer: that it runs from end to end. Nothing is learnt here.
#include <gmock/gmock.h>

#include "base/json.h"
#include "data/dataset.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTinyLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
 "num_key_value_heads": 2, "vocab_size": 640, "max_position_embeddings": 1024,
 "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "eos_token_id": 0,
 "tie_word_embeddings": true, "torch_dtype": "float32"})";

// Sizes that fit a test; everything else is the recipe's.
constexpr const char* kSmall =
    " rollout.max_response_length=8 train.total_steps=2 train.threads=2 eval.every_steps=2 "
    "eval.prompts=3 ";

class Recipe : public CommandTest {
 protected:
  // A Hugging Face folder, made by exporting random weights after one step on the sample.
  std::string hugging_face_folder() const {
    const std::string base = join_path(folder_, "base");
    EXPECT_TRUE(make_folder(base).ok());
    const std::string tokenizer = std::string(BRAID_SOURCE_DIR) + "/tests/data/tokenizer/gpt2.json";
    EXPECT_TRUE(write_file_atomic(join_path(base, "config.json"), kTinyLlama).ok());
    EXPECT_TRUE(write_file_atomic(join_path(base, "tokenizer.json"), *read_file(tokenizer)).ok());
    const CommandOutcome made = run_braid(
        cat("sft data.train=examples/gsm8k/sample.jsonl data.prompt_key=question ",
            "data.label_key=answer rollout.prompts_per_step=4 train.total_steps=1 train.threads=2 ",
            "model.config=", base, "/config.json tokenizer.path=", base, " run.dir=", folder_,
            " run.name=sft"));
    EXPECT_EQ(made.exit_code, 0) << made.output;
    return join_path(folder_, "sft/export/actor");
  }

  std::vector<Json> metrics(const std::string& run) const {
    const std::string path = join_path(folder_, run + "/metrics.jsonl");
    return read_rows(path);
  }
};

TEST_F(Recipe, GrpoTrainsEvaluatesAndExports) {
  const std::string model = hugging_face_folder();
  const CommandOutcome trained =
      run_braid(cat("train examples/gsm8k/grpo.yaml model.path=", model, " run.dir=", folder_,
                    " rollout.prompts_per_step=2 rollout.samples_per_prompt=2", kSmall));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("step 2/2 [################] 100%"));
  const std::vector<Json> rows = metrics("grpo");
  ASSERT_EQ(rows.size(), 2u);
  for (const char* name : {"reward/answer_mean", "policy/loss", "length/response_max",
                           "mismatch/logprob_abs_max", "perf/peak_rss_gb", "time/generate"})
    EXPECT_TRUE(rows[0].contains(name)) << name;
  EXPECT_FALSE(rows[0].contains("eval/accuracy"));
  EXPECT_TRUE(rows[1].contains("eval/accuracy"));
  EXPECT_EQ(rows[1]["eval/prompts"], 3);
  EXPECT_EQ(list_folder(join_path(folder_, "grpo/tensorboard"))->size(), 1u);

  const std::string samples = join_path(folder_, "eval.jsonl");
  const CommandOutcome evaluated = run_braid(
      cat("eval examples/gsm8k/grpo.yaml --json --samples ", samples, " model.path=", folder_,
          "/grpo/export/actor eval.samples_per_prompt=4 eval.temperature=1", kSmall));
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const std::vector<Json> responses = read_rows(samples);
  EXPECT_EQ(responses.size(), 12u);
  double right = 0;
  for (const Json& response : responses) right += response["total"] >= 1 ? 1 : 0;
  const size_t json = evaluated.output.find("{\"eval/");
  ASSERT_NE(json, std::string::npos) << evaluated.output;
  const Json report =
      parse_json(trim(std::string_view(evaluated.output).substr(json)), "output").value();
  EXPECT_DOUBLE_EQ(report["eval/accuracy"], right / 12);
  EXPECT_DOUBLE_EQ(report["eval/pass_at_1"], right / 12);
  EXPECT_GE(report["eval/pass_at_4"], report["eval/pass_at_1"]);
}

TEST_F(Recipe, PpoTrains) {
  const CommandOutcome trained = run_braid(
      cat("train examples/gsm8k/ppo.yaml model.path=", hugging_face_folder(), " run.dir=", folder_,
          " rollout.prompts_per_step=4 train.minibatches=2", kSmall));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(metrics("ppo")[0].contains("critic/loss"));
}

// The real files, where they lie beside the repository.
TEST_F(Recipe, ReadsTheDataSet) {
  const std::string file = "../shared/data/gsm8k/test.jsonl";
  if (!path_exists(join_path(BRAID_SOURCE_DIR, file))) GTEST_SKIP() << file << " is not there";
  const CommandOutcome shown = run_braid(
      cat("data examples/gsm8k/grpo.yaml --show 0 tokenizer.path=",
          "tests/data/tokenizer/gpt2.json data.max_prompt_length=2000 data.train=", file));
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_THAT(shown.output, HasSubstr("\"lines\":1319"));
  EXPECT_THAT(shown.output, HasSubstr("\"usable\":1319"));
}

// Rewards that fail while training: exit code 1, one line that names reward and sample.
class FailingReward : public CommandTest {
 protected:
  CommandOutcome train(const std::string& reward) const {
    return run_braid(
        cat("train model.config=examples/quickstart/model/config.json data.train=task:sort_digits ",
            "tokenizer.path=examples/quickstart/model rollout.prompts_per_step=2 ",
            "rollout.max_response_length=4 train.total_steps=1 train.threads=2 run.dir=", folder_,
            " 'reward=[", reward, "]'"));
  }
};

TEST_F(FailingReward, ADeadServer) {
  const CommandOutcome outcome =
      train("{type: http, url: \"http://127.0.0.1:1/score\", outage_s: 0, timeout_s: 5}");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("reward 'http'"), HasSubstr("sample")));
  EXPECT_EQ(error_lines(outcome.output), 1);
}

TEST_F(FailingReward, APythonTracebackIsLoggedWithItsSample) {
  const std::string script =
      write("reward.py",
            "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
            "    return 1 / 0\n");
  const CommandOutcome outcome =
      train(cat("{type: python, path: ", script, ", function: compute_score}"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Traceback"), HasSubstr("ZeroDivisionError"), HasSubstr("sample 0")));
}

TEST_F(Recipe, EvaluationWithoutDataIsRefused) {
  const CommandOutcome outcome = run_braid(
      "eval model.config=examples/quickstart/model/config.json "
      "'reward=[{type: rule, rule: exact}]'");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("data.eval: nothing to evaluate on"));
}

}  // namespace
}  // namespace braid
