// Optimizer against float64 formulas, learning rates, executor.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "train/optimizer.h"

namespace braid::inline train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Numbers = std::vector<double>;
using Parameters = std::vector<std::pair<std::string, at::Tensor>>;

// A generator of test data: the same numbers for the same seed and index.
double number(int64_t seed, int64_t index) {
  return std::sin(12.9898 * static_cast<double>(index) + 78.233 * static_cast<double>(seed));
}

at::Tensor filled(int64_t seed, int64_t size, at::ScalarType type = at::kFloat) {
  Numbers values;
  for (int64_t i = 0; i < size; ++i) values.push_back(number(seed, i));
  return at::tensor(values, at::kDouble).to(type);
}

Parameters make_parameters(at::ScalarType type = at::kFloat) {
  return {{"a", filled(1, 5, type).requires_grad_(true)},
          {"b", filled(2, 70001, type).requires_grad_(true)}};
}

void set_gradients(const Parameters& parameters, int64_t step) {
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad() =
        filled(100 + step, parameter.numel(), parameter.scalar_type()) * (name == "a" ? 3 : 0.01);
  }
}

OptimizerConfig test_config() {
  OptimizerConfig config;
  config.lr = 0.01;
  config.betas = {0.8, 0.95};
  config.eps = 1e-6;
  config.weight_decay = 0.1;
  config.decay_norms = true;  // most parameters here are vectors
  return config;
}

// Loshchilov & Hutter (2019), algorithm 2, one element in float64.
struct ReferenceAdamW {
  double x, m = 0, v = 0;
  void step(double gradient, double lr, int64_t t, const OptimizerConfig& c) {
    m = c.betas[0] * m + (1 - c.betas[0]) * gradient;
    v = c.betas[1] * v + (1 - c.betas[1]) * gradient * gradient;
    const double m_hat = m / (1 - std::pow(c.betas[0], t));
    const double v_hat = v / (1 - std::pow(c.betas[1], t));
    x -= lr * (m_hat / (std::sqrt(v_hat) + c.eps) + c.weight_decay * x);
  }
};

TEST(AdamW, FollowsTheFormulasWithClipping) {
  for (const double max_norm : {0.0, 0.5}) {
    OptimizerConfig config = test_config();
    config.max_grad_norm = max_norm;
    config.schedule = "linear";
    const Parameters parameters = {{"a", filled(1, 37).requires_grad_(true)}};
    const at::Tensor& a = parameters[0].second;
    std::vector<ReferenceAdamW> reference;
    for (int64_t i = 0; i < 37; ++i) reference.push_back({static_cast<float>(number(1, i))});
    AdamW optimizer(parameters, config);
    for (int64_t t = 0; t < 5; ++t) {
      set_gradients(parameters, t);
      const at::Tensor gradient = a.grad().to(at::kDouble);
      const double norm = std::sqrt((gradient * gradient).sum().item<double>());
      const double scale = max_norm > 0 ? std::min(1.0, max_norm / norm) : 1;
      const auto report = optimizer.step(5);
      EXPECT_NEAR(report.grad_norm, norm, 1e-9 * norm);
      EXPECT_TRUE(report.applied);
      EXPECT_FALSE(a.grad().defined());
      for (int64_t i = 0; i < 37; ++i) {
        reference[i].step(gradient[i].item<double>() * scale, 0.01 * (5.0 - t) / 5, t + 1, config);
        EXPECT_NEAR(a[i].item<double>(), reference[i].x, 2e-6);
      }
    }
  }
}

TEST(AdamW, NormIsGlobalOverParameters) {
  const Parameters parameters = make_parameters();
  set_gradients(parameters, 0);
  double squares = 0;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = parameter.grad().to(at::kDouble);
    squares += (gradient * gradient).sum().item<double>();
  }
  AdamW optimizer(parameters, test_config());
  EXPECT_NEAR(optimizer.step(1).grad_norm, std::sqrt(squares), 1e-9 * std::sqrt(squares));
}

TEST(AdamW, NonFiniteGradientChangesNothing) {
  const Parameters parameters = make_parameters();
  AdamW optimizer(parameters, test_config());
  const at::Tensor before = parameters[1].second.detach().clone();
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    set_gradients(parameters, 0);
    parameters[0].second.mutable_grad()[2] = bad;
    EXPECT_FALSE(optimizer.step(10).applied);
    EXPECT_TRUE(at::equal(parameters[1].second, before));
    EXPECT_EQ(optimizer.updates(), 0);
  }
}

std::map<std::string, at::Tensor> copy_of(const AdamW& optimizer) {
  std::map<std::string, at::Tensor> copy;
  for (const StateSlice& slice : optimizer.slices())
    copy[cat(slice.name, ".", slice.state)] = slice.values.clone();
  return copy;
}

TEST(AdamW, ResumesBitwise) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    OptimizerConfig config = test_config();
    config.schedule = "cosine";
    const Parameters straight = make_parameters(type), resumed = make_parameters(type);
    AdamW first(straight, config), second(resumed, config);
    const auto run = [](AdamW& optimizer, const Parameters& parameters, int64_t begin) {
      for (int64_t t = begin; t < begin + 3; ++t) {
        set_gradients(parameters, t);
        EXPECT_TRUE(optimizer.step(6).applied);
      }
    };
    run(first, straight, 0);
    const auto saved = copy_of(first);
    for (StateSlice& slice : second.slices())
      slice.values.copy_(saved.at(cat(slice.name, ".", slice.state)));
    for (size_t i = 0; i < straight.size(); ++i) {
      resumed[i].second.detach().copy_(straight[i].second.detach());
    }
    ASSERT_EQ(second.take_over(first.updates()), Status());
    run(first, straight, 3);
    run(second, resumed, 3);
    for (size_t i = 0; i < straight.size(); ++i) {
      EXPECT_TRUE(at::equal(straight[i].second, resumed[i].second)) << straight[i].first;
    }
    const auto expected = copy_of(first);
    const auto last = copy_of(second);
    EXPECT_EQ(last.size(), expected.size());
    for (const auto& [name, tensor] : last) {
      EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
    }
  }
}

TEST(Optimizers, WeightDecaySparesNormsAndBiases) {
  for (const char* name : {"adamw", "sgd"})
    for (const bool decay_norms : {false, true}) {
      OptimizerConfig config = test_config();
      config.name = name;
      config.decay_norms = decay_norms;
      const Parameters parameters = {
          {"matrix", at::full({2, 3}, 2.0, at::kFloat).requires_grad_(true)},
          {"norm", at::full({3}, 2.0, at::kFloat).requires_grad_(true)}};
      AdamW optimizer(parameters, config);
      for (const auto& [key, parameter] : parameters)
        parameter.mutable_grad() = at::zeros_like(parameter.detach());
      ASSERT_TRUE(optimizer.step(10).applied);
      const float shrunk = 2 * (1 - 0.01f * 0.1f);
      EXPECT_FLOAT_EQ(parameters[0].second.min().item<float>(), shrunk) << name;
      EXPECT_FLOAT_EQ(parameters[1].second.min().item<float>(), decay_norms ? shrunk : 2) << name;
    }
}

TEST(AdamW, Bf16ParametersAccumulateInTheirMasters) {
  OptimizerConfig config = test_config();
  config.weight_decay = 0;
  config.lr = 1e-4;  // far below the spacing of bf16 at 1
  const Parameters parameters = {
      {"a", at::full({4}, 1.0, at::TensorOptions(at::kBFloat16)).requires_grad_(true)}};
  AdamW optimizer(parameters, config);
  for (int64_t t = 0; t < 100; ++t) {
    parameters[0].second.mutable_grad() = at::full({4}, 1.0, at::TensorOptions(at::kBFloat16));
    EXPECT_TRUE(optimizer.step(100).applied);
  }
  const auto state = copy_of(optimizer);
  EXPECT_NEAR(state.at("a.master")[0].item<double>(), 1 - 0.01, 1e-5);
  EXPECT_TRUE(at::equal(parameters[0].second, state.at("a.master").to(at::kBFloat16)));
  EXPECT_LT(parameters[0].second[0].item<double>(), 1);
}

TEST(LearningRate, WarmsUpAndDecays) {
  OptimizerConfig config;
  config.lr = 2;
  config.warmup_steps = 4;
  config.min_lr_ratio = 0.1;
  for (const char* schedule : {"constant", "linear", "cosine"}) {
    config.schedule = schedule;
    EXPECT_DOUBLE_EQ(learning_rate(config, 0, 14), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(config, 3, 14), 2);
    EXPECT_DOUBLE_EQ(learning_rate(config, 4, 14), 2);
    EXPECT_TRUE(validate(config, "optim.actor").ok());
  }
  // Half-way between 2 and the floor 0.2, then the floor.
  EXPECT_DOUBLE_EQ(learning_rate(config, 9, 14), 1.1);
  EXPECT_NEAR(learning_rate(config, 14, 14), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(config, 99, 14), 0.2, 1e-12);
  config.schedule = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(config, 6, 14), 2 - 1.8 * 0.2);
  config.schedule = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(config, 13, 14), 2);
}

TEST(OptimizerOptions, ErrorsNameTheKey) {
  OptimizerConfig config;
  config.schedule = "cosin";
  EXPECT_THAT(validate(config, "optim.critic").message(),
              testing::AllOf(HasSubstr("optim.critic.schedule = cosin"),
                             HasSubstr("constant | linear | cosine")));
  config = {};
  config.betas = {0.9};
  EXPECT_THAT(validate(config, "optim.actor").message(), HasSubstr("optim.actor.betas"));
}

}  // namespace
}  // namespace braid::inline train
