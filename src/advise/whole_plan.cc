#include "advise/whole_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/executable.h"
#include "plan/plan_text.h"
#include "search/judge.h"

namespace braid::inline advise {
namespace {

// Of each search for plans with parts: their judges are slow, and few units find nearly all.
constexpr int64_t kMostUnits = 2;
constexpr int64_t kJudged = 6;
constexpr double kShareOfBeyond = 0.1;  // of the time limit, where all of it has passed

double without_parts_s(const Planning& planning) {
  return static_cast<double>(planning.found.lower_bound_us) / 1e6;
}

bool proposes_parts(const Planning& planning) { return planning.whole && planning.whole->wins(); }

std::vector<std::string> searched_parts(const Planning& planning) {
  return part_names(parts_of(planning.problem, planning.staleness));
}

std::string not_searched(const Planning& planning, const PlanRequest& request) {
  const Graph& graph = planning.problem.graph;
  std::vector<std::string> out;
  const auto leave_out = [&out](const std::vector<std::string>& parts, const std::string& why) {
    if (!parts.empty()) out.push_back(cat(join(parts, ", "), " (", why, ")"));
  };
  std::vector<std::string> left =
      planning.whole ? planning.whole->found.skipped : searched_parts(planning);
  if (request.explain) std::erase(left, "rollouts ahead");  // rollouts_ahead() searches them
  leave_out(left, planning.whole  ? "--time-limit: no time was left"
                  : request.whole ? "--export has no keys for them"
                                  : "--layouts-only");
  if (planning.whole && planning.staleness == 0 && generates(graph))
    leave_out({"rollouts ahead"}, "plan.staleness is 0");
  return join(out, "; ");
}

std::string bound_and_gap(double bound_s, double step_s, bool proven) {
  const double gap = std::round(1e4 * std::max(0.0, 1 - bound_s / step_s)) / 100;
  return cat(fixed_text(bound_s, 3), " s (gap ", format_double(gap), " %", proven ? ", proven" : "",
             ")");
}

// Of searches that have what is left of the time limit, and `least` of it in any case.
Result<WholeOptions> whole_options(const PlanRequest& request, const Planning& planning,
                                   const optimize::Stopwatch& watch, double least = 0) {
  const double begin_s = watch.elapsed_s(), stated_s = request.limits.limit_s();
  const double limit_s = least > 0 ? std::max(stated_s, begin_s + least * stated_s) : stated_s;
  WholeOptions options;
  options.space.margin = planning.found.margin;
  if (request.keep) {
    BRAID_ASSIGN(options.space, keeping(planning.constraints, std::move(options.space)));
  }
  options.search.seed = request.seed;
  options.search.margin = planning.found.margin;
  options.search.judged = kJudged;
  options.search.polish = false;
  options.search.units = optimize::unit_options(request.limits, watch, limit_s, 1);
  options.space.threads = options.search.units.threads;
  options.search.units.max_units = std::clamp<int64_t>(planning.found.units, 1, kMostUnits);
  if (std::isfinite(limit_s))
    options.search.late = [watch, begin_s, limit_s](double share) {
      return watch.elapsed_s() >= begin_s + share * (limit_s - begin_s);
    };
  options.parts = parts_of(planning.problem, planning.staleness);
  options.judge = planning.judge;
  options.found = planning.found;
  return options;
}

}  // namespace

bool searches_parts(const PlanRequest& request, const PlanningProblem& problem) {
  return request.whole && request.export_to.empty() && has_parts(problem);
}

Result<WholeProposal> propose_whole(const PlanRequest& request, const Planning& planning,
                                    const optimize::Stopwatch& watch) {
  const double begin_s = watch.elapsed_s();
  BRAID_ASSIGN(const WholeOptions options, whole_options(request, planning, watch));
  WholeProposal out;
  BRAID_ASSIGN(out.found,
               search_whole(planning.problem, *planning.pricer, planning.calibration, options));
  out.without_s = std::min(planning.found.verdict->step_s, out.found.plain.verdict.step_s);
  out.bound_s = 1e-6 * static_cast<double>(whole_bound_us(planning.space, options.parts));
  out.seconds = watch.elapsed_s() - begin_s;
  return out;
}

Result<std::optional<AheadProposal>> rollouts_ahead(const PlanRequest& request,
                                                    const Planning& planning) {
  if (planning.whole && planning.whole->found.ahead) return planning.whole->found.ahead;
  if (planning.staleness == 0 || !request.explain) return std::optional<AheadProposal>();
  BRAID_ASSIGN(WholeOptions options, whole_options(request, planning, planning.watch));
  options.search.late = {};  // whatever time it is
  return propose_ahead(planning.problem, *planning.pricer, planning.calibration,
                       planning.found.verdict->step_s, ahead_options(options));
}

Result<std::optional<BeyondProposal>> beyond_train(const PlanRequest& request,
                                                   const Planning& planning) {
  if (!request.whole || !request.export_to.empty()) return std::optional<BeyondProposal>();
  const double begin_s = planning.watch.elapsed_s();
  BRAID_ASSIGN(const WholeOptions whole,
               whole_options(request, planning, planning.watch, kShareOfBeyond));
  BeyondOptions options{whole.space, whole.search, planning.judge};
  options.space.axes = further_axes(planning.proposed.plan, planning.problem, whole.space.allowed);
  if (options.space.axes == FurtherAxes()) return std::optional<BeyondProposal>();
  BRAID_ASSIGN(BeyondProposal out, propose_beyond_train(planning.problem, *planning.pricer,
                                                        planning.proposed, options));
  out.seconds = planning.watch.elapsed_s() - begin_s;
  return std::optional(std::move(out));
}

std::string searched_text(const Planning& planning, const PlanRequest& request) {
  const Found& found = planning.found;
  std::string out =
      cat("searched       ", found.units, " units, ", found.evaluations, " plans, ",
          found.judged.size(), " simulated, in ", format_seconds(planning.seconds), "\n");
  if (planning.whole) {
    std::vector<std::string> parts = searched_parts(planning);
    std::erase_if(parts, [&](const std::string& part) {
      return contains(planning.whole->found.skipped, part);
    });
    if (!parts.empty())
      out += cat("               then ", join(parts, ", "), ", in ",
                 format_seconds(planning.whole->seconds), "\n");
  }
  if (const std::string left = not_searched(planning, request); !left.empty())
    out += cat("not searched   ", left, "\n");
  return out;
}

std::string bound_text(const Planning& planning) {
  const double step_s = planning.proposed.verdict.step_s;
  if (!planning.whole)
    return bound_and_gap(without_parts_s(planning), step_s, planning.found.proven);
  const char* parts = planning.staleness > 0 ? "fusions and rollouts ahead" : "fusions";
  if (!proposes_parts(planning))
    return cat(bound_and_gap(without_parts_s(planning), step_s, planning.found.proven), "; with ",
               parts, " ", fixed_text(planning.whole->bound_s, 3), " s");
  return cat(bound_and_gap(planning.whole->bound_s, step_s, false), "; without ", parts, " ",
             fixed_text(without_parts_s(planning), 3), " s");
}

double bound_s(const Planning& planning) {
  return proposes_parts(planning) ? planning.whole->bound_s : without_parts_s(planning);
}

std::string parts_text(const Planning& planning) {
  if (!planning.whole) return "";
  const WholeProposal& whole = *planning.whole;
  if (whole.found.skipped.size() == searched_parts(planning).size()) return "";
  const JudgedPlan& best = whole.found.best;
  const std::string parts = parts_text(best.plan);
  if (!whole.wins())
    return cat("parts          none saves 1 % of a step",
               parts.empty()
                   ? ""
                   : cat(" (the best: ", format_seconds(best.verdict.step_s), " with ", parts, ")"),
               "\n");
  std::string out = cat("parts          ", parts, ": ",
                        format_double(percent_less(best.verdict.step_s, whole.without_s)),
                        " % less than ", format_seconds(whole.without_s), " without");
  const std::vector<std::string> lines = diff(planning.found.plan, best.plan);
  out += lines.empty() ? "\n" : ", by a plan that differs:\n";
  for (const std::string& line : lines) out += cat("  ", line, "\n");
  return out;
}

OrderedJson whole_json(const Planning& planning) {
  const WholeProposal& whole = *planning.whole;
  const JudgedPlan& best = whole.found.best;
  const Status trains = check_executable(best.plan, planning.problem.graph);
  OrderedJson out = {{"step_s", best.verdict.step_s},  {"without_s", whole.without_s},
                     {"lower_bound_s", whole.bound_s}, {"pays", whole.wins()},
                     {"parts", parts_text(best.plan)}, {"peak_gib", best.verdict.peak_bytes / kGib},
                     {"tried", whole.found.tried},     {"executable", trains.ok()},
                     {"skipped", whole.found.skipped}, {"seconds", whole.seconds},
                     {"plan", plan_json(best.plan)}};
  if (!trains.ok()) out["not_executable"] = trains.message();
  return out;
}

}  // namespace braid::inline advise
