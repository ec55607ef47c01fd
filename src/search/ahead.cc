#include "search/ahead.h"

#include <bit>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::inline search {
namespace {

DeviceMesh run_of(int first, int count) {
  DeviceMesh out;
  for (int device = first; device < first + count; ++device)
    out.devices.push_back(DeviceId{device});
  return out;
}

// The best plan with so many devices for generation; none where none fits, or none takes less than
// `limit_s`.
Result<std::optional<JudgedPlan>> best_with(const PlanningProblem& problem,
                                            const CallPricer& pricer, const Judge& judge,
                                            const AheadOptions& options, int generating,
                                            double limit_s) {
  const int others = device_count(problem.cluster) - generating;
  const DeviceMesh first = run_of(0, others), last = run_of(others, generating);
  SpaceOptions space_options = options.space;
  space_options.meshes.push_back(first);
  space_options.meshes.push_back(last);
  space_options.allowed = [&, also = std::move(space_options.allowed)](const CallPlan& entry) {
    const Call* call = find_call(problem.graph, entry.call);
    const bool generates = call != nullptr && call->kind == CallKind::kGenerate;
    return (!also || also(entry)) && entry.mesh == (generates ? last : first);
  };
  auto space = make_plan_space(problem, pricer, space_options);
  if (space.status().code() == Code::kInfeasible) return std::optional<JudgedPlan>();
  BRAID_TRY(space.status());
  if (static_cast<double>(longest_call_us(*space)) / 1e6 >= limit_s)
    return std::optional<JudgedPlan>();
  SearchOptions search;
  search.judged = options.judged;
  search.polish = options.polish;
  search.units.max_units = options.units;
  search.units.threads = options.threads;
  const auto found = search_plans(*space, search, judge);
  if (found.status().code() == Code::kInfeasible) return std::optional<JudgedPlan>();
  BRAID_TRY(found.status());
  std::optional<JudgedPlan> best;
  for (const JudgedPlan& each : found->judged)
    if (each.verdict.fits && (!best || each.verdict.step_s < best->verdict.step_s)) best = each;
  if (best) best->plan.staleness = options.staleness;
  return best;
}

}  // namespace

Result<std::optional<AheadProposal>> propose_ahead(const PlanningProblem& problem,
                                                   const CallPricer& pricer,
                                                   const Calibration& calibration, double step_s,
                                                   const AheadOptions& options) {
  if (!generated_ahead(problem.graph, options.staleness).ok())
    return std::optional<AheadProposal>();
  const Judge judge = [&](ExecutionPlan plan) {
    plan.staleness = options.staleness;
    return simulate_plan(plan, problem, calibration, {});
  };
  AheadProposal out{options.staleness, step_s, {}};
  // Most first: what few devices cannot beat is not searched. Some are left for the other calls.
  const auto most = std::bit_floor(static_cast<unsigned>(device_count(problem.cluster) - 1));
  for (int devices = static_cast<int>(most); devices >= 1; devices /= 2) {
    const double limit_s = out.ahead ? out.ahead->verdict.step_s : HUGE_VAL;
    BRAID_ASSIGN(auto best, best_with(problem, pricer, judge, options, devices, limit_s));
    if (best && (!out.ahead || best->verdict.step_s < out.ahead->verdict.step_s))
      out.ahead = std::move(best);
  }
  return std::optional(std::move(out));
}

std::string ahead_text(const AheadProposal& proposal) {
  const std::string ahead =
      cat(proposal.staleness, proposal.staleness == 1 ? " step" : " steps", " ahead");
  if (!proposal.ahead)
    return cat("stay synchronous: no plan whose rollouts are made ", ahead, " fits\n");
  const std::string times = cat(format_seconds(proposal.ahead->verdict.step_s), " a step, against ",
                                format_seconds(proposal.step_s));
  if (!proposal.wins())
    return cat("stay synchronous: with rollouts made ", ahead, " the fastest plan takes ", times,
               "\n");
  return cat("staleness: with rollouts made ", ahead, " a plan takes ", times, " (",
             format_double(static_cast<double>(static_cast<int64_t>(
                               1000 * (1 - proposal.ahead->verdict.step_s / proposal.step_s))) /
                           10),
             " % less)\n");
}

OrderedJson ahead_json(const AheadProposal& proposal) {
  OrderedJson out = {{"staleness", proposal.staleness},
                     {"synchronous_s", proposal.step_s},
                     {"pays", proposal.wins()}};
  if (proposal.ahead) out["step_s"] = proposal.ahead->verdict.step_s;
  return out;
}

}  // namespace braid::inline search
