#include "advise/no_plan.h"

#include <utility>

#include "advise/report.h"
#include "base/text.h"

namespace braid::inline advise {
namespace {

constexpr int kMostDevices = 1024;   // that the search for a smallest cluster looks at
constexpr int64_t kQuickUnits = 16;  // of its searches
constexpr int64_t kQuickJudged = 3;

bool fits_somewhere(const PlanningProblem& problem, const Calibration& calibration) {
  const auto pricer = CallPricer::make(problem, calibration);
  if (!pricer.ok()) return false;
  auto space = make_plan_space(problem, *pricer);
  if (!space.ok()) return false;
  SearchOptions options;
  options.units.max_units = kQuickUnits;
  options.judged = kQuickJudged;
  options.polish = false;
  return search_plans(*space, options, simulator_judge(problem, calibration)).ok();
}

// The keys of the configuration without which there is a plan, one at a time; empty: none of them
// alone is the reason.
std::string refusing_keys(const Planning& planning) {
  std::vector<std::string> keys;
  const auto attempt = [&](const char* key, const auto& lift) {
    PlanningProblem lifted = planning.problem;
    if (lift(lifted) && fits_somewhere(lifted, planning.calibration)) keys.emplace_back(key);
  };
  attempt("plan.host_memory_gib",
          [](PlanningProblem& p) { return std::exchange(p.host_memory_gib, 0) > 0; });
  attempt("plan.offload=never",
          [](PlanningProblem& p) { return !std::exchange(p.may_offload, true); });
  attempt("plan.memory_limit_gib",
          [](PlanningProblem& p) { return std::exchange(p.memory_limit_gib, 0) > 0; });
  return join(keys, ", or without ");
}

}  // namespace

Status with_smallest_cluster(const Status& status, const Planning& planning, bool keep) {
  if (status.code() != Code::kInfeasible) return status;
  const PlanningProblem& problem = planning.problem;
  if (planning.pricer && planning.pricer->capacity_bytes(problem.cluster.nodes.front().gpu) <= 0)
    return {status.code(),
            cat(status.message(),
                "; the limit leaves nothing beside the allocator's reserve and fixed "
                "buffers: raise plan.memory_limit_gib")};
  if (const std::string keys = keep ? std::string() : refusing_keys(planning); !keys.empty())
    return {status.code(), cat(status.message(), "; without ", keys, " there is a plan that fits")};
  const auto found =
      smallest_cluster(problem, kMostDevices, [&planning](const PlanningProblem& larger) {
        return fits_somewhere(larger, planning.calibration);
      });
  const Node& node = problem.cluster.nodes.front();
  if (!found)
    return {status.code(), cat(status.message(), "; no cluster of up to ", kMostDevices, " ",
                               node.gpu.key, " holds it")};
  if (found->devices <= device_count(problem.cluster))
    return {status.code(),
            cat(status.message(), keep ? "; without --keep there is one"
                                       : "; there is one: raise --time-limit or --max-units")};
  return {
      status.code(),
      cat(status.message(), "; the smallest cluster of these nodes that holds it: ", found->nodes,
          found->nodes == 1 ? " node" : " nodes", " of ", node.devices, " x ", node.gpu.key)};
}

}  // namespace braid::inline advise
