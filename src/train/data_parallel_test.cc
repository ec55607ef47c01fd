// Data-parallel gradients and the sharded optimizer against one process.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "base/text.h"
#include "comm/rank_testing.h"
#include "device/tensor_memory.h"
#include "nn/decoder.h"
#include "nn/model_parts.h"
#include "nn/parallel_testing.h"
#include "train/main_gradients.h"
#include "train/optimizer.h"
#include "train/sharded_optimizer.h"
#include "train/weight_shards.h"

namespace braid::inline train {
namespace {

constexpr int kSteps = 3, kMicroBatches = 8;

struct DataCase {
  std::string optimizer = "adamw";
  bool sharded = false, each_backward = false;
  bool weights = false;  // are slices between their uses
  at::ScalarType dtype = at::kFloat;
  bool recompute = false;
  int64_t lora = 0;
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

MainGradientOptions options_of(const DataCase& test, const Model& model) {
  MainGradientOptions options;
  options.buckets.elements = test.bucket_elements;
  options.sharded = test.sharded, options.each_backward = test.each_backward;
  if (test.weights)
    for (const ParameterPart& part : trainable_parts(model))
      options.buckets.apart.push_back(part.number);
  return options;
}

std::unique_ptr<Model> start_model(const DataCase& test) {
  ModelOptions options{.dtype = test.dtype, .seed = 3};
  if (test.recompute) options.kept = KeptActivations::kInputs;
  options.lora.rank = test.lora;
  return small_model("qwen2", options);
}

// The gradients of a micro-batch are added to the parameters'.
void backward(Model& model, int micro_batch) {
  const TestBatch batch = make_batch(model.spec(), 100 + micro_batch);
  const auto loss = loss_of(model, model.forward(batch.tokens, nullptr), batch).loss;
  model.let_go();
  model.hold_head();
  loss.backward();
  model.let_go();
}

// Micro-batches [begin, end) of the step, then the update; the norm before clipping.
double train_step(Model& model, MainGradients& gradients, ShardedOptimizer& optimizer,
                  Communicator* group, bool weights, std::pair<int, int> part) {
  gradients.zero();
  for (int i = part.first; i < part.second; ++i) {
    const bool reduced = i + 1 == part.second || gradients.each_backward();
    if (reduced) gradients.reduced_backward_follows();
    backward(model, i);
    if (reduced) {
      EXPECT_EQ(gradients.finish().message(), "");
    }
  }
  at::Tensor squares = at::full({1}, optimizer.squared_norm({}), at::kDouble);
  if (group != nullptr && gradients.sharded()) {
    EXPECT_EQ(group->all_reduce(squares, Reduce::kSum, "squares").wait().message(), "");
  }
  const double norm = std::sqrt(squares.item<double>());
  constexpr int64_t kScalars = 4096;
  const PeakMeter meter(at::kCPU);
  optimizer.update(norm, kSteps);
  EXPECT_EQ(optimizer.torn(), !weights);  // until all ranks have all weights
  EXPECT_EQ(optimizer.gather_weights().message(), "");
  EXPECT_LE(meter.most_bytes(), optimizer.update_bytes() + kScalars);
  EXPECT_GE(4 * meter.most_bytes(), optimizer.update_bytes());
  EXPECT_FALSE(optimizer.torn());
  model.weights_changed();
  return norm;
}

// Bytes of the weights that are in memory.
size_t resident_bytes(const Model& model) {
  size_t bytes = 0;
  for (const auto& [name, parameter] : model.parameters()) bytes += parameter.storage().nbytes();
  return bytes;
}

struct Trained {
  std::unique_ptr<Model> model;
  std::vector<double> norms;
  std::vector<StateSlice> state;
};

Trained train(const DataCase& test, Communicator* group) {
  count_tensor_memory();
  Trained out;
  out.model = start_model(test);
  MainGradients gradients(out.model->trainable_parameters(), group, options_of(test, *out.model));
  std::unique_ptr<WeightShards> shards;
  auto& decoder = dynamic_cast<Decoder&>(*out.model);
  if (test.weights) {
    shards = std::make_unique<WeightShards>(decoder, *group, &gradients.layout());
    decoder.set_keeper(shards.get());
    EXPECT_EQ(resident_bytes(decoder), 0u);
  }
  ShardedOptimizer optimizer(gradients, group, config_of(test), shards.get());
  const int64_t ranks = group == nullptr ? 1 : group->size();
  const int64_t rank = group == nullptr ? 0 : group->index();
  for (int step = 0; step < kSteps; ++step)
    out.norms.push_back(train_step(*out.model, gradients, optimizer, group, test.weights,
                                   {static_cast<int>(kMicroBatches * rank / ranks),
                                    static_cast<int>(kMicroBatches * (rank + 1) / ranks)}));
  EXPECT_EQ(resident_bytes(decoder) == 0, test.weights);
  for (int64_t unit = 0; test.weights && unit < shards->units(); ++unit)
    EXPECT_EQ(shards->gather(unit).message(), "");
  decoder.set_keeper(nullptr);
  for (StateSlice& slice : optimizer.slices()) {
    slice.values = slice.values.clone();
    out.state.push_back(std::move(slice));
  }
  return out;
}

void expect_like_one_process(World& world, const DataCase& test) {
  SCOPED_TRACE(cat(test.optimizer, test.sharded ? " sharded" : "",
                   test.each_backward ? " in each backward " : " ", test.weights ? "weights " : "",
                   test.recompute ? "recomputed " : "", test.lora, test.dtype));
  Communicator& all = **world.everyone();
  DataCase alone = test;
  alone.sharded = alone.weights = false;
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

// Weights that are whole only while they are used. A rank's gathers are alike in its forwards and
// backwards, also where autograd asks for no gradient below the first layer.
void expect_kept_weights_like_one_process(World& world) {
  const DataCase kept{.sharded = true, .each_backward = true, .weights = true};
  for (const bool recompute : {false, true})
    for (const int64_t lora : {0, 4}) {
      DataCase test = kept;
      test.optimizer = recompute ? "adamw" : "sgd", test.recompute = recompute, test.lora = lora;
      expect_like_one_process(world, test);
    }
  DataCase narrow = kept;
  narrow.dtype = at::kBFloat16;
  expect_like_one_process(world, narrow);
}

RANK_TEST(DataParallel, WeightsInSlicesEqualOneProcess2, 2) {
  expect_kept_weights_like_one_process(world);
}
RANK_TEST(DataParallel, WeightsInSlicesEqualOneProcess4, 4) {
  expect_kept_weights_like_one_process(world);
}

// Writes down what a decoder asks of the keeper of its weights; without `ahead` nothing is
// expected.
class KeeperScribe : public WeightKeeper {
 public:
  KeeperScribe(WeightShards& shards, bool ahead) : shards_(shards), ahead_(ahead) {}
  void bring(int64_t unit) override {
    if (expected_ >= 0) {
      EXPECT_EQ(unit, expected_) << "another unit was expected";
    }
    expected_ = -1;
    asked.push_back(cat("bring ", unit));
    shards_.bring(unit);
  }
  void expect(int64_t unit) override {
    EXPECT_EQ(expected_, -1) << "two units are expected";
    if (!ahead_) return;
    expected_ = unit;
    asked.push_back(cat("expect ", unit));
    shards_.expect(unit);
  }
  void leave(int64_t unit) override { shards_.leave(unit); }
  void open(int64_t unit) override { shards_.open(unit); }
  void close(int64_t unit) override { shards_.close(unit); }

  std::vector<std::string> asked;

 private:
  WeightShards& shards_;
  const bool ahead_;
  int64_t expected_ = -1;
};

// One layer ahead, and no more, in both directions; the bits are those of gathers in their place.
RANK_TEST(DataParallel, TheNextLayerIsGatheredWhileOneComputes, 2) {
  Communicator& all = **world.everyone();
  std::map<bool, std::vector<at::Tensor>> gradients;
  for (const bool ahead : {false, true}) {
    const auto model = start_model({});
    auto& decoder = dynamic_cast<Decoder&>(*model);
    WeightShards shards(decoder, all, nullptr);
    KeeperScribe scribe(shards, ahead);
    decoder.set_keeper(&scribe);
    backward(*model, 5);
    for (const auto& [name, parameter] : model->parameters())
      gradients[ahead].push_back(parameter.grad());
    if (!ahead) continue;
    std::vector<std::string> wanted = {"bring 0"};
    const int64_t last = decoder.units() - 1;
    for (int64_t unit = 1; unit <= last; ++unit)
      wanted.insert(wanted.end(), {cat("expect ", unit), cat("bring ", unit)});
    const bool tied = decoder.spec().tied_embeddings;
    if (tied) wanted.push_back("bring 0");
    // The backward's, whose head is held again.
    wanted.push_back(cat("bring ", last));
    if (tied) wanted.push_back("bring 0");
    for (int64_t unit = last - 1; unit > 0; --unit) {
      wanted.push_back(cat("bring ", unit));
      if (unit > 1) wanted.push_back(cat("expect ", unit - 1));
    }
    // Of the head also the forward's own use of it, which is there.
    std::vector<std::string> asked = std::exchange(scribe.asked, {});
    EXPECT_EQ(asked, wanted);
    model->pass_by({});
    model->pass_by({.backward = true});
    EXPECT_EQ(scribe.asked, wanted);
    decoder.set_keeper(nullptr);
  }
  for (size_t i = 0; i < gradients[false].size(); ++i)
    EXPECT_TRUE(at::equal(gradients[false][i], gradients[true][i]));
}

// A rank that computes nothing brings what the others bring, also where it had begun to.
RANK_TEST(DataParallel, RankWithoutAMicroBatchBringsWeights, 2) {
  Communicator& all = **world.everyone();
  const auto alone = start_model({});
  backward(*alone, 5);
  for (const bool begun : {false, true}) {
    const auto model = start_model({});
    auto& decoder = dynamic_cast<Decoder&>(*model);
    MainGradientOptions options{.sharded = true, .each_backward = true};
    for (const ParameterPart& part : trainable_parts(*model))
      options.buckets.apart.push_back(part.number);
    MainGradients gradients(model->trainable_parameters(), &all, options);
    WeightShards shards(decoder, all, &gradients.layout());
    decoder.set_keeper(&shards);
    gradients.zero();
    gradients.reduced_backward_follows();
    const auto start = [&](int64_t unit) { gradients.start_from(unit * kNumbersPerUnit); };
    if (all.index() == 0) {
      backward(*model, 5);
    } else {
      const int64_t before = all.begun();
      if (begun) {  // the pass ends where a unit is whole and the next one is on its way
        shards.bring(0), shards.expect(1);
        model->rest();
        EXPECT_EQ(resident_bytes(*model), 0u);
      }
      all.leave_out(all.begun() - before);
      model->pass_by({});
      EXPECT_FALSE(all.leaves_out());
      model->pass_by({.backward = true, .passed = start});
    }
    ASSERT_EQ(gradients.finish().message(), "");
    for (const BucketPlace& place : gradients.places()) {
      const SlicePart part = gradients.owned_part(place);
      const at::Tensor wanted = by_name(*alone).at(place.name).grad();
      EXPECT_LE(relative_error(gradients.gradient(place.name),
                               wanted.flatten().narrow(0, part.in_parameter, part.size), 1e-6),
                1e-5)
          << place.name;
    }
    decoder.set_keeper(nullptr);
  }
}

// Every element of every parameter's state is owned by exactly one rank.
void expect_state_is_spread(World& world) {
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
  for (const char* optimizer : {"sgd", "adamw"})
    expect_like_one_process(world,
                            {.optimizer = optimizer, .sharded = true, .each_backward = true});
  for (const bool each : {false, true})
    expect_like_one_process(world,
                            {.sharded = true, .each_backward = each, .dtype = at::kBFloat16});
}

RANK_TEST(DataParallel, EqualsOneProcess4, 4) {
  for (const bool sharded : {false, true})
    expect_like_one_process(world, {.optimizer = "sgd", .sharded = sharded});
  expect_like_one_process(world, {.optimizer = "sgd", .sharded = true, .each_backward = true});
  expect_state_is_spread(world);
}

// A backward that a rank leaves out counts as zeros, whichever buckets it starts before the end.
void expect_zeros_for_what_is_left_out(World& world, bool starts) {
  Communicator& all = **world.everyone();
  const auto model = start_model({}), alone = start_model({});
  MainGradientOptions options{.sharded = true, .each_backward = true};
  options.buckets.apart.assign(model->trainable_parameters().size(), 7);
  options.buckets.apart.back() = 8;
  MainGradients gradients(model->trainable_parameters(), &all, options);
  MainGradients expected(alone->trainable_parameters(), nullptr, {});
  gradients.zero();
  for (int i = 0; i < 2; ++i) {
    backward(*alone, i);
    gradients.reduced_backward_follows();
    if (i == 0 || all.index() == 0)
      backward(*model, i == 0 ? static_cast<int>(all.index()) : 2);
    else if (starts)
      gradients.start_from(8);
    ASSERT_EQ(gradients.finish().message(), "");
  }
  backward(*alone, 2);
  ASSERT_EQ(gradients.buckets(), 2u);
  for (const BucketPlace& place : gradients.places()) {
    const SlicePart part = gradients.owned_part(place);
    if (part.size == 0) continue;
    const at::Tensor own = gradients.gradient(place.name);
    const at::Tensor wanted =
        expected.gradient(place.name).flatten().narrow(0, part.in_parameter, part.size);
    EXPECT_LE(relative_error(own, wanted, 1e-6), 1e-5) << place.name;
  }
}

RANK_TEST(DataParallel, RankWithoutAMicroBatchTakesPart, 2) {
  for (const bool starts : {false, true}) expect_zeros_for_what_is_left_out(world, starts);
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
  for (const BucketPlace& place : gradients.places())
    EXPECT_TRUE(at::equal(gradients.gradient(place), expected.at(place.name))) << place.name;
}

}  // namespace
}  // namespace braid::inline train
