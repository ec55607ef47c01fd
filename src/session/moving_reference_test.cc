// A reference that moves (reference.sync_every, reference.ema) in one process.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "nn/model_share.h"
#include "plan/make_problem.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;
using Weights = std::map<std::string, at::Tensor>;

Config moving(const std::string& algorithm, int64_t every, double keep) {
  Config config = tiny_run(algorithm);
  config.reference.sync_every = every;
  config.reference.ema = keep;
  if (config.algorithm.kl.coef == 0 && algorithm == "grpo") config.algorithm.kl.coef = 0.01;
  return config;
}

std::unique_ptr<Session> session_of(const Config& config) {
  return session_of(config, *compile(*configured_graph(config)));
}

Weights weights_of(const Session& session, const std::string& role) {
  Weights out;
  for (const auto& [name, tensor] : session.roles().at(role).model->parameters())
    out[name] = tensor.detach().clone();
  return out;
}

void expect_equal(const Weights& left, const Weights& right) {
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, tensor] : left) EXPECT_TRUE(at::equal(tensor, right.at(name))) << name;
}

// As an independent sum says it, from the actor's weights after each step.
TEST(MovingReference, IsTheMeanOfThePolicysWeights) {
  for (const char* algorithm : {"ppo", "grpo", "dpo", "kto"})
    for (const auto& [every, keep] : {std::pair(1, 0.0), std::pair(2, 0.25), std::pair(3, 0.75)}) {
      SCOPED_TRACE(cat(algorithm, " ", every, " ", keep));
      const auto session = session_of(moving(algorithm, every, keep));
      Weights expected = weights_of(*session, "actor");
      expect_equal(expected, weights_of(*session, "reference"));
      for (int step = 1; step <= 6; ++step) {
        ASSERT_TRUE(session->run_step().ok());
        if (step % every == 0)
          for (auto& [name, tensor] : weights_of(*session, "actor")) {
            const at::Tensor own = expected[name];
            expected[name] = keep == 0 ? tensor : own * keep + tensor * (1 - keep);
          }
        expect_equal(expected, weights_of(*session, "reference"));
      }
      EXPECT_FALSE(at::equal(
          expected.begin()->second,
          weights_of(*session_of(moving(algorithm, every, keep)), "reference").begin()->second));
    }
}

// Where it becomes the policy after each step, the policy has not left it when it generates.
TEST(MovingReference, OfEveryStepIsThePolicyThatGenerates) {
  Config config = moving("ppo", 1, 0);
  const auto session = session_of(config);
  config.reference.sync_every = 0;
  const auto still = session_of(config);
  for (int step = 0; step < 4; ++step) {
    const auto row = session->run_step(), fixed = still->run_step();
    ASSERT_TRUE(row.ok() && fixed.ok());
    EXPECT_NEAR(row->at("kl/ref_k3"), 0, 1e-8);
    EXPECT_GE(fixed->at("kl/ref_k3"), step > 0 ? 1e-7 : 0);
  }
}

// A checkpoint between two moves, in both widths.
TEST(MovingReference, GoesOnBitForBit) {
  for (const char* dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    Config config = moving("ppo", 2, 0.9);
    config.model.dtype = dtype;
    const auto whole = session_of(config), first = session_of(config), second = session_of(config);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(whole->run_step().ok());
      ASSERT_TRUE(first->run_step().ok());
    }
    const auto state = first->save_state();
    ASSERT_TRUE(state.ok()) << state.status().message();
    EXPECT_EQ(state->tensors.count("reference.weights"), 1u);
    EXPECT_EQ(state->tensors.at("reference.optimizer").empty(), std::string(dtype) == "f32");
    const Status loaded = second->load_state(*state);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    expect_equal(weights_of(*first, "reference"), weights_of(*second, "reference"));
    for (int step = 3; step < 6; ++step) {
      const auto left = whole->run_step(), right = second->run_step();
      ASSERT_TRUE(left.ok() && right.ok());
      EXPECT_EQ(timeless(*left), timeless(*right));
    }
    for (const char* role : {"actor", "critic", "reference"})
      expect_equal(weights_of(*whole, role), weights_of(*second, role));
  }
}

std::string refused(const std::vector<std::string>& overrides) {
  ConfigSources sources;
  sources.overrides = overrides;
  return load_config(sources).status().message();
}

TEST(MovingReference, BadValuesAreRefusedByKey) {
  EXPECT_THAT(refused({"reference.ema=0.5"}),
              HasSubstr("reference.ema: the reference never moves"));
  EXPECT_THAT(refused({"reference.ema=1", "reference.sync_every=1"}), HasSubstr("reference.ema"));
  EXPECT_THAT(refused({"reference.sync_every=-1"}), HasSubstr("reference.sync_every"));
  EXPECT_THAT(refused({"reference.sync_every=1", "lora.rank=4"}),
              HasSubstr("reference.sync_every: with lora.rank the reference is the base"));
}

}  // namespace
}  // namespace braid::inline session
