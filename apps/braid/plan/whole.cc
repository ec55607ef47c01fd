#include "braid/plan/whole.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "braid/plan/diff.h"
#include "plan/executable.h"
#include "plan/plan_text.h"
#include "search/judge.h"

namespace braid {
namespace {

double percent_less(double seconds, double than_s) {
  return std::round(1000 * (1 - seconds / than_s)) / 10;
}

}  // namespace

Result<WholeProposal> propose_whole(const PlanArguments& arguments, const Planning& planning) {
  WholeOptions options;
  options.space.margin = planning.found.margin;
  if (arguments.keep) {
    BRAID_ASSIGN(options.space, keeping(planning.constraints, std::move(options.space)));
  }
  options.search.seed = arguments.seed;
  options.search.margin = planning.found.margin;
  options.search.units = unit_options(arguments.limits, Stopwatch(), HUGE_VAL);
  options.search.units.max_units = std::max<int64_t>(1, planning.found.units);
  options.parts.staleness = planning.staleness;
  options.judge = planning.judge;
  WholeProposal out;
  BRAID_ASSIGN(out.found,
               search_whole(planning.problem, *planning.pricer, planning.calibration, options));
  out.without_s = std::min(planning.found.verdict->step_s, out.found.plain.verdict.step_s);
  // The search above it has found a better plan without any of it.
  if (planning.found.verdict->step_s < out.found.best.verdict.step_s)
    out.found.best = {planning.found.plan, *planning.found.verdict};
  out.bound_s = 1e-6 * static_cast<double>(whole_bound_us(planning.space, options.parts));
  return out;
}

const ExecutionPlan& proposed_plan(const Planning& planning, const WholeProposal* whole) {
  return whole != nullptr && whole->wins() ? whole->found.best.plan : planning.found.plan;
}

std::string whole_text(const Planning& planning, const WholeProposal& whole) {
  const JudgedPlan& best = whole.found.best;
  const std::string parts = parts_text(best.plan);
  if (!whole.wins())
    return cat("whole search   nothing that a plan may say beside layouts saves 1 % of a step (",
               parts.empty()
                   ? "none of it saves anything"
                   : cat("the best: ", format_seconds(best.verdict.step_s), " with ", parts),
               "; ", whole.found.tried, " plans were simulated)\n");
  std::string out =
      cat("whole search   ", format_seconds(best.verdict.step_s), " a step (",
          format_double(percent_less(best.verdict.step_s, whole.without_s)), " % less) with ",
          parts, ", peak memory ", format_bytes(best.verdict.peak_bytes),
          "\n               no plan takes less than ", format_seconds(whole.bound_s), " (gap ",
          format_double(percent_less(whole.bound_s, best.verdict.step_s)), " %)\n");
  for (const std::string& line : diff(planning.found.plan, best.plan)) out += cat("  ", line, "\n");
  if (const Status trains = check_executable(best.plan, planning.problem.graph); !trains.ok())
    out += cat("  train: ", trains.message(), "\n");
  return out;
}

OrderedJson whole_json(const Planning& planning, const WholeProposal& whole) {
  const JudgedPlan& best = whole.found.best;
  const Status trains = check_executable(best.plan, planning.problem.graph);
  OrderedJson out = {{"step_s", best.verdict.step_s},  {"without_s", whole.without_s},
                     {"lower_bound_s", whole.bound_s}, {"pays", whole.wins()},
                     {"parts", parts_text(best.plan)}, {"peak_gib", best.verdict.peak_bytes / kGib},
                     {"tried", whole.found.tried},     {"executable", trains.ok()},
                     {"plan", plan_json(best.plan)}};
  if (!trains.ok()) out["not_executable"] = trains.message();
  return out;
}

}  // namespace braid
