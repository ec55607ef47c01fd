#include "engine_auto.h"

#include <algorithm>
#include <thread>

#include "config_inputs.h"
#include "cost/measured.h"
#include "plan/executable.h"
#include "search/plan_simulate.h"

namespace braid {
namespace {

// Whether a call may be placed so. Evaluation needs the whole actor on the first device: then the
// actor's calls all have all devices, each with all of it.
bool may_place(const Config& config, const PlanningProblem& problem, const CallPlan& entry) {
  const Call* call = find_call(problem.graph, entry.call);
  if (call == nullptr || !uses_model(*call)) return true;
  if (!check_executable(*call, entry.mesh, entry.strategy).ok()) return false;
  const bool evaluates = config.eval.every_steps > 0 || config.eval.at_start;
  if (call->role.value != "actor" || !evaluates) return true;
  const Strategy& s = entry.strategy;
  return s.tp == 1 && s.pp == 1 && s.zero_stage < 3 &&
         static_cast<int>(entry.mesh.devices.size()) == device_count(problem.cluster);
}

}  // namespace

Result<Calibration> runtime_calibration(const PlanningProblem& problem) {
  BRAID_ASSIGN(Calibration calibration,
               with_profiles(committed_calibration(), problem, file_reader()));
  calibration.own_engine = true;
  return calibration;
}

Result<std::vector<ExecutionPlan>> executable_plans(const Config& config,
                                                    const PlanningProblem& problem,
                                                    const Calibration& calibration,
                                                    const ExecutableSearch& search) {
  BRAID_ASSIGN(const planner::CallPricer pricer, planner::CallPricer::make(problem, calibration));
  planner::SpaceOptions space_options;
  space_options.allowed = [&](const CallPlan& entry) { return may_place(config, problem, entry); };
  BRAID_ASSIGN(planner::PlanSpace space, planner::make_plan_space(problem, pricer, space_options));
  planner::SearchOptions options;
  options.units.max_units = search.units;
  options.units.threads = search.threads > 0
                              ? search.threads
                              : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  BRAID_ASSIGN(
      planner::Found found,
      planner::search_plans(space, options, planner::simulator_judge(problem, calibration)));
  std::vector<planner::JudgedPlan> plans = std::move(found.judged);
  std::erase_if(plans, [&](const planner::JudgedPlan& judged) {
    return !judged.verdict.fits || !check_executable(judged.plan, problem.graph).ok();
  });
  std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return a.verdict.step_s < b.verdict.step_s;
  });
  if (plans.empty())
    return Status(Code::kInfeasible,
                  "plan.auto: no plan that training executes fits; 'braid plan' says what would");
  std::vector<ExecutionPlan> out;
  for (const planner::JudgedPlan& judged : plans) out.push_back(judged.plan);
  return out;
}

}  // namespace braid
