#include "search/plan_fuse.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::planner {
namespace {

std::string percent(double share) { return format_double(std::round(1000 * share) / 10); }

// Of the search for an order while plans are compared: the first units find nearly all of what
// there is to find.
constexpr int64_t kTrialUnits = 2;

std::vector<std::string> train_calls(const Graph& graph) {
  std::vector<std::string> out;
  for (const Call& call : graph.calls)
    if (call.kind == CallKind::kTrainStep) out.push_back(call.name);
  return out;
}

CallPlan& training_entry(ExecutionPlan& plan, const std::string& name) {
  return *std::find_if(plan.calls.begin(), plan.calls.end(),
                       [&](const CallPlan& call) { return call.call == name; });
}

std::vector<DeviceId> sorted_devices(const CallPlan& call) {
  std::vector<DeviceId> out = call.mesh.devices;
  std::sort(out.begin(), out.end());
  return out;
}

// The last stage first: pipelines that run towards each other leave each other's bubbles free.
DeviceMesh reversed_stages(const DeviceMesh& mesh, int stages) {
  DeviceMesh out;
  const size_t each = mesh.devices.size() / stages;
  for (int stage = stages; stage-- > 0;)
    for (size_t i = 0; i < each; ++i) out.devices.push_back(mesh.devices[stage * each + i]);
  return out;
}

ExecutionPlan fused(ExecutionPlan plan) {
  plan.fusion.train_schedules = true;
  plan.fusion.units = kTrialUnits;
  return plan;
}

// Both training calls in `stages` stages on the devices of both, one against the other.
ExecutionPlan in_pipelines(ExecutionPlan plan, const std::vector<std::string>& trains, int stages,
                           bool recompute) {
  const CallPlan first = training_entry(plan, trains[0]), second = training_entry(plan, trains[1]);
  DeviceMesh all{sorted_devices(first)};
  for (const DeviceId device : second.mesh.devices)
    if (std::find(all.devices.begin(), all.devices.end(), device) == all.devices.end())
      all.devices.push_back(device);
  std::sort(all.devices.begin(), all.devices.end());
  const int tp = std::max(first.strategy.tp, second.strategy.tp);
  for (size_t i = 0; i < trains.size(); ++i) {
    CallPlan& call = training_entry(plan, trains[i]);
    Strategy s;
    s.tp = tp, s.pp = stages;
    s.dp = std::max(1, static_cast<int>(all.devices.size()) / (tp * stages));
    s.zero_stage = s.dp > 1 ? 1 : 0;
    s.sequence_parallel = tp > 1;
    s.recompute = recompute ? Recompute::kFull : call.strategy.recompute;
    s.precision = call.strategy.precision;
    s.micro_batches = int64_t{2} * stages;
    call.strategy = s;
    call.mesh = i == 0 ? all : reversed_stages(all, stages);
  }
  return fused(std::move(plan));
}

// The plan itself where both updates have the same devices and one of them stages, and both in
// pipelines of several lengths.
std::vector<ExecutionPlan> candidates(const ExecutionPlan& plan,
                                      const std::vector<std::string>& trains) {
  std::vector<ExecutionPlan> out;
  ExecutionPlan same = plan;
  const CallPlan first = training_entry(same, trains[0]);
  CallPlan& second = training_entry(same, trains[1]);
  if (sorted_devices(first) == sorted_devices(second)) {
    if (first.mesh == second.mesh) second.mesh = reversed_stages(second.mesh, second.strategy.pp);
    if (std::max(first.strategy.pp, second.strategy.pp) > 1) out.push_back(fused(same));
  }
  for (const int stages : {2, 4, 8})
    for (const bool recompute : {false, true})
      out.push_back(in_pipelines(plan, trains, stages, recompute));
  return out;
}

// The plan with the usual number of units, where that is no longer.
Status search_longer(const Judge& judge, JudgedPlan& fused) {
  ExecutionPlan plan = fused.plan;
  plan.fusion.units = Fusion().units;
  BRAID_ASSIGN(const Verdict verdict, judge(plan));
  if (verdict.fits && verdict.step_s <= fused.verdict.step_s) fused = {std::move(plan), verdict};
  return ok_status();
}

}  // namespace

Result<std::optional<FusionProposal>> propose_fusion(const PlanningProblem& problem,
                                                     const ExecutionPlan& plan, double step_s,
                                                     const Judge& judge) {
  const std::vector<std::string> trains = train_calls(problem.graph);
  if (trains.size() != 2) return std::optional<FusionProposal>();
  FusionProposal proposal{step_s, {}};
  for (ExecutionPlan& candidate : candidates(plan, trains)) {
    if (!validate(candidate, problem).ok()) continue;
    const Result<Verdict> verdict = judge(candidate);
    if (!verdict.ok() || !verdict->fits) continue;  // their stages do not meet alike
    if (!proposal.fused || verdict->step_s < proposal.fused->verdict.step_s)
      proposal.fused = {std::move(candidate), *verdict};
  }
  if (proposal.wins()) BRAID_TRY(search_longer(judge, *proposal.fused));
  return std::optional<FusionProposal>(std::move(proposal));
}

std::string fusion_text(const FusionProposal& proposal, const ExecutionPlan& plan) {
  if (!proposal.fused)
    return "fused training: no plan with pipelines of both training calls fits\n";
  const double with_s = proposal.fused->verdict.step_s;
  if (!proposal.wins())
    return cat("fused training: not proposed; the best plan with it steps in ",
               format_seconds(with_s), ", ", percent(with_s / proposal.step_s - 1), " % longer\n");
  std::string out =
      cat("fused training: with the passes of both training calls woven the step "
          "takes ",
          format_seconds(with_s), ", ", percent(1 - with_s / proposal.step_s),
          " % less (can be simulated, not trained yet)\n");
  for (const std::string& line : diff(plan, proposal.fused->plan)) out += cat("  ", line, "\n");
  return out;
}

OrderedJson fusion_json(const FusionProposal& proposal) {
  OrderedJson json;
  json["step_s_without"] = proposal.step_s;
  json["step_s_with"] =
      proposal.fused ? OrderedJson(proposal.fused->verdict.step_s) : OrderedJson();
  json["wins"] = proposal.wins();
  if (proposal.wins()) json["plan"] = plan_json(proposal.fused->plan);
  return json;
}

}  // namespace braid::planner
