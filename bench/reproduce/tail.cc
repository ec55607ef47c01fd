#include "tail.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "experiment.h"
#include "plan/validate.h"
#include "sim/simulate.h"

namespace braid::reproduce {
namespace {

constexpr const char* kTailModel = "qwen2.5-7b";
constexpr const char* kTailGpu = "a100-80g";
constexpr int64_t kTailPrompt = 16;  // so that prompts hardly matter
constexpr double kRoundS = 0.01;     // of decoding, up to saturation
constexpr double kHeadShare = 0.05;  // of a round: the output head's
constexpr int64_t kTailScoreTokens = 4096;

Result<PlanningProblem> tail_problem(const TailTrace& trace) {
  Experiment experiment;
  experiment.algorithm = "grpo";
  experiment.actor = kTailModel;
  experiment.gpu = kTailGpu;
  experiment.nodes = trace.replicas / experiment.devices_per_node;
  experiment.prompts = trace.samples;
  experiment.minibatches = 1;
  experiment.prompt_tokens = kTailPrompt;
  experiment.response.kind = LengthDistribution::Kind::kLognormal;
  experiment.response.sigma = trace.sigma;
  experiment.response.mean =
      static_cast<double>(trace.median) * std::exp(trace.sigma * trace.sigma / 2);
  experiment.response.longest = trace.longest;
  return make_experiment(experiment);
}

ExecutionPlan tail_plan(const TailTrace& trace, const PlanningProblem& problem) {
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    CallPlan entry{call.name, whole_cluster(problem.cluster), {}};
    Strategy& s = entry.strategy;
    if (call.kind == CallKind::kInfer) s.tp = trace.score_tp;
    s.dp = trace.replicas / s.tp;
    if (call.kind != CallKind::kGenerate) s.micro_tokens = kTailScoreTokens;
    if (call.kind == CallKind::kTrainStep) s.zero_stage = 3;
    plan.calls.push_back(std::move(entry));
  }
  plan.fusion.migrate_below_samples = kAutoMigration;
  return plan;
}

// What was timed: a round of decoding takes as long for any batch up to saturation, and then in
// proportion; a token of a forward always as long.
Calibration tail_prices(const TailTrace& trace, double token_s) {
  const ModelSize model = *find_model(kTailModel);
  const auto layers = static_cast<double>(model.layers);
  Profile profile;
  profile.gpu = *find_gpu(kTailGpu);
  profile.precision = Precision::kBf16;
  profile.engine = "braid";
  profile.efficiencies = {{"rl_step_host_s", 1e-9}};
  const auto saturated = static_cast<double>(trace.saturation);
  const std::string shape = layer_shape(model);
  const auto add = [&](ProfileOp op, double tokens, double seconds) {
    profile.layers.push_back({op, shape, 1, tokens, 0, seconds});
  };
  add(ProfileOp::kLayerDecode, saturated, (1 - kHeadShare) * kRoundS / layers);
  add(ProfileOp::kHeadForward, saturated, kHeadShare * kRoundS);
  add(ProfileOp::kLayerForward, 1, token_s / layers);
  add(ProfileOp::kLayerForward, 2, 2 * token_s / layers);
  Calibration out = committed_calibration();
  out.profiles = {profile};
  return out;
}

// One response of the longest length on each replica, and all work on all replicas alike: every
// round of decoding with a saturated batch.
Status add_bounds(const TailTrace& trace, PlanningProblem problem, ExecutionPlan plan,
                  const Calibration& prices, TailTimes* out) {
  const SampleLengths lengths = draw_lengths(problem.workload, 0);
  const auto longest = *std::max_element(lengths.response.begin(), lengths.response.end());
  const auto tokens = static_cast<double>(
      std::accumulate(lengths.response.begin(), lengths.response.end(), int64_t{0}));
  problem.workload.prompts = trace.replicas;
  problem.workload.response = fixed_length(longest);
  plan.fusion = {};
  BRAID_ASSIGN(const Verdict alone, simulate_plan(plan, problem, prices, {}));
  out->longest_s = alone.call_s[0];
  const double round_s = out->longest_s / static_cast<double>(longest);
  out->work_s =
      tokens * round_s / static_cast<double>(trace.saturation * trace.replicas) + out->score_s;
  return ok_status();
}

}  // namespace

Result<TailTimes> run_tail(const TailTrace& trace) {
  BRAID_ASSIGN(const PlanningProblem problem, tail_problem(trace));
  const ExecutionPlan plan = tail_plan(trace, problem);
  SimulationOptions options;
  options.idle_calls = {"update_actor"};
  // The price of a token with which scoring takes its share.
  constexpr int kFits = 3;
  double token_s = 1e-4;
  TailTimes out;
  for (int fit = 0; fit <= kFits; ++fit) {
    ExecutionPlan apart = plan;
    apart.fusion = {};
    BRAID_ASSIGN(const DetailedVerdict verdict,
                 simulate_plan_in_detail(apart, problem, tail_prices(trace, token_s), options));
    out.generate_s = verdict.verdict.call_s[0], out.score_s = verdict.verdict.call_s[1];
    if (fit < kFits) token_s *= trace.scoring * out.generate_s / out.score_s;
  }
  BRAID_ASSIGN(const MigrationProposal proposal,
               propose_migration(plan, problem, tail_prices(trace, token_s), options));
  const MigrationPoint& apart = proposal.curve.front();
  const double begin_s = apart.generated_s - out.generate_s;
  out.score_s = apart.scored_s - apart.generated_s;
  out.fused_s = proposal.chosen.scored_s - begin_s;
  out.generate_fused_s = proposal.chosen.generated_s - begin_s;
  out.chosen = proposal.plan.fusion;
  ExecutionPlan ahead = plan;
  ahead.fusion.scored_prefixes = true;
  BRAID_ASSIGN(const MigrationProposal begun,
               propose_migration(ahead, problem, tail_prices(trace, token_s), options));
  out.begun_s = begun.chosen.scored_s - begin_s;
  out.begun = begun.plan.fusion;
  BRAID_TRY(add_bounds(trace, problem, plan, tail_prices(trace, token_s), &out));
  return out;
}

}  // namespace braid::reproduce
