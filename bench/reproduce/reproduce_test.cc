#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "real.h"

namespace braid::reproduce {
namespace {

constexpr int64_t kUnits = 4;

TEST(Real, SearchBeatsTheSymmetricHeuristicMoreWhereResponsesAreLonger) {
  std::vector<double> gains;
  for (const int64_t response : {128, 896}) {
    RealRow row = real_rows().front();
    row.response_tokens = response;
    const PlanningProblem problem = *make_experiment(real_experiment(row));
    EXPECT_EQ(problem.workload.prompts * (128 + response), 131072);
    const RealResult result = run_real(problem, real_engine(), kUnits);
    ASSERT_TRUE(result.heuristic.ok() && result.searched.ok());
    EXPECT_TRUE(result.searched->verdict.fits);
    gains.push_back(result.gain());
  }
  EXPECT_GT(gains[0], 0);
  EXPECT_GT(gains[1], gains[0]);
}

TEST(Experiment, ConstantsReplaceEfficiencies) {
  const GpuSpec gpu = *find_gpu("a100-80g");
  const Efficiency e = resolve_efficiency(real_engine(), efficiency_key(gpu, Precision::kBf16, ""));
  EXPECT_NEAR(e.decode_layer_us, 185, 1e-6);
  EXPECT_NEAR(e.rl_train_factor, 1, 1e-12);
  const Efficiency before =
      resolve_efficiency(committed_calibration(), efficiency_key(gpu, Precision::kBf16, ""));
  EXPECT_EQ(e.matmul_share, before.matmul_share);
}

}  // namespace
}  // namespace braid::reproduce
