#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/testing.h"
#include "fused.h"
#include "hybridflow.h"
#include "overlapped.h"
#include "real.h"
#include "sim/simulate.h"
#include "stages.h"
#include "tail.h"
#include "test_paths.h"

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
    const RealResult result = run_real(problem, real_engine(), {.units = kUnits});
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

TEST(Real, PublishedSpaceIsAPartOfOurs) {
  CallPlan entry;
  entry.call = "update_actor";
  for (int device = 0; device < 8; ++device) entry.mesh.devices.push_back(DeviceId{device});
  entry.strategy.pp = 2, entry.strategy.micro_batches = 4;
  entry.strategy.recompute = Recompute::kFull;
  EXPECT_TRUE(in_published_space(entry));
  entry.strategy.zero_stage = 3;
  EXPECT_FALSE(in_published_space(entry));
  entry.strategy.zero_stage = 1;
  entry.mesh.devices.resize(2);
  EXPECT_FALSE(in_published_space(entry));
}

// 8 micro-batches in 8 stages beside twice 4 in 4: the passes of the published exp2.
TEST(Fused, FusedUpdatesAreShorter) {
  FusedRow row = fused_rows().front();
  row.units = 2;
  const auto times = run_fused(row, committed_calibration());
  ASSERT_TRUE(times.ok()) << times.status().message();
  EXPECT_LT(times->together_s, times->apart_s);
  EXPECT_GT(times->passes_apart / times->passes_together, 1.2);
  EXPECT_GE(times->passes_together, times->passes_bound);
}

// A trace of 512 lognormal lengths on 16 replicas, and scoring that takes a quarter of generation.
TEST(Tail, ScoringHidesBehindTheLongest) {
  const auto times = run_tail({.score_tp = 4}), narrow = run_tail({.sigma = 0.5, .score_tp = 4});
  ASSERT_TRUE(narrow.ok()) << narrow.status().message();
  // Beginnings that are scored ahead leave less, also where few responses are much longer.
  EXPECT_LE(narrow->begun_s, 1.03 * narrow->bound_s());
  EXPECT_LT(narrow->begun_s, narrow->fused_s);
  ASSERT_TRUE(times.ok()) << times.status().message();
  EXPECT_NEAR(times->score_s / times->generate_s, 0.25, 0.005);
  EXPECT_GT(times->longest_s, times->work_s);
  EXPECT_GE((times->generate_s + times->score_s) / times->fused_s, 1.2);
  EXPECT_LE(times->fused_s, 1.03 * times->bound_s());
}

// 64 sequences of a mini-batch are fewer than the devices, each of which needs one under ZeRO-3.
TEST(Stages, DeepSpeedChatNeedsALargerMiniBatch) {
  if (!full_tier()) GTEST_SKIP() << "256 devices: the full tier";
  const FusedRow row = fused_rows()[1];
  EXPECT_FALSE(deepspeed_step(row, tailed_lengths(), kPublishedMiniBatch).ok());
  EXPECT_TRUE(deepspeed_step(row, tailed_lengths(), 256).ok());
}

TEST(HybridFlow, AllocationsDivideTheClusterAmongSets) {
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 4, 8);
  for (const Placement& placement : hybridflow_placements()) {
    const auto all = allocations(placement, cluster);
    ASSERT_FALSE(all.empty()) << placement.name;
    for (const RoleMeshes& meshes : all) {
      EXPECT_EQ(meshes.size(), 4u);
      size_t devices = 0;
      for (const auto& set : placement.sets) devices += meshes.at(set.front()).devices.size();
      EXPECT_EQ(devices, 32u);
      EXPECT_EQ(overlaps(meshes.at("actor"), meshes.at("critic")),
                std::string(placement.name) == "colocate");
    }
  }
}

TEST(HybridFlow, StridedGroupsReceiveWhatThePaperCounts) {
  for (const Transition& transition :
       {Transition{"llama2-7b", 8, 1, 2, 2, true}, Transition{"codellama-34b", 8, 2, 2, 4, true}}) {
    const int nodes = transition.tp * transition.pp * transition.dp / 8;
    const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), nodes, 8);
    const TransitionVolume strided = transition_volume(transition, cluster);
    // Stages have equal numbers of layers, but embedding and head sit on the outer ones.
    EXPECT_NEAR(strided.received, strided.hybridflow, 0.01);
    Transition neighbours = transition;
    neighbours.strided = false;
    EXPECT_GT(transition_volume(neighbours, cluster).received, strided.received);
    EXPECT_LT(strided.received, strided.gathered);
  }
}

TEST(HybridFlow, ColocationWinsOnFewDevices) {
  Experiment experiment = hybridflow_experiment("llama2-7b", "llama2-7b", 16);
  experiment.prompts = 256;
  const PlanningProblem problem = *make_experiment(experiment);
  const auto& placements = hybridflow_placements();
  const PlanLimits limits{.units = 2, .judged = 2};
  const PlacedStep together = best_allocation(problem, placements[0], limits);
  const PlacedStep split = best_allocation(problem, placements[1], limits);
  ASSERT_TRUE(together.step.ok() && split.step.ok());
  EXPECT_LT(together.step->verdict.step_s, split.step->verdict.step_s);
}

TEST(Overlapped, CutLengthsKeepTheirMean) {
  const LengthDistribution lengths = cut_lognormal(3000, 0.7, 4000);
  EXPECT_GT(lengths.mean, 3000);
  Workload work;
  work.prompts = 4000;
  work.prompt = fixed_length(1);
  work.response = lengths;
  double sum = 0;
  for (const int64_t length : draw_lengths(work, 1).response) sum += static_cast<double>(length);
  EXPECT_NEAR(sum / 4000, 3000, 60);
}

TEST(Overlapped, MeasuredPairsAgreeOnWhatWins) {
  const std::string path =
      std::string(BRAID_SOURCE_DIR) + "/examples/measurements/measurements.csv";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto rows = parse_measurements(text.str(), path);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  int priced = 0;
  for (const OverlapPair& pair : overlap_pairs(*rows)) {
    const auto together = overlap_case(pair.colocated), apart = overlap_case(pair.overlapped);
    if (!together.ok() || pair.group.find("llama3-8b-h100") == std::string::npos) continue;
    const auto one = steady_time(*together, committed_calibration());
    const auto other = steady_time(*apart, committed_calibration());
    ASSERT_TRUE(one.ok() && other.ok());
    EXPECT_EQ(other->step_s < one->step_s, *pair.overlapped.value < *pair.colocated.value);
    ++priced;
  }
  EXPECT_GE(priced, 1);
}

}  // namespace
}  // namespace braid::reproduce
