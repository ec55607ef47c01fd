#include "launch/auto_plan.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"
#include "plan/executable.h"
#include "pricing/measured.h"
#include "search/ahead.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::inline launch {
namespace {

constexpr int64_t kUnitsOfDivision = 2;  // of search, for each way to divide the devices

}  // namespace

Result<Calibration> runtime_calibration(const PlanningProblem& problem) {
  BRAID_ASSIGN(Calibration calibration,
               with_profiles(committed_calibration(), problem, file_reader()));
  calibration.own_engine = true;
  return calibration;
}

Result<std::vector<ExecutionPlan>> executable_plans(const PlanningProblem& problem,
                                                    const Calibration& calibration,
                                                    const ExecutableSearch& search) {
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
  SpaceOptions space_options = executed_options(problem);
  const bool keeps_some = search.constraints != nullptr && !search.constraints->empty();
  if (keeps_some) {
    BRAID_ASSIGN(space_options, keeping(*search.constraints, std::move(space_options)));
  }
  BRAID_ASSIGN(PlanSpace space, make_plan_space(problem, pricer, space_options));
  SearchOptions options;
  options.units.max_units = search.units;
  options.units.threads = search.threads > 0
                              ? search.threads
                              : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  BRAID_ASSIGN(Found found, search_plans(space, options, simulator_judge(problem, calibration)));
  std::vector<JudgedPlan> plans = std::move(found.judged);
  std::erase_if(plans, [&](const JudgedPlan& judged) {
    return !judged.verdict.fits || !check_executable(judged.plan, problem.graph).ok();
  });
  std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return a.verdict.step_s < b.verdict.step_s;
  });
  if (plans.empty())
    return Status(Code::kInfeasible, cat("no plan that training executes fits",
                                         keeps_some ? " and keeps placement and parallel" : "",
                                         "; 'braid plan' says what would"));
  std::vector<ExecutionPlan> out;
  for (const JudgedPlan& judged : plans) out.push_back(judged.plan);
  if (search.staleness == 0) return out;
  AheadOptions ahead{search.staleness, kUnitsOfDivision, options.units.threads, space_options};
  BRAID_ASSIGN(const auto proposal,
               propose_ahead(problem, pricer, calibration, plans.front().verdict.step_s, ahead));
  if (!proposal)
    return invalid_input(cat("plan.staleness: ", problem.graph.name,
                             " has no generation that could work ahead; set it to 0"));
  log_info(cat("plan: ", first_line(ahead_text(*proposal))));
  if (proposal->wins()) out.insert(out.begin(), proposal->ahead->plan);
  return out;
}

}  // namespace braid::inline launch
