// The mean of a role's weights and those that it follows, number by number.
#include "weights/follow.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/checkpoint_reader.h"
#include "nn/test_models.h"
#include "weights/held_slices.h"

namespace braid::inline weights {
namespace {

ModelInstance instance(at::ScalarType dtype, uint64_t seed) {
  ModelOptions options;
  options.dtype = dtype;
  options.seed = seed;
  ModelInstance out;
  out.model = std::move(make_model(small_spec("qwen2"), options)).value();
  out.follows = true;
  return out;
}

std::vector<std::vector<float>> numbers(const ModelInstance& role) {
  std::vector<std::vector<float>> out;
  for (const auto& [name, parameter] : role.model->parameters()) {
    const at::Tensor flat = parameter.detach().to(at::kFloat).contiguous();
    out.emplace_back(flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
  }
  return out;
}

// Both products and the sum rounded to f32. Products of two f32 are exact in f64, and rounding such
// a sum twice, from f64 to f32, gives what rounding it once does (Figueroa, 1995).
float mean_of(float own, float other, double keep) {
  const auto a = static_cast<float>(static_cast<double>(static_cast<float>(keep)) * own);
  const auto b = static_cast<float>(static_cast<double>(static_cast<float>(1 - keep)) * other);
  return static_cast<float>(static_cast<double>(a) + static_cast<double>(b));
}

TEST(FollowWeights, MeansAreRoundedAsTheFormulaSays) {
  for (const double keep : {0.25, 0.3, 0.999}) {
    ModelInstance role = instance(at::kFloat, 1), other = instance(at::kFloat, 2);
    const auto before = numbers(role), theirs = numbers(other);
    keep_average(role);
    EXPECT_TRUE(role.average.empty());  // the weights are it
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(follow_weights(role, other, keep).ok());
    const auto after = numbers(role);
    for (size_t i = 0; i < after.size(); ++i)
      for (size_t k = 0; k < after[i].size(); ++k) {
        const float once = mean_of(before[i][k], theirs[i][k], keep);
        ASSERT_EQ(after[i][k], mean_of(once, theirs[i][k], keep)) << keep << " " << i << " " << k;
      }
    EXPECT_FALSE(role.torn);
    EXPECT_EQ(numbers(other), theirs);
  }
}

TEST(FollowWeights, NoShareKeptIsACopy) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    ModelInstance role = instance(dtype, 1), other = instance(dtype, 2);
    EXPECT_NE(numbers(role), numbers(other));
    ASSERT_TRUE(follow_weights(role, other, 0).ok());
    EXPECT_EQ(numbers(role), numbers(other));
  }
}

// A bf16 number would not move by a thousandth of a difference; its f32 average does.
TEST(FollowWeights, NarrowWeightsFollowTheirF32Average) {
  ModelInstance role = instance(at::kBFloat16, 1), other = instance(at::kBFloat16, 2);
  keep_average(role);
  ASSERT_EQ(role.average.size(), role.model->parameters().size());
  auto expected = numbers(role);
  const auto theirs = numbers(other);
  constexpr int kSteps = 1500;
  constexpr double kKeep = 0.999;
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(follow_weights(role, other, kKeep).ok());
    for (size_t i = 0; i < expected.size(); ++i)
      for (size_t k = 0; k < expected[i].size(); ++k)
        expected[i][k] = mean_of(expected[i][k], theirs[i][k], kKeep);
  }
  const auto parameters = role.model->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor mean =
        at::from_blob(expected[i].data(), parameters[i].second.sizes(), at::kFloat);
    EXPECT_TRUE(at::equal(role.average[i], mean)) << parameters[i].first;
    EXPECT_TRUE(at::equal(parameters[i].second, mean.to(at::kBFloat16))) << parameters[i].first;
  }
}

TEST(FollowWeights, TheAverageComesBackFromACheckpoint) {
  ModelInstance role = instance(at::kBFloat16, 1), other = instance(at::kBFloat16, 2),
                again = instance(at::kBFloat16, 3);
  keep_average(role);
  keep_average(again);
  ASSERT_TRUE(follow_weights(role, other, 0.9).ok());
  const std::vector<SavedSlice> saved = own_slices(role, {}).moments;
  EXPECT_EQ(saved.size(), role.average.size());
  CheckpointState state;
  state.tensors["average"] = saved;
  ASSERT_EQ(CheckpointReader(state).read("average", held_slices(again).moments), Status());
  for (size_t i = 0; i < role.average.size(); ++i)
    EXPECT_TRUE(at::equal(role.average[i], again.average[i]));
  state.tensors["average"].pop_back();
  const Status less = CheckpointReader(state).read("average", held_slices(again).moments);
  EXPECT_NE(less.message().find("has no tensor"), std::string::npos);
}

}  // namespace
}  // namespace braid::inline weights
