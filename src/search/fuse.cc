#include "search/fuse.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline search {
namespace {

// Of the pipelines that are judged one update after the other, the fastest are varied.
constexpr size_t kVaried = 4;

std::string percent(double share) { return format_double(std::round(1000 * share) / 10); }

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

ExecutionPlan with_fused_training(ExecutionPlan plan, int64_t units) {
  plan.fusion.train_schedules = true;
  plan.fusion.units = units;
  return plan;
}

struct PipelineSizes {
  int tp = 1, pp = 1, interleave = 1;
  int64_t waves = 1;       // micro-batches over stages
  bool recompute = false;  // in full; else as the plan has it
};

Strategy in_pipelines(const Strategy& from, const PipelineSizes& sizes, size_t devices) {
  Strategy s;
  s.tp = sizes.tp, s.pp = sizes.pp, s.interleave = sizes.interleave;
  s.dp = std::max(1, static_cast<int>(devices) / (sizes.tp * sizes.pp));
  s.zero_stage = s.dp > 1 ? 1 : 0;
  s.sequence_parallel = sizes.tp > 1;
  s.recompute = sizes.recompute ? Recompute::kFull : from.recompute;
  s.precision = from.precision;
  s.micro_batches = sizes.waves * sizes.pp;
  return s;
}

class FusionSearch {
 public:
  FusionSearch(const PlanningProblem& problem, const ExecutionPlan& plan, const Judge& judge,
               const FusionOptions& options)
      : problem_(problem),
        plan_(plan),
        judge_(judge),
        options_(options),
        trains_(train_calls(problem.graph)) {}

  Result<FusionProposal> run(double step_s) {
    proposal_.step_s = step_s;
    BRAID_ASSIGN(std::vector<ExecutionPlan> candidates, fastest_pipelines());
    if (std::optional<ExecutionPlan> same = as_it_is()) candidates.push_back(std::move(*same));
    for (const ExecutionPlan& candidate : candidates)
      BRAID_TRY(fuse_updates(candidate, options_.trial_units));
    if (proposal_.wins()) {
      const ExecutionPlan best = proposal_.fused->plan;
      BRAID_TRY(fuse_updates(best, options_.units));
    }
    return std::move(proposal_);
  }

 private:
  // None: the plan is not legal, not allowed, does not fit, or the judge refuses it by its input.
  Result<std::optional<Verdict>> verdict_on(const ExecutionPlan& plan, const Judge& judge) {
    std::optional<Verdict> none;
    if ((options_.stop && options_.stop()) || !validate(plan, problem_).ok()) return none;
    for (const CallPlan& call : plan.calls)
      if (options_.allowed && !options_.allowed(call)) return none;
    ++proposal_.judged;
    Result<Verdict> verdict = judge(plan);
    if (verdict.status().code() == Code::kInvalidInput) return none;
    BRAID_TRY(verdict.status());
    if (!leaves(*verdict, options_.margin)) return none;
    return std::optional<Verdict>(std::move(*verdict));
  }

  Status fuse_updates(const ExecutionPlan& candidate, int64_t units) {
    ExecutionPlan plan = with_fused_training(candidate, units);
    BRAID_ASSIGN(std::optional<Verdict> verdict, verdict_on(plan, judge_));
    if (verdict && (!proposal_.fused || verdict->step_s <= proposal_.fused->verdict.step_s))
      proposal_.fused = {std::move(plan), std::move(*verdict)};
    return ok_status();
  }

  // The plan itself where both updates have the same devices and one of them stages.
  std::optional<ExecutionPlan> as_it_is() const {
    ExecutionPlan same = plan_;
    const CallPlan& first = training_entry(same, trains_[0]);
    const CallPlan& second = training_entry(same, trains_[1]);
    if (sorted_devices(first) != sorted_devices(second)) return std::nullopt;
    if (std::max(first.strategy.pp, second.strategy.pp) < 2) return std::nullopt;
    return facing_updates(std::move(same), problem_.graph);
  }

  // Both training calls in pipelines on the devices of both, one against the other.
  ExecutionPlan with_pipelines(const PipelineSizes& sizes) const {
    ExecutionPlan plan = plan_;
    CallPlan& first = training_entry(plan, trains_[0]);
    CallPlan& second = training_entry(plan, trains_[1]);
    DeviceMesh all{sorted_devices(first)};
    const std::vector<DeviceId> others = sorted_devices(second);
    all.devices.insert(all.devices.end(), others.begin(), others.end());
    std::sort(all.devices.begin(), all.devices.end());
    all.devices.erase(std::unique(all.devices.begin(), all.devices.end()), all.devices.end());
    first.strategy = in_pipelines(first.strategy, sizes, all.devices.size());
    second.strategy = in_pipelines(second.strategy, sizes, all.devices.size());
    first.mesh = all;
    second.mesh = reversed_stages(all, sizes.pp);
    return plan;
  }

  // Pipelines that were judged one update after the other.
  struct Apart {
    PipelineSizes sizes;
    ExecutionPlan plan;
    double step_s = 0;
  };

  // With full recomputation where they do not fit without.
  Status judge_apart(PipelineSizes sizes, std::vector<Apart>& judged) {
    for (const bool recompute : {false, true}) {
      sizes.recompute = recompute;
      ExecutionPlan plan = with_pipelines(sizes);
      BRAID_ASSIGN(const std::optional<Verdict> verdict,
                   verdict_on(plan, options_.apart ? options_.apart : judge_));
      if (!verdict) continue;
      judged.push_back({sizes, std::move(plan), verdict->step_s});
      return ok_status();
    }
    return ok_status();
  }

  static void keep_fastest(std::vector<Apart>& judged, size_t most) {
    std::stable_sort(judged.begin(), judged.end(),
                     [](const Apart& a, const Apart& b) { return a.step_s < b.step_s; });
    judged.resize(std::min(most, judged.size()));
  }

  // The cheap half of the comparison: no order is searched for plans that are slow without one.
  // Stages of one layer each, which an update alone may have, are not tried.
  Result<std::vector<ExecutionPlan>> fastest_pipelines() {
    std::vector<Apart> judged;
    for (const int pp : {2, 4, 8, 16})
      for (const int tp : {1, 2, 4, 8}) BRAID_TRY(judge_apart({.tp = tp, .pp = pp}, judged));
    keep_fastest(judged, kVaried);
    for (size_t i = 0, count = judged.size(); i < count; ++i)
      for (const int interleave : {1, 2, 4})
        for (const int64_t waves : {1, 2, 4}) {
          PipelineSizes sizes = judged[i].sizes;
          sizes.interleave = interleave, sizes.waves = waves;
          if (interleave > 1 || waves > 1) BRAID_TRY(judge_apart(sizes, judged));
        }
    keep_fastest(judged, options_.fused);
    std::vector<ExecutionPlan> out;
    for (Apart& one : judged) out.push_back(std::move(one.plan));
    return out;
  }

  const PlanningProblem& problem_;
  const ExecutionPlan& plan_;
  const Judge& judge_;
  const FusionOptions& options_;
  const std::vector<std::string> trains_;
  FusionProposal proposal_;
};

}  // namespace

ExecutionPlan facing_updates(ExecutionPlan plan, const Graph& graph) {
  const std::vector<std::string> trains = train_calls(graph);
  if (trains.size() != 2) return plan;
  CallPlan& first = training_entry(plan, trains[0]);
  CallPlan& second = training_entry(plan, trains[1]);
  for (CallPlan* const entry : {&first, &second})  // the fused order takes its place
    entry->strategy.schedule = PipelineOrder::kOneForwardOneBackward;
  if (first.mesh == second.mesh) second.mesh = reversed_stages(second.mesh, second.strategy.pp);
  return plan;
}

Result<std::optional<FusionProposal>> propose_fusion(const PlanningProblem& problem,
                                                     const ExecutionPlan& plan, double step_s,
                                                     const Judge& judge,
                                                     const FusionOptions& options) {
  if (train_calls(problem.graph).size() != 2) return std::optional<FusionProposal>();
  BRAID_ASSIGN(FusionProposal proposal, FusionSearch(problem, plan, judge, options).run(step_s));
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
      cat("fused training: with the passes of both training calls fused the step takes ",
          format_seconds(with_s), ", ", percent(1 - with_s / proposal.step_s), " % less\n");
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
  json["judged"] = proposal.judged;
  return json;
}

}  // namespace braid::inline search
