#include "advise/planning.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "advise/no_plan.h"
#include "advise/whole_plan.h"
#include "plan/executable.h"
#include "search/judge.h"

namespace braid::inline advise {
namespace {

using optimize::Stopwatch;

constexpr int kFirstUnits = 4;           // of a search whose first one finds no plan
constexpr double kShareOfLayouts = 0.5;  // of the time limit, where parts are searched too
constexpr double kQuickSpace = 0.1;  // of it, for the options: else the parts wait for what is left
constexpr double kMostJudging = 0.6;     // of the time limit
constexpr double kPlansOfPolish = 60;    // judged, as a rule
constexpr double kSlowerTogether = 1.3;  // judging on several threads that share memory

// What a search needs besides its units, as far as a first one tells.
struct Needs {
  double judging_s = 0;
  // However short the time, a few descents are made: a search without them has no plan.
  int least_units = kFirstUnits;
  int64_t judged = SearchOptions().judged;
};

// Of the search without parts, of which the options have been priced in `spent_s`.
double layouts_limit_s(const PlanRequest& request, const PlanningProblem& problem, double spent_s) {
  const double limit_s = request.limits.limit_s();
  const bool shares = searches_parts(request, problem) && spent_s < kQuickSpace * limit_s;
  return limit_s * (shares ? kShareOfLayouts : 1);
}

// Stops the search when what is left of the time limit is needed for judging.
SearchOptions search_options(const PlanRequest& request, const Stopwatch& watch, double limit_s,
                             const Needs& needs) {
  SearchOptions options;
  options.seed = request.seed;
  options.judged = needs.judged;
  options.margin = request.margin_percent / 100;
  options.simpler = request.simpler_percent / 100;
  options.units =
      unit_options(request.limits, watch,
                   limit_s - std::min(needs.judging_s, kMostJudging * limit_s), needs.least_units);
  if (!request.limits.counts_units())
    options.late = [watch, limit_s](double share) { return watch.elapsed_s() >= share * limit_s; };
  return options;
}

// From one descent, and from the time that judging its plan takes: fewer plans are judged where the
// time limit is short for that. A number of units leaves their number alone.
Needs needs_of_search(const PlanRequest& request, Planning& planning, const Stopwatch& watch,
                      double limit_s) {
  SearchOptions options = search_options(request, watch, limit_s, {});
  options.units.max_units = 1;
  const auto first = search_plans(planning.space, options);
  if (!first.ok()) return {};
  const Stopwatch one_plan = watch.anew();
  if (!planning.judge(first->plan).ok()) return {};
  const double one_s = kSlowerTogether * one_plan.elapsed_s() / options.units.threads;
  Needs needs;
  needs.least_units = 1;
  if (!request.limits.counts_units())
    needs.judged = static_cast<int64_t>(
        std::clamp(kMostJudging * limit_s / one_s, 1.0, static_cast<double>(needs.judged)));
  needs.judging_s = one_s * (kPlansOfPolish + static_cast<double>(needs.judged));
  return needs;
}

// A plan without parts that the search for parts found, where it is faster than those before: in
// place of the proposed one, or behind it where that is simpler.
Status take_faster(const JudgedPlan& plain, double simpler, Planning& planning) {
  Found& found = planning.found;
  const Verdict& fastest = found.faster ? found.faster->verdict : *found.verdict;
  if (plain.verdict.step_s >= fastest.step_s) return ok_status();
  if (found.verdict->step_s <= (1 + simpler) * plain.verdict.step_s) {
    found.faster = plain;
  } else {
    found.plan = plain.plan;
    found.verdict = plain.verdict;
    found.faster.reset();
    BRAID_ASSIGN(found.choice, include_plan(planning.space, found.plan));
    found.cost = evaluate(planning.space, assignment_of(planning.space, found.choice));
  }
  found.proven = static_cast<double>(found.lower_bound_us) >=
                 kProvenShare * static_cast<double>(to_us(found.verdict->step_s));
  return ok_status();
}

Status search_plan(const PlanRequest& request, Planning& planning) {
  const Stopwatch watch(request.clock);
  planning.watch = watch;
  planning.judge = remembering(simulator_judge(planning.problem, planning.calibration));
  SpaceOptions options;
  options.margin = request.margin_percent / 100;
  if (request.keep) {
    BRAID_ASSIGN(options, keeping(planning.constraints, std::move(options)));
  }
  options.threads = unit_options(request.limits, watch, 0).threads;
  BRAID_ASSIGN(planning.space, make_plan_space(planning.problem, *planning.pricer, options));
  const double limit_s = layouts_limit_s(request, planning.problem, watch.elapsed_s());
  const Needs needs = needs_of_search(request, planning, watch, limit_s);
  BRAID_ASSIGN(
      planning.found,
      search_plans(planning.space, search_options(request, watch, limit_s, needs), planning.judge));
  planning.seconds = watch.elapsed_s();
  if (searches_parts(request, planning.problem)) {
    BRAID_ASSIGN(planning.whole, propose_whole(request, planning, watch));
    BRAID_TRY(take_faster(planning.whole->found.plain, request.simpler_percent / 100, planning));
  }
  planning.proposed = {planning.found.plan, *planning.found.verdict};
  if (planning.whole && planning.whole->wins()) planning.proposed = planning.whole->found.best;
  BRAID_ASSIGN(planning.detailed, simulate_plan_in_detail(planning.proposed.plan, planning.problem,
                                                          planning.calibration));
  return ok_status();
}

}  // namespace

Status find_plan(const PlanRequest& request, Planning& planning) {
  const Status status = search_plan(request, planning);
  return status.ok() ? status : with_smallest_cluster(status, planning, request.keep);
}

double host_s(const Planning& planning) {
  return static_cast<double>(planning.space.fixed_us) / 1e6;
}

double spare_bytes(const Verdict& verdict) { return verdict.capacity_bytes - verdict.peak_bytes; }

std::optional<std::pair<double, double>> step_interval(const Planning& planning) {
  for (const Node& node : planning.problem.cluster.nodes)
    if (!node.profile.empty() || node.gpu.architecture == "cpu") return std::nullopt;
  const auto half = interval_half_width(
      planning.calibration, generates(planning.problem.graph) ? "rl_step" : "train_step",
      engine_is_known(planning.calibration, planning.problem.train_engine));
  if (!half) return std::nullopt;
  const double step_s = planning.proposed.verdict.step_s;
  return std::pair(step_s * std::exp(-*half), step_s * std::exp(*half));
}

Status executable(const Planning& planning) {
  return check_executable(planning.proposed.plan, planning.problem.graph);
}

}  // namespace braid::inline advise
