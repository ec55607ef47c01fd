#include "stages.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "foreign/baselines/baselines.h"
#include "pricing/rl_engine.h"
#include "program/program.h"
#include "real.h"
#include "search/migration.h"
#include "sim/simulate.h"

namespace braid::reproduce {
namespace {

constexpr int64_t kStageScoreTokens = 8192;  // of a micro-batch
constexpr int kStageSizes[] = {1, 2, 4, 8};  // tensor parallelism

struct StagesSetting {
  PlanningProblem problem;
  Calibration calibration;
};

Result<StagesSetting> stages_setting(const FusedRow& row, const StagesInputs& inputs,
                                     int64_t minibatch) {
  LengthDistribution response;
  response.kind = LengthDistribution::Kind::kLognormal;
  response.sigma = inputs.sigma;
  response.longest = row.response_tokens;
  // Of a lognormal: mean over median.
  response.mean = inputs.median_share * static_cast<double>(row.response_tokens) *
                  std::exp(inputs.sigma * inputs.sigma / 2);
  Experiment experiment = paper_experiment(row, response, minibatch);
  experiment.score_calls = true;
  StagesSetting out{{}, committed_calibration()};
  BRAID_ASSIGN(out.problem, make_experiment(experiment));
  if (!inputs.constants.empty())
    out.calibration = with_constants(out.calibration, experiment.gpu, inputs.constants);
  return out;
}

// Training calls that are priced apart where only generation and scoring are looked at.
std::set<std::string> updates_of(const Graph& graph) {
  std::set<std::string> out;
  for (const Call& call : graph.calls)
    if (call.kind == CallKind::kTrainStep) out.insert(call.name);
  return out;
}

Result<StageTimes> times_of(const ExecutionPlan& plan, const StagesSetting& setting) {
  BRAID_ASSIGN(const Program program, compile(plan, setting.problem));
  BRAID_ASSIGN(const Trace trace, simulate(program, setting.problem, setting.calibration, {}));
  BRAID_TRY(check_memory(trace));
  StageTimes out;
  double begin_s = trace.step_s, train_s = trace.step_s;
  for (const CallSummary& call : trace.calls) {
    const CallKind kind = setting.problem.graph.calls[call.call.value].kind;
    if (kind == CallKind::kGenerate) begin_s = call.start_s, out.generate_s = call.seconds();
    if (kind == CallKind::kInfer) out.rollout_s = std::max(out.rollout_s, call.end_s);
    if (kind == CallKind::kTrainStep) {
      train_s = std::min(train_s, call.start_s);
      out.train_s = std::max(out.train_s, call.end_s);
    }
  }
  out.rollout_s -= begin_s, out.train_s -= train_s, out.step_s = trace.step_s;
  return out;
}

ExecutionPlan plan_with(const FusedRow& row, const StagesSetting& setting, int generate_tp,
                        int score_tp) {
  ExecutionPlan plan = paper_plan(row, setting.problem, [&](const Call& call) {
    const bool generates = call.kind == CallKind::kGenerate;
    Strategy strategy;
    strategy.tp = generates ? generate_tp : score_tp;
    strategy.dp = device_count(setting.problem.cluster) / strategy.tp;
    if (!generates) {
      strategy.micro_tokens = kStageScoreTokens;
      strategy.sequence_parallel = strategy.tp > 1;
    }
    return strategy;
  });
  // Frozen weights wait in host memory, as in the paper.
  for (const RoleSpec& role : setting.problem.graph.roles) {
    if (role.trained) continue;
    plan.roles.push_back({role.role});
    plan.roles.back().weights = Residency::kHost;
  }
  return plan;
}

// The layouts with which generation and scoring take least, one after the other.
Result<StagesResult> fastest_base(const FusedRow& row, const StagesSetting& setting) {
  std::optional<double> best;
  StagesResult out;
  Status last = invalid_input("no layout");
  SimulationOptions options;
  options.idle_calls = updates_of(setting.problem.graph);
  for (const int generate_tp : kStageSizes)
    for (const int score_tp : kStageSizes) {
      const ExecutionPlan plan = plan_with(row, setting, generate_tp, score_tp);
      const auto verdict = simulate_plan(plan, setting.problem, setting.calibration, options);
      if (!verdict.ok()) last = verdict.status();
      if (!verdict.ok() || !verdict->fits || (best && verdict->step_s >= *best)) continue;
      best = verdict->step_s;
      out.plan = plan, out.generate_tp = generate_tp, out.score_tp = score_tp;
    }
  if (!best) return last;
  return out;
}

// Raises the price of scoring until it takes its share of the generation's time.
Status stretch_scoring(double share, const GpuSpec& gpu, StagesSetting* setting,
                       StagesResult* out) {
  constexpr int kFits = 4;
  const double factor =
      resolve_efficiency(setting->calibration, efficiency_key(gpu, Precision::kBf16, ""))
          .rl_infer_factor;
  const Calibration committed = setting->calibration;
  for (int fit = 0; fit < kFits; ++fit) {
    BRAID_ASSIGN(const StageTimes now, times_of(out->plan, *setting));
    out->infer_factor *= share * now.generate_s / (now.rollout_s - now.generate_s);
    setting->calibration =
        with_constants(committed, gpu.key, {{"rl_infer_factor", factor * out->infer_factor}});
  }
  return ok_status();
}

}  // namespace

StagesInputs tailed_lengths() {
  constexpr double kSigmasAbove = 3.0902;  // of the 99.9th percentile
  return {std::log(10.0) / kSigmasAbove, 0.1};
}

Result<StagesResult> run_stages(const FusedRow& row, const StagesInputs& inputs) {
  BRAID_ASSIGN(StagesSetting setting, stages_setting(row, inputs, kPublishedMiniBatch));
  BRAID_ASSIGN(StagesResult out, fastest_base(row, setting));
  if (inputs.scoring_share > 0)
    BRAID_TRY(stretch_scoring(inputs.scoring_share, setting.problem.cluster.nodes.front().gpu,
                              &setting, &out));
  BRAID_ASSIGN(out.base, times_of(out.plan, setting));
  ExecutionPlan fused = out.plan;
  fused.fusion.train_schedules = true, fused.fusion.units = row.units;
  BRAID_ASSIGN(out.fused, times_of(fused, setting));
  SimulationOptions options;
  options.idle_calls = updates_of(setting.problem.graph);
  BRAID_ASSIGN(const MigrationProposal proposal,
               propose_migration(out.plan, setting.problem, setting.calibration, options));
  BRAID_ASSIGN(out.handed, times_of(proposal.plan, setting));
  fused.fusion.migrate_below_samples = proposal.plan.fusion.migrate_below_samples;
  fused.fusion.migrate_to_samples = proposal.plan.fusion.migrate_to_samples;
  fused.fusion.migrate_cache = proposal.plan.fusion.migrate_cache;
  BRAID_ASSIGN(out.both, times_of(fused, setting));
  out.plan = std::move(fused);
  return out;
}

Result<PlannedStep> deepspeed_step(const FusedRow& row, const StagesInputs& inputs,
                                   int64_t minibatch) {
  BRAID_ASSIGN(const StagesSetting setting, stages_setting(row, inputs, minibatch));
  BRAID_ASSIGN(ExecutionPlan plan, deepspeed_chat_plan(setting.problem));
  BRAID_ASSIGN(Verdict verdict, simulate_plan(plan, setting.problem, setting.calibration, {}));
  return PlannedStep{std::move(plan), std::move(verdict)};
}

Result<PlannedStep> real_step(const FusedRow& row, const StagesInputs& inputs,
                              const PlanLimits& limits) {
  BRAID_ASSIGN(const StagesSetting setting, stages_setting(row, inputs, kPublishedMiniBatch));
  PlanLimits published = limits;
  published.allowed = in_published_space;
  return best_plan(setting.problem, setting.calibration, published);
}

}  // namespace braid::reproduce
