#include "fused.h"

#include <algorithm>
#include <utility>

#include "fuse/fuse.h"
#include "plan/validate.h"
#include "program/program.h"
#include "schedule/schedule.h"
#include "sim/simulate.h"

namespace braid::reproduce {
namespace {

constexpr int kNodes = 32, kDevices = 8 * kNodes;
constexpr int64_t kBatch = 512, kMiniBatch = 64, kFusedPrompt = 128;
constexpr double kNicGbps = 200;  // of each device, as published

double parameters_of(const std::string& model) {
  return static_cast<double>(total_params(*find_model(model)));
}

// One micro-batch holds one sequence, as many as a replica has of a mini-batch.
Strategy fused_training(int tp, int pp) {
  Strategy s;
  s.tp = tp, s.pp = pp, s.dp = kDevices / (tp * pp);
  s.zero_stage = s.dp > 1 ? 1 : 0;
  s.sequence_parallel = tp > 1;
  s.micro_batches = std::max<int64_t>(1, kMiniBatch / s.dp);
  return s;
}

// Stages of the small model on the large one's nodes: copies follow each other along the nodes of a
// replica of the large model, and lie side by side within a node.
DeviceMesh opposite(const Strategy& large, const Strategy& small) {
  const int copies = large.pp / small.pp, sides = large.tp / small.tp;
  DeviceMesh mesh;
  for (int stage = 0; stage < small.pp; ++stage)
    for (int group = 0; group < large.dp; ++group)
      for (int copy = 0; copy < copies; ++copy)
        for (int side = 0; side < sides; ++side)
          for (int rank = 0; rank < small.tp; ++rank) {
            const int node = copy * small.pp + small.pp - 1 - stage;
            mesh.devices.push_back(
                DeviceId{(node * large.dp + group) * large.tp + side * small.tp + rank});
          }
  return mesh;
}

Result<Trace> simulated(const ExecutionPlan& plan, const PlanningProblem& problem,
                        const Calibration& calibration, Program* program) {
  BRAID_ASSIGN(*program, compile(plan, problem));
  return simulate(*program, problem, calibration, {});
}

double span(const Trace& trace, const PlanningProblem& problem) {
  double first = trace.step_s, last = 0;
  for (const CallSummary& call : trace.calls) {
    if (problem.graph.calls[call.call.value].kind != CallKind::kTrainStep) continue;
    first = std::min(first, call.start_s), last = std::max(last, call.end_s);
  }
  return last - first;
}

// The pipelines of one problem, each by 1F1B, one after the other.
double one_after_the_other(const FusedCalls& fused) {
  double sum = 0;
  std::vector<std::string> seen;
  for (const Pipeline& pipeline : fused.problem.pipelines) {
    if (std::find(seen.begin(), seen.end(), pipeline.name) != seen.end()) continue;
    seen.push_back(pipeline.name);
    sum += replay(one_f_one_b(pipeline.num_stages(), pipeline.micro_batches),
                  [&](const ScheduleOp& op) {
                    return op.kind == ScheduleOp::Kind::kForward ? pipeline.forward[op.stage]
                                                                 : pipeline.backward[op.stage];
                  })
               .makespan;
  }
  return sum;
}

}  // namespace

// Sizes and pipelines of the paper's training experiments; 33B is llama-30b, whose 52 heads allow
// tp 4.
std::vector<FusedRow> fused_rows() {
  const int64_t units = Fusion().units;
  std::vector<FusedRow> out;
  for (const int64_t response : {512, 1024, 2048}) {
    out.push_back({"llama-13b", "llama-30b", 4, 8, 4, 4, response, units});
    out.push_back({"llama-30b", "llama-13b", 4, 8, 4, 4, response, units});
    out.push_back({"llama-30b", "llama-65b", 8, 16, 4, 8, response, units});
    out.push_back({"llama-65b", "llama-30b", 8, 16, 4, 8, response, units});
  }
  return out;
}

Experiment paper_experiment(const FusedRow& row, const LengthDistribution& response,
                            int64_t minibatch) {
  Experiment experiment;
  experiment.actor = row.actor, experiment.critic = row.critic, experiment.gpu = "h800";
  experiment.nodes = kNodes, experiment.nic_gbps_per_gpu = kNicGbps;
  experiment.prompts = kBatch, experiment.minibatches = kBatch / minibatch;
  experiment.prompt_tokens = kFusedPrompt;
  experiment.response = response;
  return experiment;
}

ExecutionPlan paper_plan(const FusedRow& row, const PlanningProblem& problem,
                         const std::function<Strategy(const Call&)>& others) {
  const Strategy large = fused_training(row.large_tp, row.large_pp);
  const Strategy small = fused_training(row.small_tp, row.small_pp);
  const DeviceMesh all = whole_cluster(problem.cluster), reverse = opposite(large, small);
  const bool large_actor = parameters_of(row.actor) > parameters_of(row.critic);
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    CallPlan entry{call.name, all, {}};
    if (call.kind == CallKind::kTrainStep) {
      const bool is_large = (call.name == "update_actor") == large_actor;
      entry.mesh = is_large ? all : reverse;
      entry.strategy = is_large ? large : small;
    } else {
      entry.strategy = others(call);
    }
    plan.calls.push_back(std::move(entry));
  }
  return plan;
}

Result<FusedSetting> fused_setting(const FusedRow& row) {
  FusedSetting out;
  BRAID_ASSIGN(out.problem,
               make_experiment(paper_experiment(row, fixed_length(row.response_tokens))));
  out.plan = paper_plan(row, out.problem, [&](const Call&) {
    Strategy strategy;
    strategy.tp = std::min(row.large_tp, row.small_tp);
    strategy.dp = kDevices / strategy.tp;
    return strategy;
  });
  out.plan.fusion.train_schedules = true;
  out.plan.fusion.units = row.units;
  return out;
}

Result<FusedTimes> run_fused(const FusedRow& row, const Calibration& calibration) {
  BRAID_ASSIGN(FusedSetting setting, fused_setting(row));
  FusedTimes out;
  Program program;
  BRAID_ASSIGN(const Trace together,
               simulated(setting.plan, setting.problem, calibration, &program));
  const FusedCalls fused = program.fused.front();
  const Fusion fusion = std::exchange(setting.plan.fusion, {});
  BRAID_ASSIGN(const Trace apart, simulated(setting.plan, setting.problem, calibration, &program));
  out.together_s = span(together, setting.problem), out.apart_s = span(apart, setting.problem);
  for (const CallSummary& call : apart.calls) {
    const std::string& name = setting.problem.graph.calls[call.call.value].name;
    if (name == "update_actor") out.actor_s = call.seconds();
    if (name == "update_critic") out.critic_s = call.seconds();
  }
  FuseOptions options;
  options.objective = FuseObjective::kMemory;
  options.seed = fusion.seed;
  options.units.max_units = fusion.units;
  BRAID_ASSIGN(const FuseResult passes, fuse_pipelines(fused.problem, options));
  out.passes_apart = one_after_the_other(fused);
  out.passes_together = passes.makespan, out.passes_bound = passes.lower_bound;
  return out;
}

}  // namespace braid::reproduce
