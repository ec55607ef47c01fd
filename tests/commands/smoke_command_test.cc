// Every recipe of examples/ that trains, with --smoke: its keys as they are written, on tiny
// models; and that its samples fit its own.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"
#include "data/arrow_rows.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

// Lines of warnings about what the command line says: that is the smoke's own, which is none of the
// recipe's.
std::vector<std::string> warned_of_overrides(const std::string& output) {
  std::vector<std::string> out;
  for (const std::string& line : split(output, '\n'))
    if (line.find("command line: ") != std::string::npos &&
        line.find("command line: train.threads") == std::string::npos)
      out.push_back(line);
  return out;
}

// The config.json that a recipe's model has: it names it, or the export of another recipe, which is
// examples/A/B.yaml for runs/A/B/export. "" for a model of the Hugging Face cache.
std::string config_of_recipe(const std::string& file) {
  const std::string path = cat(BRAID_SOURCE_DIR, "/examples/", file);
  const auto recipe = parse_yaml(*read_file(path), path);
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  const YamlNode* model = recipe.ok() ? recipe->find("model") : nullptr;
  if (model == nullptr) return "";
  if (const YamlNode* config = model->find("config")) return config->scalar;
  const YamlNode* folder = model->find("path");
  const std::vector<std::string> parts =
      split(folder == nullptr ? "" : folder->scalar, '/');  // runs/A/B/export/actor
  const bool exported = parts.size() > 3 && parts[0] == "runs" && parts[3] == "export";
  return exported ? config_of_recipe(cat(parts[1], "/", parts[2], ".yaml")) : "";
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
  EXPECT_THAT(warned_of_overrides(outcome.output), IsEmpty());
  std::vector<Json> rows = only_metrics(folder_);
  std::erase_if(rows, [](const Json& row) { return row["step"].get<int>() < 0; });  // eval.at_start
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[1].contains(recipe.metric)) << rows[1].dump();
}

// As it is written, with the positions that its model has. The models are written first, without
// adapters, which need weights below them.
TEST_P(SmokeOfRecipe, ItsSamplesFitItsModel) {
  const SmokeRecipe& recipe = GetParam();
  if (recipe.arrow && !can_read_arrow()) GTEST_SKIP() << "built without Arrow";
  const std::string config = config_of_recipe(recipe.file);
  if (config.empty()) GTEST_SKIP() << "its model is not in the repository";
  const std::string tokenizer = config.substr(0, config.rfind('/'));
  const std::string arguments =
      cat("examples/", recipe.file, " ", recipe.more, " run.name=recipe ");
  const CommandOutcome made =
      run_smoke(folder_, cat(arguments, "model.path= model.config=", config,
                             " tokenizer.path=", tokenizer, " lora.rank=0 --dry-run"));
  ASSERT_EQ(made.exit_code, 0) << made.output;
  const std::string models = join_path(folder_, "recipe-smoke-models");
  const std::string text = *read_file(cat(BRAID_SOURCE_DIR, "/examples/", recipe.file));
  const bool scored = text.find("type: model") != std::string::npos;
  const CommandOutcome outcome = run_shell(cat(
      "cd ", BRAID_SOURCE_DIR, " && ", BRAID_BINARY, " train ", arguments, " --dry-run run.dir=",
      folder_, " model.config= model.path=", models, "/model tokenizer.path=", models, "/model",
      text.find("teacher:") == std::string::npos ? "" : cat(" teacher.path=", models, "/model"),
      text.find("critic: {path") == std::string::npos ? ""
                                                      : cat(" critic.path=", models, "/scorer"),
      text.find("init_from: reward_model") == std::string::npos ? "" : " critic.init_from=policy",
      scored ? " reward='[{type: rule, rule: digit_share}]'" : "", " 2>&1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, Not(HasSubstr("longer samples will fail")));
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

// Of what a run does not read nothing is replaced, and warm-ups end within it.
TEST_F(Smoke, ReplacesWhatTheRunReads) {
  const CommandOutcome outcome = run_smoke(folder_, "examples/assistant/sft.yaml --dry-run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("smoke: optim.actor.warmup_steps: 1 in place of 10"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("smoke: rollout.max_response_length")));
  EXPECT_THAT(warned_of_overrides(outcome.output), IsEmpty());
}

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
