// Data-parallel gradients and the sharded optimizer against one process.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "comm/rank_testing.h"
#include "nn/parallel_testing.h"
#include "train/main_gradients.h"
#include "train/optimizer.h"
#include "train/sharded_optimizer.h"

namespace braid {
namespace {

constexpr int kSteps = 3, kMicroBatches = 8;

struct DataCase {
  std::string optimizer = "adamw";
  bool sharded = false;
  at::ScalarType dtype = at::kFloat;
  int64_t bucket_elements = 3000;
};

OptimizerConfig config_of(const DataCase& test) {
  OptimizerConfig config;
  config.name = test.optimizer;
  config.lr = test.optimizer == "sgd" ? 0.1 : 1e-3;
  config.weight_decay = 0.01;
  config.max_grad_norm = 0.5;
  return config;
}

std::unique_ptr<Model> start_model(const DataCase& test) {
  auto model = small_model("qwen2", {.dtype = test.dtype, .seed = 3});
  return model;
}

// The gradients of a micro-batch are added to the parameters'.
void backward(Model& model, int micro_batch) {
  const TestBatch batch = make_batch(model.spec(), 100 + micro_batch);
  loss_of(model, model.forward(batch.tokens, nullptr), batch).loss.backward();
}

// Micro-batches [begin, end) of the step, then the update; the norm before clipping.
double train_step(Model& model, MainGradients& gradients, ShardedOptimizer& optimizer,
                  Communicator* group, int begin, int end) {
  gradients.zero();
  for (int i = begin; i < end; ++i) {
    if (i + 1 == end) gradients.last_backward_follows();
    backward(model, i);
  }
  EXPECT_EQ(gradients.finish().message(), "");
  at::Tensor squares = at::full({1}, optimizer.squared_norm({}), at::kDouble);
  if (group != nullptr && gradients.sharded())
    EXPECT_EQ(group->all_reduce(squares, Reduce::kSum, "squares").wait().message(), "");
  const double norm = std::sqrt(squares.item<double>());
  optimizer.update(norm, kSteps);
  EXPECT_TRUE(optimizer.torn());  // until all ranks have all weights
  EXPECT_EQ(optimizer.gather_weights().message(), "");
  EXPECT_FALSE(optimizer.torn());
  model.weights_changed();
  return norm;
}

struct Trained {
  std::unique_ptr<Model> model;
  std::vector<double> norms;
  std::vector<StateSlice> state;
};

Trained train(const DataCase& test, Communicator* group) {
  Trained out;
  out.model = start_model(test);
  MainGradients gradients(out.model->trainable_parameters(), group,
                          {.bucket_elements = test.bucket_elements, .sharded = test.sharded});
  ShardedOptimizer optimizer(gradients, group, config_of(test));
  const int64_t ranks = group == nullptr ? 1 : group->size();
  const int64_t rank = group == nullptr ? 0 : group->index();
  for (int step = 0; step < kSteps; ++step)
    out.norms.push_back(train_step(*out.model, gradients, optimizer, group,
                                   static_cast<int>(kMicroBatches * rank / ranks),
                                   static_cast<int>(kMicroBatches * (rank + 1) / ranks)));
  for (StateSlice& slice : optimizer.slices()) {
    slice.values = slice.values.clone();
    out.state.push_back(std::move(slice));
  }
  return out;
}

void expect_like_one_process(World& world, const DataCase& test) {
  SCOPED_TRACE(cat(test.optimizer, test.sharded ? " sharded" : "", " ", test.dtype));
  Communicator& all = **world.everyone();
  DataCase alone = test;
  alone.sharded = false;
  const Trained expected = train(alone, nullptr), actual = train(test, &all);
  const bool f32 = test.dtype == at::kFloat;
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(actual.norms[step] / expected.norms[step], 1, f32 ? 1e-5 : 1e-3);
  const auto values = by_name(*expected.model), start = by_name(*start_model(test));
  for (const auto& [name, parameter] : actual.model->parameters()) {
    const at::Tensor moved = parameter.detach() - start.at(name).detach();
    const at::Tensor wanted = values.at(name).detach() - start.at(name).detach();
    const double floor = wanted.norm().item<double>() == 0 ? 1 : 0;
    EXPECT_LE(relative_error(moved, wanted, floor), !f32                      ? 0.1
                                                    : test.optimizer == "sgd" ? 1e-4
                                                                              : 1e-2)
        << name;
  }
  // All ranks hold the same bits.
  for (const auto& [name, parameter] : actual.model->parameters()) {
    const at::Tensor theirs = parameter.detach().clone();
    ASSERT_EQ(all.broadcast(theirs, 0, name).wait().message(), "");
    EXPECT_TRUE(at::equal(theirs, parameter)) << name;
  }
}

// Every element of every parameter's state is owned by exactly one rank.
void expect_state_is_dealt_out(World& world) {
  Communicator& all = **world.everyone();
  const Trained trained = train({.sharded = true}, &all);
  const auto parameters = by_name(*trained.model);
  std::map<std::string, at::Tensor> owners;
  for (const auto& [name, parameter] : parameters) owners[name] = at::zeros({parameter.numel()});
  for (const StateSlice& slice : trained.state)
    if (slice.state == "exp_avg")
      owners.at(slice.name).narrow(0, slice.begin, slice.values.numel()).add_(1);
  for (auto& [name, count] : owners) {
    ASSERT_EQ(all.all_reduce(count, Reduce::kSum, name).wait().message(), "");
    EXPECT_TRUE(at::equal(count, at::ones_like(count))) << name;
  }
}

RANK_TEST(DataParallel, EqualsOneProcess2, 2) {
  for (const char* optimizer : {"sgd", "adamw"})
    for (const bool sharded : {false, true})
      expect_like_one_process(world, {.optimizer = optimizer, .sharded = sharded});
  expect_like_one_process(world, {.sharded = true, .dtype = at::kBFloat16});
}

RANK_TEST(DataParallel, EqualsOneProcess4, 4) {
  for (const bool sharded : {false, true})
    expect_like_one_process(world, {.optimizer = "sgd", .sharded = sharded});
  expect_state_is_dealt_out(world);
}

// The first update of one process through MainGradients is that of the plain optimizer.
TEST(DataParallel, OneProcessEqualsThePlainOptimizer) {
  for (const char* name : {"adamw", "sgd"}) {
    const DataCase test{.optimizer = name};
    const Trained trained = train(test, nullptr);
    const auto plain = start_model(test);
    AdamW optimizer(plain->trainable_parameters(), config_of(test));
    for (int step = 0; step < kSteps; ++step) {
      for (int i = 0; i < kMicroBatches; ++i) backward(*plain, i);
      optimizer.step(kSteps);
      plain->weights_changed();
    }
    for (const auto& [tensor, parameter] : trained.model->parameters())
      EXPECT_LE(relative_error(parameter.detach(), by_name(*plain).at(tensor).detach(), 0), 1e-5)
          << name << " " << tensor;
  }
}

// bf16 gradients of single micro-batches are summed in f32.
TEST(DataParallel, BfloatGradientsAreSummedInF32) {
  const auto model = start_model({.dtype = at::kBFloat16}),
             plain = start_model({.dtype = at::kBFloat16});
  MainGradients gradients(model->trainable_parameters(), nullptr, {});
  gradients.zero();
  std::map<std::string, at::Tensor> expected;
  for (int i = 0; i < kMicroBatches; ++i) {
    backward(*model, i);
    backward(*plain, i);
    for (const auto& [name, parameter] : plain->trainable_parameters()) {
      const at::Tensor added = parameter.grad().to(at::kFloat);
      expected[name] = i == 0 ? added : expected[name] + added;
      parameter.mutable_grad().reset();
    }
  }
  ASSERT_EQ(gradients.finish().message(), "");
  for (const GradientPlace& place : gradients.places())
    EXPECT_TRUE(at::equal(gradients.gradient(place), expected.at(place.name))) << place.name;
}

}  // namespace
}  // namespace braid
