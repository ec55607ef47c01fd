#include "search/ahead.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "base/units.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::inline search {
namespace {

// Where generation may run: on the last 1, 2, 4, ... devices, some being left for the other calls,
// and on the meshes that calls may have beside the usual ones. Most devices first.
std::vector<DeviceMesh> generating_meshes(const Cluster& cluster,
                                          const std::vector<DeviceMesh>& stated) {
  const int devices = device_count(cluster);
  std::vector<DeviceMesh> out;
  for (int count = static_cast<int>(std::bit_floor(static_cast<unsigned>(devices - 1))); count >= 1;
       count /= 2)
    out.push_back(*contiguous_mesh(cluster, devices - count, count));
  for (const DeviceMesh& mesh : stated)
    if (!contains(out, mesh) && static_cast<int>(mesh.devices.size()) < devices)
      out.push_back(mesh);
  std::stable_sort(out.begin(), out.end(), [](const DeviceMesh& a, const DeviceMesh& b) {
    return a.devices.size() > b.devices.size();
  });
  return out;
}

// The longer of the runs of devices before and after a run. REQUIRES: it leaves some.
DeviceMesh beside(const DeviceMesh& mesh, const Cluster& cluster) {
  const int first = mesh.devices.front().value, end = mesh.devices.back().value + 1;
  const int after = device_count(cluster) - end;
  return first >= after ? *contiguous_mesh(cluster, 0, first)
                        : *contiguous_mesh(cluster, end, after);
}

// Plans that generate on a mesh and train beside it; the other calls are with either, and calls
// may have the meshes that are stated for some.
SpaceOptions ahead_space(const PlanningProblem& problem, SpaceOptions options,
                         const DeviceMesh& generating) {
  const std::vector<DeviceMesh> stated = options.meshes;
  const DeviceMesh rest = beside(generating, problem.cluster);
  options.meshes.push_back(generating);
  options.meshes.push_back(rest);
  options.allowed = [&problem, generating, rest, stated,
                     also = std::move(options.allowed)](const CallPlan& entry) {
    if (also && !also(entry)) return false;
    const Call* call = find_call(problem.graph, entry.call);
    if (call != nullptr && call->kind == CallKind::kGenerate) return entry.mesh == generating;
    const bool trains = call != nullptr && call->kind == CallKind::kTrainStep;
    if (trains && overlaps(entry.mesh, generating)) return false;
    return entry.mesh == rest || entry.mesh == generating || contains(stated, entry.mesh);
  };
  return options;
}

// The best plan that generates on these devices; none where none fits, or none takes less than
// `limit_s`.
Result<std::optional<JudgedPlan>> best_with(const PlanningProblem& problem,
                                            const CallPricer& pricer, const Judge& judge,
                                            const AheadOptions& options,
                                            const DeviceMesh& generating, double limit_s) {
  const SpaceOptions space_options = ahead_space(problem, options.space, generating);
  auto space = make_plan_space(problem, pricer, space_options);
  if (space.status().code() == Code::kInfeasible) return std::optional<JudgedPlan>();
  BRAID_TRY(space.status());
  if (static_cast<double>(longest_call_us(*space)) / 1e6 >= limit_s)
    return std::optional<JudgedPlan>();
  SearchOptions search = options.search;
  search.bound = search.evaluator_bounds_judge = search.hides_scoring = false;
  const auto found = search_plans(*space, search, judge);
  if (found.status().code() == Code::kInfeasible) return std::optional<JudgedPlan>();
  BRAID_TRY(found.status());
  std::optional<JudgedPlan> best;
  for (const JudgedPlan& each : found->judged)
    if (leaves(each.verdict, found->margin) &&
        (!best || each.verdict.step_s < best->verdict.step_s))
      best = each;
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
  const Judge asked = options.judge ? options.judge : simulator_judge(problem, calibration);
  const Judge judge = [&](ExecutionPlan plan) {
    plan.staleness = options.staleness;
    return asked(plan);
  };
  AheadProposal out{options.staleness, step_s, {}, false};
  out.within = !options.space.meshes.empty();
  // What few devices cannot beat is not searched.
  for (const DeviceMesh& mesh : generating_meshes(problem.cluster, options.space.meshes)) {
    if (out.ahead && options.search.late && options.search.late(1)) break;
    const double limit_s = out.ahead ? out.ahead->verdict.step_s : HUGE_VAL;
    BRAID_ASSIGN(auto best, best_with(problem, pricer, judge, options, mesh, limit_s));
    if (best && (!out.ahead || best->verdict.step_s < out.ahead->verdict.step_s))
      out.ahead = std::move(best);
  }
  return std::optional(std::move(out));
}

std::string ahead_text(const AheadProposal& proposal) {
  const std::string ahead =
      cat(proposal.staleness, proposal.staleness == 1 ? " step" : " steps", " ahead");
  if (!proposal.ahead)
    return cat("stay synchronous: no plan whose rollouts are made ", ahead, " fits",
               proposal.within ? " and keeps the placement" : "", "\n");
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
