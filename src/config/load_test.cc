#include "config/load.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

Result<LoadedConfig> load(const std::string& text, std::vector<std::string> overrides = {}) {
  ConfigSources sources;
  sources.files = {{"a.yaml", text}};
  sources.overrides = std::move(overrides);
  sources.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "MODEL") return "/models/m";
    return std::nullopt;
  };
  return load_config(sources);
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
                "a.yaml:1: unknown key 'rollout.temprature' (did you mean 'temperature'?)"},
        BadCase{
            "rollout:\n  n: 8",
            "is a key of another framework; here it is rollout.samples_per_prompt (you wrote 8)"},
        BadCase{"train: {seed: 010}", "train.seed must be a whole number"},
        BadCase{"train: {recompute: yes}", "train.recompute must be true or false"},
        BadCase{"train: {seed: 1, seed: 2}", "key 'seed' occurs twice"},
        BadCase{"model: {path: '${NOPE}'}", "environment variable NOPE is not set"},
        BadCase{"data: {overlong: dorp}", "did you mean 'drop'"},
        BadCase{"model: [1]", "model must be a group of keys"},
        BadCase{"optim: {actor: {betas: [0.9]}}", "optim.actor.betas: two numbers"},
        BadCase{"rollout: {top_p: 0.9}", "rollout.top_p"},
        BadCase{"train: {total_steps: 0}", "train.total_steps: must be greater than 0"},
        BadCase{"plan: {fiel: x}", "unknown key 'plan.fiel' (did you mean 'file'?)"},
        BadCase{"workload: {length: 1}", "unknown key 'workload.length'"},
        BadCase{"a: [", "not valid YAML"}));

TEST(Config, AlgorithmDefaultsComeBeforeTheFile) {
  ConfigSources sources;
  sources.files = {{"a.yaml", "algorithm: {name: other, gamma: 0.5}"}};
  sources.algorithm_defaults = [](const std::string& name) {
    AlgorithmOptions options;
    options.lam = name == "other" ? 0.25 : 0.75;
    return options;
  };
  const auto loaded = load_config(sources);
  EXPECT_EQ(loaded->config.algorithm.lam, 0.25);
  EXPECT_EQ(loaded->config.algorithm.gamma, 0.5);
}

TEST(Config, ArithmeticNamesNearestValidValues) {
  const auto loaded =
      load("rollout: {prompts_per_step: 8, samples_per_prompt: 4}\ntrain: {minibatches: 5}");
  const Status status = batch_arithmetic(loaded->config).status();
  EXPECT_NE(status.message().find("nearest valid values: 4 and 8"), std::string::npos)
      << status.message();
  const auto good = load(
      "rollout: {prompts_per_step: 8, samples_per_prompt: 4}\ntrain: {minibatches: 4, "
      "epochs_per_rollout: 2, total_steps: 3}");
  const auto arithmetic = batch_arithmetic(good->config);
  EXPECT_EQ(arithmetic->sequences_per_minibatch, 8);
  EXPECT_EQ(arithmetic->optimizer_steps, 24);
}

}  // namespace
}  // namespace braid
