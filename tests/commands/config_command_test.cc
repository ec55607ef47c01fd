// Configurations as a person gives them on a command line; bad ones end with exit code 2 and one
// line, before anything is loaded.
#include <gmock/gmock.h>

#include "host/testing.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

class ConfigCommand : public CommandTest {};

TEST_F(ConfigCommand, ThreeSpellingsOfAKeyMeanTheSame) {
  for (const char* form :
       {"rollout.temperature=0.5", "--rollout.temperature=0.5", "--rollout.temperature 0.5"}) {
    const CommandOutcome outcome = run_braid(std::string("config --resolve ") + form);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.output, HasSubstr("  temperature: 0.5  # command line\n")) << form;
  }
}

TEST_F(ConfigCommand, LaterFilesWinAndKeysWinOverFiles) {
  const std::string first = write("a.yaml", "rollout:\n  temperature: 0.5\n  max_concurrent: 3\n");
  const std::string second = write("b.yaml", "rollout:\n  temperature: 0.7\ntrain: {seed: 4}\n");
  const CommandOutcome outcome =
      run_braid(cat("config --resolve ", first, " ", second, " --train.seed 5"));
  EXPECT_THAT(outcome.output, HasSubstr(cat("temperature: 0.7  # ", second, ":2")));
  EXPECT_THAT(outcome.output, HasSubstr(cat("max_concurrent: 3  # ", first, ":3")));
  EXPECT_THAT(outcome.output, HasSubstr("seed: 5  # command line"));
}

TEST_F(ConfigCommand, TheDryRunPrintsTheArithmeticAndChecksTheData) {
  const CommandOutcome outcome = run_braid(
      "train examples/quickstart/grpo.yaml --dry-run model.path= "
      "model.config=examples/quickstart/model/config.json "
      "tokenizer.path=examples/quickstart/model rollout.prompts_per_step=8 "
      "rollout.samples_per_prompt=4 train.minibatches=4");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("8 prompts x 4 samples = 32 sequences -> 4 mini-batches of 8"));
  EXPECT_THAT(outcome.output, HasSubstr("4096 usable lines"));
}

struct BadConfig {
  const char* name;
  const char* arguments;
  const char* message;
};
void PrintTo(const BadConfig& bad, std::ostream* out) { *out << bad.name; }

// Everything that is right, so that each case below is wrong in one thing.
constexpr const char* kGood =
    "train --dry-run model.config=examples/quickstart/model/config.json "
    "tokenizer.path=examples/quickstart/model data.train=task:sort_digits "
    "rollout.max_response_length=16 'reward=[{type: rule, rule: exact}]' ";

// What only a file can get wrong.
TEST_F(ConfigCommand, BadFilesNameFileAndLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"train: {seed: 1, seed: 2}\n", "key 'seed' occurs twice"},
      {"model: {path: '${BRAID_NO_SUCH_NAME}'}\n", "BRAID_NO_SUCH_NAME is not set"},
      {"train: {recompute: yes}\n", "true or false"},
      {"a: [\n", "not valid YAML"},
  };
  for (const auto& [text, message] : cases) {
    const std::string file = write("bad.yaml", text);
    const CommandOutcome outcome = run_braid("config --resolve " + file);
    EXPECT_EQ(outcome.exit_code, 2) << text;
    EXPECT_THAT(outcome.output, ::testing::AllOf(HasSubstr("bad.yaml"), HasSubstr(message)));
    EXPECT_EQ(error_lines(outcome.output), 1);
  }
}

class BadConfiguration : public CommandTest, public ::testing::WithParamInterface<BadConfig> {};

TEST_P(BadConfiguration, EndsWithOneLine) {
  const CommandOutcome outcome = run_braid(std::string(kGood) + GetParam().arguments);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr(GetParam().message));
  EXPECT_EQ(error_lines(outcome.output), 1) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadConfiguration,
    ::testing::Values(
        BadConfig{"file", "none.yaml", "none.yaml: cannot open"},
        BadConfig{"algorithm", "algorithm.name=gpro", "grpo"},
        BadConfig{"discount", "algorithm.gamma=1.5", "command line: algorithm.gamma"},
        BadConfig{"no_model", "model.config=", "model.path: no model given"},
        BadConfig{"model_folder", "model.path=/no/such/model",
                  "model.path: /no/such/model: there is no such model"},
        BadConfig{"hub_model", "model.path=Org/None", "hf download Org/None"},
        BadConfig{"hub_data", "data.train=org/none", "hf download org/none --repo-type dataset"},
        BadConfig{"no_data", "data.train=", "data.train"},
        BadConfig{"data_file", "data.train=/no/such.jsonl", "/no/such.jsonl"},
        BadConfig{"tokenizer", "tokenizer.path=/no/tokenizer", "tokenizer.path: /no/tokenizer"},
        BadConfig{"no_reward", "'reward=[]'", "reward: the list is empty"},
        BadConfig{"reward_type", "'reward=[{type: rul}]'", "'rul' (did you mean 'rule'?)"},
        BadConfig{"reward_model", "'reward=[{type: model, path: /no/model}]'", "/no/model"},
        BadConfig{"reward_script", "'reward=[{type: python, path: /no/reward.py, function: f}]'",
                  "/no/reward.py"},
        BadConfig{"reward_program", "'reward=[{type: command, command: [/no/judge]}]'",
                  "/no/judge"},
        BadConfig{"eval_file", "data.eval=/no/eval.jsonl", "/no/eval.jsonl"},
        BadConfig{"task", "data.train=task:revese", "did you mean 'reverse'"},
        BadConfig{"key", "rollout.temprature=1", "did you mean 'rollout.temperature'?"},
        BadConfig{"group", "rollouts.seed=1", "did you mean 'rollout'?"},
        BadConfig{"octal", "train.seed=010", "train.seed must be a whole number"},
        BadConfig{"yes", "train.recompute=yes", "train.recompute must be true or false"},
        BadConfig{"nan", "optim.actor.lr=nan", "optim.actor.lr must be a finite number"},
        BadConfig{"minutes", "checkpoint.every_minutes=-1", "checkpoint.every_minutes"},
        BadConfig{"truncated_sampling", "rollout.top_p=0.9", "rollout.top_p: changes"},
        BadConfig{"divisibility", "train.minibatches=5", "train.minibatches"},
        BadConfig{"verl", "actor_rollout_ref.actor.clip_ratio=0.2", "is a key of verl"},
        BadConfig{"trl", "num_generations=8", "is a key of TRL"},
        BadConfig{"openrlhf", "n_samples_per_prompt=8", "rollout.samples_per_prompt: 8"},
        BadConfig{"device", "device=tpu", "device"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid
