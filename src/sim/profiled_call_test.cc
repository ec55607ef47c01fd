// Calls of the simulator on devices with a profile: collectives and passes take the measured times.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "sim/call_cost.h"
#include "sim/simulate.h"

namespace braid::inline sim {
namespace {

// Seconds of one micro-batch of the reference model, tensor-parallel over two devices, where every
// reduce-scatter takes the given time; and all-reduces theirs.
double forward_s(double exchange_s, double all_reduce_s = 0) {
  const PlanningProblem problem = make_test_problem({.devices = 2, .prompts = 8});
  const Program program = *compile(uniform_plan(problem, 1, 2, 1), problem);
  Calibration calibration = committed_calibration();
  Profile profile;
  profile.gpu = *find_gpu("a100-80g");
  profile.collectives = {{"reduce_scatter", 2, true, 1, exchange_s},
                         {"reduce_scatter", 2, true, 1e12, exchange_s}};
  if (all_reduce_s > 0)
    for (const double bytes : {1.0, 1e12})
      profile.collectives.push_back({"all_reduce", 2, true, bytes, all_reduce_s});
  calibration.profiles = {profile};
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    if (program.graph.calls[i].name != "ref_logprob") continue;
    const auto cost =
        CallCost::make(program, CallId{static_cast<int32_t>(i)}, problem, calibration);
    return cost->forward_s(cost->micro_batch({{500}, {500}}), 0);
  }
  return 0;
}

TEST(ProfiledCall, CollectivesTakeTheirMeasuredTime) {
  const double first_s = forward_s(0.1), second_s = forward_s(0.2), third_s = forward_s(0.4);
  EXPECT_GT(second_s, first_s + 1);  // several exchanges in each of 32 layers, partly hidden
  EXPECT_NEAR((third_s - second_s) / (second_s - first_s), 2, 0.01);
}

// An all-reduce that was measured is not taken for two halves.
TEST(ProfiledCall, AllReducesTakeTheirOwnTime) {
  EXPECT_LT(forward_s(0.2, 0.1), forward_s(0.2) - 1);
  EXPECT_GT(forward_s(0.2, 0.8), forward_s(0.2) + 1);
}

// A sum in the order of the ranks is an all-to-all and an all-gather, whatever an all-reduce takes.
TEST(ProfiledCall, OrderedSumsTakeTheTimeOfWhatTheyAre) {
  PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 8});
  const auto forward = [&](Reduction reduction, double all_reduce_s, double all_to_all_s) {
    problem.reduction = reduction;
    const Program program = *compile(uniform_plan(problem, 1, 4, 1), problem);
    Calibration calibration = committed_calibration();
    Profile profile;
    profile.gpu = *find_gpu("a100-80g");
    for (const double bytes : {1.0, 1e12}) {
      profile.collectives.push_back({"all_reduce", 4, true, bytes, all_reduce_s});
      profile.collectives.push_back({"all_to_all", 4, true, bytes, all_to_all_s});
      profile.collectives.push_back({"reduce_scatter", 4, true, bytes, 0.01});
    }
    calibration.profiles = {profile};
    for (size_t i = 0; i < program.graph.calls.size(); ++i) {
      if (program.graph.calls[i].name != "ref_logprob") continue;
      const auto cost =
          CallCost::make(program, CallId{static_cast<int32_t>(i)}, problem, calibration);
      return cost->forward_s(cost->micro_batch({{500}, {500}}), 0);
    }
    return 0.0;
  };
  const auto ordered = Reduction::kOrdered, native = Reduction::kNative;
  EXPECT_DOUBLE_EQ(forward(native, 0.1, 0.2), forward(native, 0.1, 0.4));
  EXPECT_GT(forward(native, 0.2, 0.1), forward(native, 0.1, 0.1) + 1);
  EXPECT_DOUBLE_EQ(forward(ordered, 0.1, 0.2), forward(ordered, 0.4, 0.2));
  EXPECT_GT(forward(ordered, 0.1, 0.2), forward(ordered, 0.1, 0.1) + 1);
}

// Of an engine, with collectives of 2 and of 4 devices that take so many seconds whatever they
// move.
Profile profile_of(const std::string& engine, const std::map<std::string, double>& seconds) {
  Profile out;
  out.gpu = *find_gpu("a100-80g");
  out.engine = engine;
  for (const double bytes : {1.0, 1e12})
    for (const int ranks : {2, 4})
      for (const auto& [op, takes_s] : seconds)
        out.collectives.push_back({op, ranks, true, bytes, takes_s});
  return out;
}

// Seconds of rounds of generation on four devices with this profile.
double rounds_s(const PlanningProblem& problem, int tp, int pp, const Profile& profile,
                const BatchRound& round) {
  const Program program = *compile(uniform_plan(problem, 4 / tp / pp, tp, pp), problem);
  Calibration calibration = committed_calibration();
  calibration.profiles = {profile};
  const std::vector<Call>& calls = program.graph.calls;
  const auto generate = std::find_if(calls.begin(), calls.end(), [](const Call& call) {
    return call.kind == CallKind::kGenerate;
  });
  const CallId id{static_cast<int32_t>(generate - calls.begin())};
  return CallCost::make(program, id, problem, calibration)->rounds_s(round);
}

// A round of Braid's own engine takes what its list says that ranks send to draw: of a small
// vocabulary whole logits, of a large one a few numbers, behind stages the tokens. Others' decode
// steps were fitted with it.
TEST(ProfiledCall, RoundsTakeWhatDrawsSend) {
  PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 32});
  const auto round_s = [&](int tp, int pp, double gather_s, double reduce_s, double tell_s,
                           const std::string& engine) {
    return rounds_s(
        problem, tp, pp,
        profile_of(engine,
                   {{"all_gather", gather_s}, {"all_reduce", reduce_s}, {"broadcast", tell_s}}),
        {.rounds = 3, .decoding = 8, .cached_tokens = 800, .due = 8});
  };
  const auto more_s = [&](int tp, int pp, double gather_s, double reduce_s, double tell_s,
                          const std::string& engine = "braid") {
    return round_s(tp, pp, gather_s, reduce_s, tell_s, engine) - round_s(tp, pp, 0, 0, 0, engine);
  };
  ASSERT_GE(problem.models.at("actor").spec.vocab / 4, kFewestShared);
  // The sums of layers are not those of a profile, which has no decode steps.
  EXPECT_NEAR(more_s(2, 1, 1, 0, 0), 3 * 3, 1e-9);
  EXPECT_NEAR(more_s(4, 1, 0, 1, 0), 3, 1e-9);
  EXPECT_NEAR(more_s(2, 2, 0, 0, 1), 3, 1e-9);
  EXPECT_EQ(more_s(1, 1, 1, 1, 1), 0);
  EXPECT_EQ(more_s(2, 1, 1, 1, 1, "vllm"), 0);
  problem.models.at("actor").spec.vocab = 2000;
  EXPECT_NEAR(more_s(2, 1, 1, 0, 0), 3, 1e-9);
  EXPECT_EQ(more_s(2, 1, 0, 1, 0), 0);
}

// Behind stages it also takes what hidden states take from each to the next: of a round of few rows
// once, of one that is cut into batches less often than there are batches, as they follow each
// other.
TEST(ProfiledCall, RoundsTakeWhatStagesHandOn) {
  constexpr double kMessage_s = 0.5;
  const PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 256});
  const auto round_s = [&](int tp, int pp, int64_t rows, bool slow, const std::string& engine) {
    Profile profile = profile_of(
        engine, {{"all_gather", 0}, {"all_reduce", 0}, {"reduce_scatter", 0}, {"broadcast", 0}});
    profile.efficiencies["nvlink_latency_us"] = slow ? kMessage_s * 1e6 : 0;
    return rounds_s(problem, tp, pp, profile,
                    {.rounds = 3, .decoding = rows, .cached_tokens = 300 * rows});
  };
  const auto more_s = [&](int tp, int pp, int64_t rows, const std::string& engine = "braid") {
    return round_s(tp, pp, rows, true, engine) - round_s(tp, pp, rows, false, engine);
  };
  EXPECT_NEAR(more_s(1, 2, 8), 3 * kMessage_s, 1e-9);
  EXPECT_NEAR(more_s(1, 4, 8), 3 * 3 * kMessage_s, 1e-9);
  EXPECT_NEAR(more_s(2, 2, 8), 3 * kMessage_s, 1e-9);
  EXPECT_EQ(more_s(1, 1, 8), 0);
  EXPECT_EQ(more_s(1, 4, 8, "vllm"), 0);
  // Four batches: as if three passes of a quarter each followed the first.
  EXPECT_NEAR(more_s(1, 4, 64), 3 * 3 * kMessage_s * (1 + 3.0 / 4), 1e-9);
}

// Frozen weights that are files in memory for their calls, and what kernels pack.
TEST(ProfiledCall, MemoryOfTheOwnEngine) {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo", .devices = 1, .prompts = 8});
  const Program program = *compile(uniform_plan(problem, 1, 1, 1), problem);
  const auto peak = [&](const Calibration& calibration) {
    return simulate(program, problem, calibration, {})->devices[0].peak_bytes;
  };
  Calibration calibration = committed_calibration();
  const double weights =
      2.0 * static_cast<double>(total_params(problem.models.at("reference").spec));
  const double resident = peak(calibration);
  problem.maps_frozen = true;
  EXPECT_NEAR(resident - peak(calibration), weights, 0.1 * weights);  // with the reserve
  Profile profile;
  profile.gpu = problem.cluster.nodes[0].gpu;
  profile.engine = "braid";
  calibration.profiles = {profile};
  const double bare = peak(calibration);
  calibration.profiles[0].efficiencies = {{"mem_packed_train_share", 2}};
  const double once = peak(calibration);
  EXPECT_EQ(once, bare);  // one micro-batch packs nothing
  ExecutionPlan cut = uniform_plan(problem, 1, 1, 1);
  for (CallPlan& call : cut.calls)
    if (call.call != "generate") call.strategy.micro_batches = 2;
  const Program several = *compile(cut, problem);
  const double packed = simulate(several, problem, calibration, {})->devices[0].peak_bytes;
  calibration.profiles[0].efficiencies.clear();
  const double unpacked = simulate(several, problem, calibration, {})->devices[0].peak_bytes;
  EXPECT_NEAR(packed - unpacked, 2 * weights, 0.1 * weights);
}

}  // namespace
}  // namespace braid::inline sim
