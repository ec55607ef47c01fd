#include "search/migration.h"

#include <algorithm>
#include <optional>
#include <set>

namespace braid::inline search {
namespace {

constexpr int64_t kParts = 32;

// What a replica may go on with: its own number, or parts of what it has at the begin.
std::set<int64_t> numbers_of_replica(const ExecutionPlan& plan, const PlanningProblem& problem) {
  if (plan.fusion.migrate_to_samples > 0) return {plan.fusion.migrate_to_samples};
  int64_t share = problem.workload.prompts * problem.workload.samples_per_prompt;
  for (const Call& call : problem.graph.calls)
    if (call.kind == CallKind::kGenerate) share /= call_plan(plan, call.name).strategy.dp;
  std::set<int64_t> out = {0};
  for (int64_t part = 2; part <= 8 && share / part > 0; part *= 2) out.insert(share / part);
  return out;
}

}  // namespace

Result<std::vector<MigrationPoint>> migration_curve(const ExecutionPlan& plan,
                                                    const PlanningProblem& problem,
                                                    const Calibration& calibration,
                                                    const SimulationOptions& options) {
  const int64_t samples = problem.workload.prompts * problem.workload.samples_per_prompt;
  std::vector<MigrationPoint> out;
  const auto add = [&](int64_t below) -> Status {
    ExecutionPlan handed = plan;
    handed.fusion.migrate_below_samples = below;
    if (below == 0) handed.fusion.migrate_to_samples = 0, handed.fusion.migrate_cache = true;
    BRAID_ASSIGN(const Verdict verdict, simulate_plan(handed, problem, calibration, options));
    out.push_back({below, verdict.step_s, verdict.fits});
    return ok_status();
  };
  std::set<int64_t> numbers = {0};
  for (int64_t part = 1; part < kParts; ++part) numbers.insert(samples * part / kParts);
  for (const int64_t below : numbers) BRAID_TRY(add(below));
  const MigrationPoint best = *std::min_element(
      out.begin(), out.end(),
      [](const MigrationPoint& a, const MigrationPoint& b) { return a.step_s < b.step_s; });
  const int64_t between = std::max<int64_t>(1, samples / kParts / 4);
  for (int64_t step = -3; step <= 3 && best.below > 0; ++step)
    if (const int64_t below = best.below + step * between;
        below > 0 && below < samples && numbers.insert(below).second)
      BRAID_TRY(add(below));
  std::sort(out.begin(), out.end(),
            [](const MigrationPoint& a, const MigrationPoint& b) { return a.below < b.below; });
  return out;
}

Result<ExecutionPlan> with_chosen_migration(ExecutionPlan plan, const PlanningProblem& problem,
                                            const Calibration& calibration,
                                            const SimulationOptions& options) {
  if (plan.fusion.migrate_below_samples != kAutoMigration) return plan;
  std::optional<MigrationPoint> best;
  Fusion chosen = plan.fusion;
  const auto look = [&](const Fusion& fusion) -> Status {
    plan.fusion = fusion;
    BRAID_ASSIGN(const std::vector<MigrationPoint> curve,
                 migration_curve(plan, problem, calibration, options));
    for (const MigrationPoint& point : curve) {
      if (best &&
          (point.fits < best->fits || (point.fits == best->fits && point.step_s >= best->step_s)))
        continue;
      best = point;
      chosen = fusion;
      chosen.migrate_below_samples = point.below;
    }
    return ok_status();
  };
  const Fusion asked = plan.fusion;
  for (const int64_t most : numbers_of_replica(plan, problem)) {
    Fusion fusion = asked;
    fusion.migrate_to_samples = most;
    BRAID_TRY(look(fusion));
  }
  if (Fusion tokens = chosen; chosen.migrate_below_samples > 0 && chosen.migrate_cache) {
    tokens.migrate_cache = false;
    BRAID_TRY(look(tokens));
  }
  if (chosen.migrate_below_samples == 0) chosen.migrate_to_samples = 0, chosen.migrate_cache = true;
  plan.fusion = chosen;
  return plan;
}

}  // namespace braid::inline search
