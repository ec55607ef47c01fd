#include "search/migration.h"

#include <algorithm>
#include <set>

namespace braid::inline search {
namespace {

constexpr int64_t kParts = 32;

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
  BRAID_ASSIGN(const std::vector<MigrationPoint> curve,
               migration_curve(plan, problem, calibration, options));
  const MigrationPoint* best = &curve.front();
  for (const MigrationPoint& point : curve)
    if (point.fits >= best->fits && point.step_s < best->step_s) best = &point;
  plan.fusion.migrate_below_samples = best->below;
  return plan;
}

}  // namespace braid::inline search
