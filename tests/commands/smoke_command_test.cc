// Every recipe of examples/ that trains, with --smoke: its keys as they are written, on tiny
// models.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "base/json.h"
#include "data/arrow_rows.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct SmokeRecipe {
  const char* file;         // in examples/
  const char* more = "";    // what its first lines ask for on the command line
  bool arrow = false;       // its data are parquet
  const char* metric = "";  // that a step of it has
};

constexpr SmokeRecipe kRecipes[] = {
    {"algorithms/distill.yaml", "", false, "distill/reverse_kl"},
    {"algorithms/preferences.yaml", "algorithm.name=dpo", false, "dpo/loss"},
    {"algorithms/reward_model.yaml", "", false, "rm/loss"},
    {"algorithms/reward_models.yaml", "", false, "reward/scores_mean"},
    {"algorithms/toy.yaml", "algorithm.name=rloo", false, "reward/rule_mean"},
    {"assistant/ppo.yaml", "", false, "critic/loss"},
    {"assistant/rm.yaml", "", false, "rm/loss"},
    {"assistant/sft.yaml", "", false, "sft/loss"},
    {"cluster/grpo.yaml", "", false, "policy/loss"},
    {"gsm8k/grpo.yaml", "", false, "eval/accuracy"},
    {"gsm8k/ppo.yaml", "", false, "critic/loss"},
    {"instruct/trl.yaml", "", false, "reward/correct_mean"},
    {"instruct/verl.yaml", "", true, "reward/score_mean"},
    {"lora/grpo.yaml", "", false, "reward/gold_mean"},
    {"lora/ppo.yaml", "", false, "reward/learnt_mean"},
    {"quickstart/grpo.yaml", "", false, "reward/gold_mean"},
    {"quickstart/ppo.yaml", "", false, "reward/learnt_mean"},
    {"quickstart/rm.yaml", "", false, "rm/loss"},
    {"quickstart/sft.yaml", "", false, "sft/loss"},
};

// Without what this machine's cache may have.
CommandOutcome run_smoke(const std::string& folder, const std::string& arguments) {
  return run_shell(cat("cd ", BRAID_SOURCE_DIR, " && HF_HOME=", folder,
                       " HF_HUB_CACHE= ", BRAID_BINARY, " train ", arguments,
                       " --smoke train.threads=2 run.dir=", folder, " 2>&1"));
}

std::vector<Json> only_metrics(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (path_exists(entry.path() / "metrics.jsonl"))
      return read_rows(entry.path() / "metrics.jsonl");
  return {};
}

class SmokeOfRecipe : public CommandTest, public ::testing::WithParamInterface<SmokeRecipe> {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    std::filesystem::remove_all(folder_);  // names of parameters have no folders of their own
    folder_ = join_path(::testing::TempDir(), cat("braid-smoke-", ::getpid(), "-", serial_++));
    ASSERT_TRUE(make_folder(folder_).ok());
  }
  static inline int serial_ = 0;
};

TEST_P(SmokeOfRecipe, Runs) {
  const SmokeRecipe& recipe = GetParam();
  if (recipe.arrow && !can_read_arrow()) GTEST_SKIP() << "built without Arrow";
  const CommandOutcome outcome =
      run_smoke(folder_, cat("examples/", recipe.file, " ", recipe.more));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("smoke: train.total_steps: 2 in place of "),
                                    HasSubstr("done; metrics")));
  std::vector<Json> rows = only_metrics(folder_);
  std::erase_if(rows, [](const Json& row) { return row["step"].get<int>() < 0; });  // eval.at_start
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[1].contains(recipe.metric)) << rows[1].dump();
}

INSTANTIATE_TEST_SUITE_P(Examples, SmokeOfRecipe, ::testing::ValuesIn(kRecipes),
                         [](const auto& info) {
                           std::string name = info.param.file;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

// A recipe that is added must stand above. examples/plans has those of the planner.
TEST(SmokeOfRecipes, AllOfThemAreTried) {
  std::set<std::string> tried, found;
  for (const SmokeRecipe& recipe : kRecipes) tried.insert(recipe.file);
  const std::filesystem::path root = std::string(BRAID_SOURCE_DIR) + "/examples";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string file = entry.path().lexically_relative(root);
    if (entry.path().extension() == ".yaml" && file.find(".plan.") == std::string::npos &&
        file.rfind("plans/", 0) != 0)
      found.insert(file);
  }
  EXPECT_EQ(tried, found);
}

class Smoke : public CommandTest {};

TEST_F(Smoke, SaysWhatItReplaces) {
  const CommandOutcome outcome =
      run_smoke(folder_, "examples/quickstart/ppo.yaml model.path=no/folder --dry-run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* line :
       {"smoke: run.name: ppo-smoke in place of ppo",
        "smoke: rollout.prompts_per_step: 8 in place of 256",
        "in place of no/folder (a tiny random llama; its own is not on this "
        "machine, nor its family)",
        "smoke: critic.path: ", "smoke: tokenizer.path: ", "smoke: reward learnt: path "})
    EXPECT_THAT(outcome.output, HasSubstr(line));
}

// A model that is there gives its family, in a tiny model's sizes.
TEST_F(Smoke, KeepsTheFamilyOfAModelThatIsThere) {
  const std::string model = join_path(folder_, "qwen");
  ASSERT_TRUE(make_folder(model).ok());
  const std::string tokenizer = std::string(BRAID_SOURCE_DIR) + "/tests/data/tokenizer/gpt2.json";
  const Json config = {{"architectures", {"Qwen2ForCausalLM"}},
                       {"model_type", "qwen2"},
                       {"hidden_size", 896},
                       {"intermediate_size", 4864},
                       {"num_hidden_layers", 24},
                       {"num_attention_heads", 14},
                       {"num_key_value_heads", 2},
                       {"vocab_size", 640},
                       {"max_position_embeddings", 32768},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 1e6},
                       {"hidden_act", "silu"},
                       {"eos_token_id", 0},
                       {"tie_word_embeddings", true},
                       {"torch_dtype", "bfloat16"}};
  ASSERT_TRUE(write_file_atomic(join_path(model, "config.json"), config.dump()).ok());
  ASSERT_TRUE(write_file_atomic(join_path(model, "tokenizer.json"), *read_file(tokenizer)).ok());
  const CommandOutcome outcome =
      run_smoke(folder_, cat("examples/gsm8k/grpo.yaml model.path=", model));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("(a tiny random qwen2)"), Not(HasSubstr("smoke: tokenizer.path"))));
}

}  // namespace
}  // namespace braid
