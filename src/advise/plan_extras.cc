#include "advise/plan_extras.h"

#include <utility>

#include "advise/gain.h"
#include "advise/whole_plan.h"
#include "search/judge.h"

namespace braid::inline advise {
namespace {

constexpr int kNextBest = 3;

Result<std::optional<GivenPlan>> judge_given(const Planning& planning) {
  if (!planning.given) return std::optional<GivenPlan>();
  BRAID_ASSIGN(const Verdict verdict, planning.judge(*planning.given));
  const double best_s = planning.proposed.verdict.step_s;
  return std::optional<GivenPlan>(
      GivenPlan{verdict, verdict.fits && nothing_to_gain(verdict.step_s, best_s)});
}

std::vector<CompareRow> compare(const Planning& planning) {
  std::vector<CompareRow> rows = {
      {"braid", "this search", planning.proposed.plan, planning.proposed.verdict, {}}};
  if (planning.given) {
    CompareRow row{"configuration", "as configured", planning.given, {}, {}};
    const auto verdict = planning.judge(*planning.given);
    if (verdict.ok()) row.verdict = *verdict;
    if (!verdict.ok()) row.reason = verdict.status().message();
    rows.push_back(std::move(row));
  }
  const auto others = compare_baselines(planning.problem, *planning.pricer, planning.judge);
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

Status fuse_training(const PlanRequest& request, const Planning& planning, PlanExtras& extras) {
  if (!request.explain && !request.fuses) return ok_status();
  FusionOptions options;
  options.margin = planning.found.margin;
  if (request.keep)
    options.allowed = [&planning](const CallPlan& entry) {
      return keeps(entry, planning.constraints);
    };
  BRAID_ASSIGN(extras.fusion,
               propose_fusion(planning.problem, planning.found.plan, planning.found.verdict->step_s,
                              planning.judge, options));
  return ok_status();
}

// What a part that no search chose would gain.
void add_gains(const Planning& planning, PlanExtras& extras) {
  const ExecutionPlan& plan = planning.found.plan;
  if (generates(planning.problem.graph)) {
    extras.migration = propose_migration(plan, planning.problem, planning.calibration);
    extras.predicted = predicted_gain(plan, planning.problem, planning.calibration);
  }
  extras.early_update = early_update_gain(plan, planning.problem, planning.calibration);
}

}  // namespace

Status add_extras(const PlanRequest& request, const Planning& planning, PlanExtras& extras) {
  BRAID_ASSIGN(extras.given, judge_given(planning));
  if (request.compare) extras.rows = compare(planning);
  if (request.explain) {
    BRAID_ASSIGN(extras.explanations,
                 explain(planning.space, planning.found.choice, *planning.found.verdict, kNextBest,
                         planning.calibration));
  }
  extras.beyond = beyond_train(request, planning);
  BRAID_TRY(fuse_training(request, planning, extras));
  BRAID_ASSIGN(extras.ahead, rollouts_ahead(request, planning));
  if (request.explain) add_gains(planning, extras);
  if (request.export_to.empty()) return ok_status();
  BRAID_ASSIGN(extras.exported,
               exported_text(request.export_to, planning.problem, planning.found.plan));
  return ok_status();
}

}  // namespace braid::inline advise
