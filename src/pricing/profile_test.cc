#include "pricing/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pricing/test_cases.h"

namespace braid::inline pricing {
namespace {

using testing::HasSubstr;

Profile toy_profile() {
  Profile profile;
  profile.gpu = toy_gpu();
  profile.engine = "braid";
  profile.layers = {{ProfileOp::kLayerForward, "toy", 1, 128, 64, 0.01},
                    {ProfileOp::kLayerForward, "toy", 1, 256, 64, 0.02},
                    {ProfileOp::kLayerDecode, "toy", 1, 4, 100, 0.001},
                    {ProfileOp::kLayerDecode, "toy", 1, 4, 300, 0.002},
                    {ProfileOp::kOptimizer, "toy", 1, 1000, 0, 0.5}};
  profile.collectives = {{"all_reduce", 2, true, 1000, 0.1}, {"all_reduce", 2, true, 3000, 0.2}};
  return profile;
}

double layer_s(ProfileOp op, double tokens, double context, int tp = 1) {
  return profiled_layer_s(toy_profile(), {op, "toy", tp, tokens, context, 0}).value();
}

TEST(Profile, JsonBothWays) {
  const auto read = profile_from_json(profile_json(toy_profile()));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, toy_profile());
}

TEST(Profile, ErrorsNameTheEntry) {
  const auto failure = [](auto change) {
    Json json = profile_json(toy_profile());
    change(&json);
    const auto read = profile_from_json(json);
    EXPECT_EQ(read.status().code(), Code::kInvalidInput);
    return read.status().message();
  };
  EXPECT_THAT(failure([](Json* json) { (*json)["layers"][1]["seconds"] = 0; }),
              HasSubstr("layers[1]: 'seconds' must be finite and above 0"));
  EXPECT_THAT(failure([](Json* json) { (*json)["layers"][2]["op"] = "sleep"; }),
              HasSubstr("layers[2]: unknown operation 'sleep'"));
  EXPECT_THAT(failure([](Json* json) { (*json)["collectives"][0]["members"] = 1; }),
              HasSubstr("collectives[0]: 'members' must be at least 2"));
  EXPECT_THAT(failure([](Json* json) { json->erase("gpu"); }), HasSubstr("gpu"));
  EXPECT_THAT(failure([](Json* json) { (*json)["precision"] = "int1"; }), HasSubstr("int1"));
}

TEST(Profile, TokensAreInterpolated) {
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerForward, 192, 64), 0.015);
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerForward, 1, 64), 0.01);     // all overhead
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerForward, 1024, 64), 0.08);  // in proportion
}

TEST(Profile, ContextIsInterpolatedAndExtended) {
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerDecode, 4, 200), 0.0015);
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerDecode, 4, 500), 0.003);
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerDecode, 4, 0), 0.0005);
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerForward, 128, 9999), 0.01);  // one context measured
}

TEST(Profile, LongContextsShrinkLikeShortOnes) {
  Profile profile = toy_profile();
  profile.layers.push_back({ProfileOp::kLayerForward, "toy", 1, 256, 128, 0.03});
  // 0.02 s at 256 tokens and 0.01 s at 128 of the short context: half.
  EXPECT_DOUBLE_EQ(*profiled_layer_s(profile, {ProfileOp::kLayerForward, "toy", 1, 128, 128, 0}),
                   0.015);
}

TEST(Profile, ShapesNotNamesAreCompared) {
  ModelSize model = toy_model();
  const std::string shape = layer_shape(model);
  model.name = "another";
  model.layers = 40;
  EXPECT_EQ(layer_shape(model), shape);
  model.kv_heads = 4;
  EXPECT_NE(layer_shape(model), shape);
}

TEST(Profile, UnmeasuredDegreesShareDegreeOne) {
  EXPECT_DOUBLE_EQ(layer_s(ProfileOp::kLayerForward, 128, 64, 4), 0.0025);
  const LayerTime other{ProfileOp::kLayerForward, "another", 1, 128, 64, 0};
  EXPECT_EQ(profiled_layer_s(toy_profile(), other), std::nullopt);
  EXPECT_DOUBLE_EQ(*profiled_optimizer_s(toy_profile(), 4000), 2);
  EXPECT_EQ(profiled_optimizer_s({}, 4000), std::nullopt);
}

TEST(Profile, CollectivesByMembersAndBytes) {
  EXPECT_DOUBLE_EQ(*profiled_collective_s(toy_profile(), {"all_reduce", 2, true, 2000, 0}), 0.15);
  EXPECT_EQ(profiled_collective_s(toy_profile(), {"all_reduce", 4, true, 2000, 0}), std::nullopt);
  EXPECT_EQ(profiled_collective_s(toy_profile(), {"all_reduce", 2, false, 2000, 0}), std::nullopt);
}

}  // namespace
}  // namespace braid::inline pricing
