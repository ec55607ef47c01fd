// The recipes for an instruct model, with the data and rewards that TRL's and verl's users have, on
// a tiny random model with a chat template: that they run from end to end. Nothing is learnt.
#include <gmock/gmock.h>

#include "base/json.h"
#include "data/arrow_rows.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kInstructLlama =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
 "num_key_value_heads": 2, "vocab_size": 272, "max_position_embeddings": 1024,
 "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "eos_token_id": 259,
 "tie_word_embeddings": true, "torch_dtype": "float32"})";

constexpr const char* kInstructTokens = R"({"bos_token": "<s>", "eos_token": "<|im_end|>"})";

constexpr const char* kInstructTemplate =
    "{%- for message in messages %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' }}\n"
    "{%- if message.role == 'assistant' %}\n"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}\n"
    "{%- else %}{{- message.content + '<|im_end|>' }}{% endif %}\n"
    "{{- '\\n' }}{% endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}\n";

// Sizes that fit a test; everything else is the recipe's.
constexpr const char* kInstructSizes =
    " model.dtype=f32 rollout.prompts_per_step=2 rollout.samples_per_prompt=2 "
    "rollout.max_response_length=6 train.total_steps=1 train.threads=2 log.samples_every=1 ";

class InstructRecipe : public CommandTest {
 protected:
  // A Hugging Face folder with a chat template, made by exporting random weights after one step of
  // sft on conversations.
  std::string instruct_model() const {
    const std::string base = join_path(folder_, "base");
    EXPECT_TRUE(make_folder(base).ok());
    const std::string tokenizer = std::string(BRAID_SOURCE_DIR) + "/tests/data/chat/tokenizer.json";
    for (const auto& [name, text] : {std::pair("config.json", std::string(kInstructLlama)),
                                     {"chat_template.jinja", kInstructTemplate},
                                     {"tokenizer_config.json", kInstructTokens},
                                     {"tokenizer.json", *read_file(tokenizer)}})
      EXPECT_TRUE(write_file_atomic(join_path(base, name), text).ok());
    const std::string chats = write(
        "chats.jsonl",
        R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})"
        "\n");
    const CommandOutcome made =
        run_braid(cat("sft data.train=", chats, " rollout.prompts_per_step=1 train.total_steps=1 ",
                      "train.threads=2 model.config=", base, "/config.json tokenizer.path=", base,
                      " run.dir=", folder_, " run.name=sft"));
    EXPECT_EQ(made.exit_code, 0) << made.output;
    return join_path(folder_, "sft/export/actor");
  }

  CommandOutcome train(const std::string& recipe, const std::string& more = "") const {
    return run_braid(cat("train examples/instruct/", recipe, ".yaml model.path=", instruct_model(),
                         " run.dir=", folder_, kInstructSizes, more));
  }

  std::vector<Json> rows(const std::string& file) const {
    return read_rows(join_path(folder_, file));
  }
};

TEST_F(InstructRecipe, FromTrl) {
  const CommandOutcome trained = train("trl");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::vector<Json> metrics = rows("trl/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_TRUE(metrics[0].contains("reward/correct_mean"));
  EXPECT_TRUE(metrics[0].contains("reward/marked_mean"));
  const std::vector<Json> samples = rows("trl/samples.jsonl");
  ASSERT_FALSE(samples.empty());
  EXPECT_THAT(samples[0].dump(), AllOf(HasSubstr("<|im_start|>system\\nYou solve problems."),
                                       HasSubstr("<|im_end|>\\n<|im_start|>assistant\\n")));
  EXPECT_TRUE(samples[0]["rewards"].contains("correct")) << samples[0].dump();
  EXPECT_TRUE(samples[0]["rewards"].contains("marked")) << samples[0].dump();
  for (const char* file : {"chat_template.jinja", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(path_exists(join_path(folder_, cat("trl/export/actor/", file)))) << file;
}

TEST_F(InstructRecipe, FromVerl) {
  if (!can_read_arrow()) GTEST_SKIP() << "built without Arrow";
  const CommandOutcome trained = train("verl");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::vector<Json> metrics = rows("verl/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_TRUE(metrics[0].contains("reward/score_mean"));
}

// What a right, a marked and a bad answer score.
TEST_F(InstructRecipe, RewardsCountWhatTheySayTheyCount) {
  const std::string samples = write(
      "samples.jsonl", R"({"prompt": "p", "response": "so <answer>45</answer>", "answer": "45"})"
                       "\n"
                       R"({"prompt": "p", "response": "<answer>44</answer>", "answer": "45"})"
                       "\n"
                       R"({"prompt": "p", "response": "45", "answer": "45"})"
                       "\n");
  const CommandOutcome scored =
      run_braid(cat("reward-test examples/instruct/trl.yaml --json --samples ", samples));
  ASSERT_EQ(scored.exit_code, 0) << scored.output;
  EXPECT_THAT(scored.output, AllOf(HasSubstr(R"("rewards":{"correct":1.0,"marked":1.0})"),
                                   HasSubstr(R"("rewards":{"correct":0.0,"marked":1.0})"),
                                   HasSubstr(R"("rewards":{"correct":0.0,"marked":0.0})")));
  const std::string answers = write(
      "answers.jsonl",
      R"({"prompt": "p", "response": "x\n#### 1,170", "data_source": "own", "ground_truth": "1170"})"
      "\n"
      R"({"prompt": "p", "response": "#### 3.", "data_source": "own", "ground_truth": "4"})"
      "\n");
  const CommandOutcome second =
      run_braid(cat("reward-test examples/instruct/verl.yaml --json --samples ", answers));
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_THAT(second.output, AllOf(HasSubstr(R"("score":1.0,"score/answered":1.0)"),
                                   HasSubstr(R"("score":0.1,"score/answered":1.0)")));
}

// Without the model in the cache, the message says how to get it.
TEST_F(InstructRecipe, AModelThatIsNotThereIsNamedWithTheCommandThatBringsIt) {
  const CommandOutcome outcome = run_shell(cat("cd ", BRAID_SOURCE_DIR, " && HF_HOME=", folder_,
                                               " HF_HUB_CACHE= ", BRAID_BINARY,
                                               " train examples/instruct/trl.yaml --dry-run 2>&1"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("hf download Qwen/Qwen2.5-0.5B-Instruct"));
}

}  // namespace
}  // namespace braid
