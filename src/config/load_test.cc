#include "config/load.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "config/algorithm_check.h"
#include "config/reference.h"
#include "config/stall_limit.h"
#include "foreign/keys/key_table.h"
#include "test_paths.h"

namespace braid::inline config {
namespace {

Result<LoadedConfig> load(const std::string& text, std::vector<std::string> overrides = {}) {
  ConfigSources sources;
  sources.files = {{"a.yaml", text}};
  sources.overrides = std::move(overrides);
  sources.algorithms = {"ppo", "grpo", "rloo"};
  sources.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "MODEL") return "/models/m";
    return std::nullopt;
  };
  return load_config(sources);
}

TEST(Config, TemperaturesAreNoPowersOfTinyNumbers) {
  for (const char* key : {"rollout.temperature", "eval.temperature"})
    for (const char* value : {"1e-30", "0.009"}) {
      const auto loaded = load("", {cat(key, "=", value)});
      ASSERT_FALSE(loaded.ok()) << key << value;
      EXPECT_NE(loaded.status().message().find("at least 0.01"), std::string::npos)
          << loaded.status().message();
    }
  EXPECT_FALSE(load("", {"rollout.temperature=0"}).ok());  // training scores what was sampled
  EXPECT_TRUE(load("", {"rollout.temperature=0.01", "eval.temperature=0"}).ok());
}

TEST(Config, TheTimeWithoutProgressGrowsWithStepsAndRewards) {
  Config config;
  EXPECT_EQ(stall_limit_s(config, 0), 300);
  EXPECT_EQ(stall_limit_s(config, 29), 300);
  EXPECT_EQ(stall_limit_s(config, 70), 700);
  RewardConfig& reward = config.reward.emplace_back();
  reward.type = "command", reward.timeout_s = 400;
  EXPECT_EQ(stall_limit_s(config, 0), 800);
  reward.type = "http";
  EXPECT_EQ(stall_limit_s(config, 0), 2 * (400 + reward.outage_s));
  reward.type = "rule";
  EXPECT_EQ(stall_limit_s(config, 0), 300);
  config.runtime.stall_s = 20;
  EXPECT_EQ(stall_limit_s(config, 70), 20);
}

TEST(Config, TheTimeOfAWaitGrowsWithRewards) {
  Config config;
  EXPECT_EQ(wait_limit_s(config), 3600);
  RewardConfig& reward = config.reward.emplace_back();
  reward.type = "command", reward.timeout_s = 2000;
  EXPECT_EQ(wait_limit_s(config), 4000);
  config.runtime.wait_s = 60;
  EXPECT_EQ(wait_limit_s(config), 60);
}

TEST(Config, ATimeWithoutProgressThatARewardMayTakeIsRefused) {
  const std::string reward = "reward: [{type: command, command: [judge], timeout_s: 30}]\n";
  for (const std::string key : {"runtime.stall_s", "runtime.wait_s"}) {
    EXPECT_TRUE(load(reward, {key + "=31"}).ok());
    const auto refused = load(reward, {key + "=30"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find(
                  key + ": 30 s, and reward[0] may take 30 s for an answer (timeout_s)"),
              std::string::npos)
        << refused.status().message();
  }
}

TEST(Config, LaterSourcesWinAndOriginsAreKept) {
  const auto loaded = load("model: {path: '${MODEL}'}\nrollout:\n  temperature: 0.5\n",
                           {"rollout.samples_per_prompt=4", "run.name=x"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.model.path, "/models/m");
  EXPECT_EQ(loaded->config.rollout.temperature, 0.5);
  EXPECT_EQ(loaded->config.rollout.samples_per_prompt, 4);
  const YamlNode* rollout = loaded->resolved.find("rollout");
  EXPECT_EQ(rollout->find("temperature")->origin, "a.yaml:3");
  EXPECT_EQ(rollout->find("samples_per_prompt")->origin, "command line");
  EXPECT_EQ(rollout->find("top_k")->origin, "default");
}

TEST(Config, ADashIsStandardInput) {
  const auto loaded = load("data: {eval: a}", {"data.train=-"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.data.train, "-");
  EXPECT_EQ(load(yaml_text(loaded->resolved))->config.data.train, "-");
  const auto twice = load("", {"data.train=-", "data.eval=-"});
  EXPECT_NE(twice.status().message().find("data.eval: standard input is data.train already"),
            std::string::npos);
}

TEST(Config, ResolvedTextReadsBackEqual) {
  const auto first = load(
      "rollout: {stop: ['a: b', '#'], temperature: 0.1}\nreward:\n- {type: rule, rule: "
      "digit_share, weight: 2}\n");
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = load(yaml_text(first->resolved));
  ASSERT_TRUE(second.ok()) << second.status().message() << "\n" << yaml_text(first->resolved);
  EXPECT_EQ(yaml_text(first->resolved), yaml_text(second->resolved));
  EXPECT_EQ(second->config.rollout.stop, (std::vector<std::string>{"a: b", "#"}));
}

TEST(Config, PlanningSectionsKeepTheirForm) {
  const auto loaded = load(
      "cluster: {gpu: a100-80g, nodes: 2}\nplacement: {actor: 0-7}\nparallel: auto\nworkload: "
      "{response_length: {mean: 300, sigma: 0.5}}\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.cluster.find("gpu")->scalar, "a100-80g");
  EXPECT_EQ(loaded->config.placement.find("actor")->origin, "a.yaml:2");
  EXPECT_EQ(loaded->config.parallel.scalar, "auto");
  EXPECT_EQ(loaded->config.workload.prompt_length.kind, YamlNode::Kind::kNull);
  const auto again = load(yaml_text(loaded->resolved));
  ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << yaml_text(loaded->resolved);
  EXPECT_EQ(yaml_text(loaded->resolved), yaml_text(again->resolved));
}

struct BadCase {
  const char* text;
  const char* message;
};
class BadConfig : public testing::TestWithParam<BadCase> {};
TEST_P(BadConfig, NamesPlaceAndRemedy) {
  const Status status = load(GetParam().text).status();
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_NE(status.message().find(GetParam().message), std::string::npos) << status.message();
}
INSTANTIATE_TEST_SUITE_P(
    Cases, BadConfig,
    testing::Values(
        BadCase{"rollout: {temprature: 1}",
                "a.yaml:1: unknown key 'rollout.temprature' (did you mean 'rollout.temperature'?)"},
        BadCase{"rollouts: {seed: 1}", "did you mean 'rollout'?"},
        BadCase{"generate: {tp: 1}", "a.yaml:1: unknown key 'generate'; keys here: "},
        BadCase{"data:\n  micro_tokens: 1",
                "a.yaml:2: unknown key 'data.micro_tokens' (did you "
                "mean 'train.micro_tokens'?)"},
        BadCase{"train: {seed: 010}", "train.seed must be a whole number"},
        BadCase{"train: {seed: 1.5}", "train.seed must be a whole number"},
        BadCase{"train: {recompute: yes}", "train.recompute must be true or false"},
        BadCase{"optim: {actor: {lr: nan}}", "optim.actor.lr must be a finite number"},
        BadCase{"optim: {actor: {lr: 0x10}}", "optim.actor.lr must be a finite number"},
        BadCase{"train: {seed: 1, seed: 2}", "key 'seed' occurs twice"},
        BadCase{"train: {seed: 1}\ntrain: {threads: 2}", "a.yaml:2: key 'train' occurs twice"},
        BadCase{"model: {path: '${NOPE}'}", "environment variable NOPE is not set"},
        BadCase{"data: {overlong: dorp}", "did you mean 'drop'"},
        BadCase{"model: [1]", "model must be a group of keys"},
        BadCase{"- 1\n- 2", "a.yaml:1: a configuration must be a group of keys"},
        BadCase{"hello", "a.yaml:1: a configuration must be a group of keys"},
        BadCase{"reward: {type: rule}", "reward must be a list"},
        BadCase{"reward:\n- {type: rule, weigth: 2}",
                "a.yaml:2: unknown key 'reward[].weigth' (did you mean 'reward[].weight'?)"},
        BadCase{"optim:\n  actor: {betas: [0.9]}", "a.yaml:2: optim.actor.betas: two numbers"},
        BadCase{"optim: {actor: {betas: [0.9, 1]}}", "betas must be 0 to below 1, not 1"},
        BadCase{"rollout: {top_p: 0.9}", "rollout.top_p: changes the distribution"},
        BadCase{"rollout: {top_k: 5}\nalgorithm: {old_logprobs: sampler}",
                "rollout.top_k: changes the distribution"},
        BadCase{"rollout: {min_response_length: 2}\nalgorithm: {old_logprobs: sampler}",
                "rollout.min_response_length: the sampler leaves out"},
        BadCase{"rollout: {repetition_penalty: 1.1}", "rollout.repetition_penalty: changes"},
        BadCase{"rollout:\n  temperature: 0",
                "a.yaml:2: rollout.temperature must be at least 0.01, not 0"},
        BadCase{"rollout: {prompts_per_step: -4}", "prompts_per_step must be at least 1, not -4"},
        BadCase{"rollout: {prompts_per_step: 1000000000000}",
                "prompts_per_step must be at most 16777216, not 1000000000000"},
        BadCase{"rollout:\n  kv_budget_tokens: 2000000000000",
                "a.yaml:2: rollout.kv_budget_tokens must be at most 1000000000000, not 2000"},
        BadCase{"run:\n  name: \"a\\nb\"",
                "a.yaml:2: run.name: 'a\\x0ab' has a line break or another control character"},
        BadCase{"train: {threads: 5000}", "train.threads must be 0 to 1024, not 5000"},
        BadCase{"optim: {actor: {lr: 1e30}}", "optim.actor.lr must be above 0 to 1"},
        BadCase{"optim: {actor: {lr: [1e-3]}}", "not a list; write 1e-3 without the brackets"},
        BadCase{"optim: {actor: {lr: '1e-3'}}", "not the text \"1e-3\"; write it without quotes"},
        BadCase{"rollout: {stop: ['']}", "rollout.stop: an empty string would end every response"},
        BadCase{"train: {total_steps: 0}", "train.total_steps must be at least 1, not 0"},
        BadCase{"checkpoint: {every_steps: -1}",
                "at least 0, not -1 (checkpoint.every_steps: "
                "steps; 0 = not by steps)"},
        BadCase{"rollout: {min_response_length: 9, max_response_length: 8}",
                "is more than rollout.max_response_length = 8"},
        BadCase{"algorithm: {normalize_advantages: group}", "write at least 2, 8 is usual"},
        BadCase{"eval: {every_steps: 5}", "name a file as data.eval"},
        BadCase{"eval: {samples_per_prompt: 4}", "set eval.temperature above 0"},
        BadCase{"data: {prompt_template: hello}", "must contain {prompt}"},
        BadCase{"train: {total_episodes: 100}", "nearest valid values: 64 and 128"},
        BadCase{"train: {total_episodes: 128, total_steps: 3}", "write one of them"},
        BadCase{"policy: {clip_low: 0.1}\nalgorithm: {clip_low: 0.2}",
                "a.yaml:1: policy.clip_low is another name of algorithm.clip_low"},
        BadCase{"policy: {clip: 0.1}", "unknown key 'policy'"},
        BadCase{"reward:\n  - {file: x}", "unknown key 'reward[].file'; keys here: name, type"},
        BadCase{"plan: {fiel: x}", "unknown key 'plan.fiel' (did you mean 'plan.file'?)"},
        BadCase{"workload: {length: 1}", "unknown key 'workload.length'"},
        BadCase{"reward: {cilp: 1}", "reward must be a list"}, BadCase{"a: [", "not valid YAML"}));

class ForeignKeys : public testing::TestWithParam<BadCase> {};
TEST_P(ForeignKeys, NameOursItsUnitAndTheConvertedValue) {
  const Status status = load(GetParam().text).status();
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_NE(status.message().find(GetParam().message), std::string::npos) << status.message();
}
INSTANTIATE_TEST_SUITE_P(
    Cases, ForeignKeys,
    testing::Values(
        BadCase{"rollout:\n  n: 8",
                "a.yaml:2: 'rollout.n' is a key of verl; here it is rollout.samples_per_prompt "
                "(responses per prompt): instead of 8 write 'rollout.samples_per_prompt: 8'"},
        BadCase{"data: {train_batch_size: 1024}", "write 'rollout.prompts_per_step: 1024'"},
        BadCase{"actor_rollout_ref: {actor: {ppo_mini_batch_size: 256}}\n"
                "data: {prompt_key: p, train: x}\nrollout: {prompts_per_step: 1024}",
                "verl's is the size of one in prompts): instead of 256 write 'train.minibatches: "
                "4'"},
        BadCase{"per_device_train_batch_size: 16\nnum_generations: 8",
                "write 'rollout.prompts_per_step: 2'"},
        BadCase{"train_batch_size: 128\nrollout_batch_size: 256\nn_samples_per_prompt: 4",
                "write 'train.minibatches: 8'"},
        BadCase{"actor_rollout_ref: {actor: {clip_ratio: 0.2, use_kl_loss: true}}",
                "write 'algorithm.clip_low: 0.2' and 'algorithm.clip_high: 0.2' (and 1 more"},
        BadCase{"critic: {optim: {lr: 1e-5}}", "write 'optim.critic.lr: 1e-5'"},
        BadCase{"actor_rollout_ref: {actor: {kl_loss_type: low_var_kl}}",
                "write 'algorithm.kl.estimator: k3'"},
        BadCase{"algorithm: {adv_estimator: gae}", "write 'algorithm.name: ppo'"},
        BadCase{"beta: 0.04", "is a key of TRL; here it is algorithm.kl.coef"},
        BadCase{"use_vllm: true", "without a counterpart here: sampler and trainer are one"},
        BadCase{"remote_rm_url: http://x", "write 'reward: [{type: http, url: \"http://x\"}]'"},
        BadCase{"bf16: true", "write 'model.dtype: bf16'"},
        BadCase{"warmup_ratio: 0.03\nmax_steps: 1000", "write 'optim.actor.warmup_steps: 30'"},
        BadCase{"save_steps: -1", "instead of -1 write 'checkpoint.every_steps: 0'"},
        BadCase{"rollout: {batch_size: 128, n_samples_per_prompt: 8}\ntrain: {batch_size: 256}",
                "write 'rollout.prompts_per_step: 128'"},
        BadCase{"train: {batch_size: 256}\nrollout: {batch_size: 128, n_samples_per_prompt: 8}",
                "instead of 256 write 'train.minibatches: 4'"},
        BadCase{"actor: {adam: {lr: 5e-7}}", "write 'optim.actor.lr: 5e-7'"},
        BadCase{"algo: {advantage: {estimator: group_norm}}", "write 'algorithm.name: grpo'"},
        BadCase{"reward: {remote_url: 'http://x'}", "is a key of OpenRLHF"},
        BadCase{"optim: adamw_torch", "is a key of TRL without a counterpart here: the optimizer"},
        BadCase{"eval: {n_samples_per_prompt: 4}", "write 'eval.samples_per_prompt: 4'"},
        BadCase{"trainer: {total_epochs: 3}", "rollouts, not epochs over the data"}));

TEST(ForeignKeys, DashesOfCommandLinesCount) {
  const Status status = load("", {"train-batch-size=128"}).status();
  EXPECT_NE(status.message().find("command line: 'train-batch-size' is a key of OpenRLHF"),
            std::string::npos)
      << status.message();
}

// Every name that the table gives as ours exists.
TEST(ForeignKeys, PointToKeysThatExist) {
  std::set<std::string> ours;
  for (const OptionRow& row : option_rows()) ours.insert(row.path);
  for (const ForeignKey& entry : foreign_key_table()) {
    std::string names = entry.ours;
    if (names.empty()) continue;
    if (names == "algorithm.clip_low and algorithm.clip_high") names = "algorithm.clip_low";
    const size_t role = names.find("ROLE");
    if (role != std::string::npos) names.replace(role, 4, "critic");
    EXPECT_EQ(ours.count(names), 1u) << entry.theirs << " -> " << names;
  }
}

TEST(Config, OtherNamesOfGroupsAreMoved) {
  const auto loaded =
      load("policy: {clip_high: 0.28}\nreward: {clip: 3}\ncritic: {value_clip: 0.5}");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.algorithm.clip_high, 0.28);
  EXPECT_EQ(loaded->config.algorithm.value_clip, 0.5);
  EXPECT_EQ(loaded->config.reward_total.clip, 3);
  EXPECT_EQ(loaded->resolved.find("algorithm")->find("clip_high")->origin, "a.yaml:1");
}

TEST(Config, ProductsThatAreTooLargeAreRefused) {
  const auto problem = [](const std::string& text) {
    const auto loaded = load(text);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return batch_arithmetic(loaded->config).status().message();
  };
  EXPECT_NE(problem("rollout: {prompts_per_step: 16000000, samples_per_prompt: 16000000}")
                .find("sequences of a step; at most 16777216"),
            std::string::npos);
  EXPECT_NE(problem("rollout: {prompts_per_step: 16777216}\ntrain: {minibatches: 16777216, "
                    "epochs_per_rollout: 1000000, total_steps: 1000000000}")
                .find("more than a counter holds"),
            std::string::npos);
}

TEST(Config, EpisodesBecomeSteps) {
  const auto loaded =
      load("rollout: {prompts_per_step: 8, samples_per_prompt: 4}", {"train.total_episodes=320"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.train.total_steps, 10);
  EXPECT_TRUE(load(yaml_text(loaded->resolved)).ok());
}

TEST(Config, TokensOfTheEnvironmentAreNotWrittenOut) {
  const auto loaded =
      load("reward: [{type: http, url: 'http://x', auth_token: '${MODEL}', name: '${MODEL}'}]");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.reward[0].auth_token, "/models/m");
  const std::string text = yaml_text(loaded->resolved);
  EXPECT_NE(text.find("auth_token: \"${MODEL}\""), std::string::npos) << text;
  EXPECT_NE(text.find("name: /models/m"), std::string::npos) << text;
}

TEST(Config, TheAlgorithmsSilentChoicesAreSaid) {
  AlgorithmOptions options;
  EXPECT_EQ(algorithm_text(options),
            "ppo: gamma 1, lambda 0.95, clip 0.2/0.2, advantages normalized by batch, losses "
            "averaged as token_mean, KL 0.05 (k1, fixed) in the reward");
  // What an algorithm does not read is not said.
  EXPECT_TRUE(algorithm_text(default_options("reinforce")).starts_with("reinforce: gamma 1, clip"));
  EXPECT_TRUE(algorithm_text(default_options("grpo")).starts_with("grpo: clip"));
  options.advantages = "a.so";
  options.kl.in = "own";
  EXPECT_EQ(algorithm_text(options),
            "ppo: advantages of a.so, clip 0.2/0.2, losses averaged as token_mean, KL left to your "
            "functions");
  options.kl.coef = 0;
  EXPECT_NE(algorithm_text(options).find("reference model not loaded (algorithm.kl.coef = 0)"),
            std::string::npos);
}

TEST(Config, DefaultsAreAllowed) {
  const auto defaults = load("");
  ASSERT_TRUE(defaults.ok()) << defaults.status().message();
  const auto again = load(yaml_text(defaults->resolved));
  EXPECT_TRUE(again.ok()) << again.status().message();
}

TEST(Config, FilesAreMergedInOrder) {
  ConfigSources sources;
  sources.files = {{"a.yaml", "rollout: {temperature: 0.5, prompts_per_step: 2}"},
                   {"b.yaml", "rollout: {temperature: 0.7}"}};
  const auto loaded = load_config(sources);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.rollout.temperature, 0.7);
  EXPECT_EQ(loaded->config.rollout.prompts_per_step, 2);
}

// docs/configuration.md ends with the table that `braid config --list` prints.
TEST(Config, DocumentationIsCurrent) {
  std::ifstream file(std::string(BRAID_SOURCE_DIR) + "/docs/configuration.md");
  ASSERT_TRUE(file);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("\n" + configuration_table()), std::string::npos)
      << "write the output of 'braid config --list' into docs/configuration.md";
}

TEST(Config, AlgorithmDefaultsComeBeforeTheFile) {
  const auto loaded =
      load("algorithm: {name: grpo, kl: {coef: 0.5}}\nrollout: {samples_per_prompt: 4}");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->config.algorithm.kl.in, "loss");
  EXPECT_EQ(loaded->config.algorithm.kl.coef, 0.5);
  EXPECT_EQ(load("algorithm: {name: ppo}")->config.algorithm.kl.in, "reward");
}

// Of a key that nobody wrote the origin says that the name decided it; what is written wins.
TEST(Config, OriginsNameTheAlgorithmThatDecidesADefault) {
  const auto loaded = load(
      "algorithm:\n  name: dapo\n  clip_low: 0.1\nrollout: {samples_per_prompt: 4, "
      "max_response_length: 50}");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const YamlNode& algorithm = *loaded->resolved.find("algorithm");
  const std::string named = "default of algorithm.name: dapo";
  EXPECT_EQ(loaded->config.algorithm.clip_high, 0.28);
  EXPECT_EQ(algorithm.find("clip_high")->origin, named);
  EXPECT_EQ(algorithm.find("kl")->find("coef")->origin, named);
  EXPECT_EQ(algorithm.find("clip_low")->origin, "a.yaml:3");
  EXPECT_EQ(algorithm.find("entropy_coef")->origin, "default");
  EXPECT_EQ(loaded->config.reward_total.overlong_buffer, 10);
  EXPECT_EQ(loaded->resolved.find("reward_total")->find("overlong_buffer")->origin, named);
  const auto off = load(
      "algorithm: {name: dapo, clip_high: 0.2}\nreward_total: {overlong_buffer: 0}\nrollout: "
      "{samples_per_prompt: 4}");
  EXPECT_EQ(off->config.reward_total.overlong_buffer, 0);
  EXPECT_EQ(off->config.algorithm.clip_high, 0.2);
}

TEST(Config, NamesAreSetsOfDefaults) {
  const auto options = [](const std::string& name) {
    const auto loaded = load("algorithm: {name: " + name +
                             "}\nrollout: {samples_per_prompt: 4, max_response_length: 50}");
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded->config.algorithm;
  };
  EXPECT_EQ(options("dr_grpo").normalize_advantages, "none");
  EXPECT_EQ(options("dr_grpo").loss_agg, "constant_norm");
  EXPECT_EQ(options("dr_grpo").loss_norm_tokens, 50);
  EXPECT_EQ(options("gspo").ratio_level, "sequence");
  EXPECT_EQ(options("gspo").loss_agg, "seq_mean_token_mean");
  EXPECT_EQ(options("dapo").loss_agg, "token_mean");
  EXPECT_EQ(options("reinforce_plus_plus").kl.estimator, "k1");
  EXPECT_EQ(options("reinforce_plus_plus").kl.in, "reward");
  EXPECT_EQ(options("reinforce_plus_plus").normalize_advantages, "batch");
  EXPECT_EQ(options("reinforce_plus_plus_baseline").kl.in, "loss");
  EXPECT_EQ(options("rloo").normalize_advantages, "none");
}

TEST(Config, AlgorithmsThatCompareSamplesNeedTwo) {
  for (const char* name :
       {"grpo", "dapo", "dr_grpo", "gspo", "cispo", "rloo", "reinforce_plus_plus_baseline"}) {
    const Status status = load(std::string("algorithm: {name: ") + name + "}").status();
    EXPECT_NE(status.message().find("rollout.samples_per_prompt: 1 sample"), std::string::npos)
        << name << ": " << status.message();
  }
  for (const char* name : {"ppo", "reinforce", "reinforce_plus_plus"})
    EXPECT_TRUE(load(std::string("algorithm: {name: ") + name + "}").ok()) << name;
}

// Mini-batches of losses that compare two responses are cut of what stays together.
TEST(Config, MiniBatchesOfPairsAreCutOfPairs) {
  const auto failure = [](const char* text) {
    const auto loaded = load(text);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return batch_arithmetic(loaded->config).status().message();
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(failure("algorithm: {name: online_dpo}\nrollout: {prompts_per_step: 8, samples_per_prompt: "
              "4}\ntrain: {minibatches: 16}"),
      "8 prompts (rollout.prompts_per_step), whose responses meet, do not divide into 16 "
      "mini-batches; nearest valid values: 8");
  has(failure("algorithm: {name: dpo}\nrollout: {prompts_per_step: 2, samples_per_prompt: 4}\n"
              "train: {minibatches: 8}"),
      "2 pairs (rollout.prompts_per_step) do not divide into 8 mini-batches");
  has(failure("algorithm: {name: rm, reward_loss: squared_error}\nrollout: {prompts_per_step: 3}\n"
              "train: {minibatches: 2}"),
      "3 responses (rollout.prompts_per_step) do not divide into 2");
  const auto pairs = load(
      "algorithm: {name: dpo}\nrollout: {prompts_per_step: 8}\n"
      "train: {minibatches: 4}");
  const auto arithmetic = batch_arithmetic(pairs->config);
  ASSERT_TRUE(arithmetic.ok());
  EXPECT_EQ(arithmetic->sequences_per_step, 16);
  has(arithmetic_text(pairs->config, *arithmetic),
      "8 pairs = 16 responses -> 4 mini-batches of 4 x 1 epochs");
}

TEST(Config, WhatOneAlgorithmCannotDoIsRefusedByItsKey) {
  const auto failure = [](const char* text) {
    const auto loaded = load(text);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return validate(loaded->config.algorithm).message();
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string two = "rollout: {samples_per_prompt: 2}\n";
  has(failure((two + "algorithm: {name: online_dpo, kl: {coef: 1, in: loss}}").c_str()),
      "algorithm.kl.coef: online_dpo compares with the reference in its loss");
  has(failure((two + "algorithm: {name: online_dpo, mask_truncated: true}").c_str()),
      "algorithm.mask_truncated: online_dpo learns from pairs");
  has(failure("algorithm: {name: remax, whiten_rewards: true}"),
      "algorithm.whiten_rewards: remax subtracts");
}

TEST(Config, WhatIsCarriedToNewerWeightsNeedsACorrection) {
  const auto failure = [](const std::string& more) {
    return load(("rollout: {samples_per_prompt: 2, in_flight: 1.5}\n" + more).c_str())
        .status()
        .message();
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string grpo = "algorithm: {name: grpo, tis_cap: 2";
  EXPECT_EQ(failure(grpo + "}"), "");
  EXPECT_EQ(failure("algorithm: {name: grpo, old_logprobs: sampler}"), "");
  EXPECT_EQ(failure("algorithm: {name: grpo, icepop_low: 0.5, icepop_high: 5}"), "");
  EXPECT_EQ(failure("algorithm: {name: sft}"), "");
  EXPECT_EQ(failure(grpo + "}\nplan: {staleness: 1}"), "");
  has(failure("algorithm: {name: grpo}"), "nothing corrects for the difference");
  has(failure("algorithm: {name: grpo}\nplan: {staleness: 1}"), "nothing corrects");
  has(failure(grpo + ", dynamic_sampling: true}"), "algorithm.dynamic_sampling");
  has(load("rollout: {in_flight: 1.5, replay: a.jsonl}\nalgorithm: {name: ppo, tis_cap: 2}")
          .status()
          .message(),
      "rollout.replay");
}

TEST(Config, PromptsInFlightAreWhole) {
  RolloutConfig rollout;
  rollout.prompts_per_step = 10;
  EXPECT_EQ(prompts_in_flight(rollout), 10);
  for (const auto& [factor, prompts] : {std::pair(1.1, 11), {1.25, 13}, {2.0, 20}}) {
    rollout.in_flight = factor;
    EXPECT_EQ(prompts_in_flight(rollout), prompts) << factor;
  }
}

TEST(Config, ArithmeticNamesNearestValidValues) {
  const auto loaded =
      load("rollout: {prompts_per_step: 8, samples_per_prompt: 4}\ntrain: {minibatches: 5}");
  const Status status = batch_arithmetic(loaded->config).status();
  EXPECT_NE(
      status.message().find("nearest valid values: 4 and 8, or rollout.prompts_per_step = 10"),
      std::string::npos)
      << status.message();
  const auto many = load("rollout: {prompts_per_step: 2}\ntrain: {minibatches: 8}");
  EXPECT_NE(batch_arithmetic(many->config)
                .status()
                .message()
                .find("nearest valid values: 2, or rollout.prompts_per_step = 8"),
            std::string::npos)
      << batch_arithmetic(many->config).status().message();
  const auto good = load(
      "rollout: {prompts_per_step: 8, samples_per_prompt: 4}\ntrain: {minibatches: 4, "
      "epochs_per_rollout: 2, total_steps: 3}");
  const auto arithmetic = batch_arithmetic(good->config);
  EXPECT_EQ(arithmetic->sequences_per_minibatch, 8);
  EXPECT_EQ(arithmetic->optimizer_steps, 24);
}

}  // namespace
}  // namespace braid::inline config
