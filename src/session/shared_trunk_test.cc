// PPO whose actor is its critic too (critic.shared_trunk), in one process.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "config/load.h"
#include "plan/make_problem.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;
using Weights = std::map<std::string, at::Tensor>;

constexpr const char* kHead = "score.weight";

Config shared() {
  Config config = tiny_run("ppo");
  config.critic.shared_trunk = true;
  config.train.minibatches = 1;
  return config;
}

std::unique_ptr<Session> trunk_session(const Config& config) {
  const auto graph = configured_graph(config);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return session_of(config, *compile(*graph));
}

Weights weights_of(const Session& session) {
  Weights out;
  for (const auto& [name, tensor] : session.roles().at("actor").model->parameters())
    out[name] = tensor.detach().clone();
  return out;
}

// No divergence from the reference, ratio 1, sampler and trainer agree; both heads have a loss.
TEST(SharedTrunk, TheFirstStepIsOnPolicy) {
  const auto session = trunk_session(shared());
  EXPECT_EQ(session->roles().count("critic"), 0u);
  const Weights before = weights_of(*session);
  ASSERT_EQ(before.count(kHead), 1u);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_NEAR(row->at("kl/ref_k1"), 0, 1e-6);
  EXPECT_NEAR(row->at("policy/ratio_mean"), 1, 1e-6);
  EXPECT_EQ(row->at("policy/clipfrac"), 0);
  EXPECT_LE(row->at("mismatch/logprob_abs_max"), 1e-5);
  EXPECT_GT(row->at("critic/loss"), 0);
  EXPECT_EQ(row->at("critic/clipfrac"), 0);  // the values are those of the rollout
  for (const auto& [name, tensor] : weights_of(*session))
    EXPECT_FALSE(at::equal(tensor, before.at(name))) << name;
}

// The gradient is that of the policy's loss plus critic_coef times that of the values': plain
// descent moves weights along a line in critic_coef, and the head not at all for 0.
TEST(SharedTrunk, TheGradientIsTheSumOfBothLosses) {
  std::vector<Weights> after;
  Weights before;
  for (const double coef : {0.0, 1.0, 2.0}) {
    Config config = shared();
    config.algorithm.critic_coef = coef;
    config.optim.actor.name = "sgd";
    config.optim.actor.lr = 0.5;
    config.optim.actor.max_grad_norm = 0;
    const auto session = trunk_session(config);
    before = weights_of(*session);
    ASSERT_TRUE(session->run_step().ok());
    after.push_back(weights_of(*session));
  }
  EXPECT_TRUE(at::equal(after[0].at(kHead), before.at(kHead)));
  double trunk = 0;
  for (const auto& [name, none] : after[0]) {
    const double one = (after[1].at(name) - none).norm().item<double>();
    const double apart =
        (after[2].at(name) - none - 2 * (after[1].at(name) - none)).norm().item<double>();
    const double size = before.at(name).norm().item<double>();
    EXPECT_LE(apart, 1e-3 * one + 1e-6 * size) << name;
    if (name != kHead) trunk += one;
  }
  EXPECT_GT(trunk, 0);
  EXPECT_GT((after[1].at(kHead) - before.at(kHead)).norm().item<double>(), 0);
}

TEST(SharedTrunk, GoesOnBitForBit) {
  for (const char* dtype : {"f32", "bf16"}) {
    Config config = shared();
    config.model.dtype = dtype;
    config.reference.sync_every = 2;  // the reference has no such head
    const auto whole = trunk_session(config), first = trunk_session(config),
               second = trunk_session(config);
    for (int step = 0; step < 2; ++step)
      for (Session* each : {whole.get(), first.get()}) ASSERT_TRUE(each->run_step().ok());
    const auto state = first->save_state();
    ASSERT_TRUE(state.ok()) << state.status().message();
    const Status loaded = second->load_state(*state);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    for (int step = 0; step < 2; ++step) {
      const auto left = whole->run_step(), right = second->run_step();
      ASSERT_TRUE(left.ok() && right.ok());
      EXPECT_EQ(timeless(*left), timeless(*right));
    }
    for (const auto& [name, tensor] : weights_of(*whole))
      EXPECT_TRUE(at::equal(tensor, weights_of(*second).at(name))) << name;
  }
}

// Merged and as adapters, an export has the head and is a language model.
TEST(SharedTrunk, ExportsCarryTheHeadWithAndWithoutAdapters) {
  const std::string folder = join_path(testing::TempDir(), cat("trunk-", ::getpid()));
  const auto session = trunk_session(shared());
  ASSERT_TRUE(session->run_step().ok());
  ASSERT_TRUE(session->export_models(join_path(folder, "full")).ok());
  LoadOptions both;
  both.value_head = true;
  const std::string policy = join_path(folder, "full/actor");
  const auto again = load_model(policy, both);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(at::equal((*again)->value_weight(), weights_of(*session).at(kHead)));
  EXPECT_TRUE(load_model(policy, {}).ok());

  Config adapted = shared();
  adapted.model = {policy, "", "", "f32"};
  adapted.lora.rank = 4;
  const auto lora = trunk_session(adapted);
  const at::Tensor begun = weights_of(*lora).at(kHead);
  EXPECT_TRUE(at::equal(begun, weights_of(*session).at(kHead)));  // a run goes on from it
  const auto row = lora->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_NEAR(row->at("kl/ref_k1"), 0, 1e-6);
  EXPECT_FALSE(at::equal(weights_of(*lora).at(kHead), begun));
  ASSERT_TRUE(lora->export_models(join_path(folder, "lora")).ok());
  for (const char* name : {"lora/actor", "lora/actor-adapter"}) {
    const auto with = load_model(join_path(folder, name), both);
    ASSERT_TRUE(with.ok()) << with.status().message();
    EXPECT_TRUE(at::equal((*with)->value_weight(), weights_of(*lora).at(kHead))) << name;
    const auto without = load_model(join_path(folder, name), {});
    EXPECT_TRUE(without.ok()) << without.status().message();
  }
  std::filesystem::remove_all(folder);
}

std::string refused_beside(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), {"critic.shared_trunk=true"});
  ConfigSources sources;
  sources.overrides = std::move(overrides);
  return load_config(sources).status().message();
}

TEST(SharedTrunk, WhatOnlyACriticOfItsOwnHasIsRefusedByKey) {
  EXPECT_EQ(refused_beside({"algorithm.name=ppo"}), "");
  for (const char* key : {"critic.path=x", "critic.size=llama2-7b", "critic.init_from=policy",
                          "critic.warmup_steps=3"}) {
    const std::string text = key;
    EXPECT_THAT(refused_beside({"algorithm.name=ppo", text}),
                HasSubstr(text.substr(0, text.find('=')) + ": with critic.shared_trunk"));
  }
  Config grpo = tiny_run("grpo");
  grpo.critic.shared_trunk = true;
  EXPECT_THAT(configured_graph(grpo).status().message(),
              HasSubstr("critic.shared_trunk: grpo has no critic"));
}

}  // namespace
}  // namespace braid::inline session
