#include "pricing/own_engine.h"

#include <gmock/gmock.h>

#include "pricing/compute.h"
#include "pricing/rl_engine.h"

namespace braid::inline pricing {
namespace {

using testing::HasSubstr;

Calibration with_profile(const GpuSpec& gpu, const std::string& engine) {
  Calibration out = committed_calibration();
  Profile profile;
  profile.gpu = gpu;
  profile.engine = engine;
  profile.efficiencies = {{"mem_fused_factor", 0.75}};
  out.profiles.push_back(profile);
  return out;
}

Efficiency efficiency_of(const Calibration& calibration, const std::string& engine) {
  const auto device = make_device(*find_gpu("a100-80g"), Precision::kBf16, engine, calibration, "");
  return device->efficiency;
}

TEST(OwnEngine, ProfilesOfItsPassesNeedNoFactors) {
  const Efficiency before = efficiency_of(committed_calibration(), "");
  const Efficiency after = efficiency_of(with_profile(*find_gpu("a100-80g"), "braid"), "");
  EXPECT_GT(before.rl_train_factor, 1.1);
  EXPECT_GT(before.rl_step_host_s, 1);
  EXPECT_EQ(after.rl_train_factor, 1);
  EXPECT_EQ(after.rl_infer_factor, 1);
  EXPECT_EQ(after.rl_generate_factor, 1);
  EXPECT_EQ(after.rl_step_host_s, 0);
  EXPECT_EQ(after.mem_fused_factor, 0.75);
  EXPECT_EQ(after.mem_context_gib, before.mem_context_gib);  // a driver has its context
  EXPECT_EQ(after.matmul_share, before.matmul_share);
}

TEST(OwnEngine, OtherEnginesAndDevicesKeepTheirs) {
  const Calibration measured = with_profile(*find_gpu("a100-80g"), "braid");
  EXPECT_EQ(efficiency_of(measured, "vllm"), efficiency_of(committed_calibration(), "vllm"));
  const Calibration elsewhere = with_profile(*find_gpu("h100-80g"), "braid");
  EXPECT_EQ(efficiency_of(elsewhere, ""), efficiency_of(committed_calibration(), ""));
  const Calibration others = with_profile(*find_gpu("a100-80g"), "something");
  EXPECT_EQ(efficiency_of(others, ""), efficiency_of(committed_calibration(), ""));
}

TEST(OwnEngine, TheRuntimeTakesThemWithoutAProfileToo) {
  Calibration calibration = committed_calibration();
  calibration.own_engine = true;
  calibration.own_values = {{"rl_train_factor", 1.25}};
  const Efficiency on_gpu = efficiency_of(calibration, "");
  EXPECT_EQ(on_gpu.rl_infer_factor, 1);
  EXPECT_EQ(on_gpu.rl_train_factor, 1.25);  // what a run measured counts last
  const auto host =
      make_device(*find_gpu("this-machine"), Precision::kF32, "braid", calibration, "braid");
  EXPECT_EQ(host->efficiency.mem_context_gib, 0);
  EXPECT_EQ(host->efficiency.mem_reserve_factor, 1);
}

TEST(OwnEngine, EfficienciesOfAProfileAreRead) {
  const Profile profile = with_profile(*find_gpu("a100-80g"), "braid").profiles[0];
  const auto read = profile_from_json(profile_json(profile));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->efficiencies, profile.efficiencies);
  for (const auto& [value, message] :
       {std::pair<Json, const char*>{{{"mem_nothing", 1}}, "unknown efficiency 'mem_nothing'"},
        {{{"mem_fused_factor", -1}}, "'mem_fused_factor' must be a number from 0 to 1e9"},
        {{{"mem_fused_factor", "1"}}, "'mem_fused_factor' must be a number"},
        {Json::array(), "'efficiencies' must be an object"}}) {
    Json json = profile_json(profile);
    json["efficiencies"] = value;
    EXPECT_THAT(profile_from_json(json).status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace braid::inline pricing
