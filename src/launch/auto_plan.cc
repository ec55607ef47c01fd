#include "launch/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"
#include "plan/executable.h"
#include "pricing/measured.h"
#include "search/ahead.h"
#include "search/judge.h"
#include "search/priced_parts.h"
#include "search/whole.h"

namespace braid::inline launch {
namespace {

constexpr int64_t kUnitsOfDivision = 2;  // of search, for each way to divide the devices
constexpr int64_t kSearches = 5;         // of which search_whole() makes one plan

int threads_of(const ExecutableSearch& search) {
  return search.threads > 0 ? search.threads
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

WholeOptions whole_options(const ExecutableSearch& search, const PlanningProblem& problem,
                           const SpaceOptions& space) {
  WholeOptions out;
  out.space = space;
  out.parts = parts_of(problem, 0);
  out.search.bound = false;
  out.search.units.max_units = std::max<int64_t>(1, search.units / kSearches);
  out.search.units.threads = out.space.threads = threads_of(search);
  out.search.units.stop = search.stop;
  return out;
}

// Those with fusions that are worth it, then the others, the fastest first.
std::vector<JudgedPlan> in_order(WholeFound found, const Graph& graph) {
  const auto faster = [](const JudgedPlan& a, const JudgedPlan& b) {
    return a.verdict.step_s < b.verdict.step_s;
  };
  const auto refused = [&](const JudgedPlan& judged) {
    return !judged.verdict.fits || !check_executable(judged.plan, graph).ok();
  };
  std::vector<JudgedPlan> plain = std::move(found.found.judged);
  plain.push_back(std::move(found.plain));
  std::erase_if(plain, refused);
  std::stable_sort(plain.begin(), plain.end(), faster);
  if (plain.empty()) return plain;
  const double limit_s = (1 - kLeastGainOfParts) * plain.front().verdict.step_s;
  std::vector<JudgedPlan> out;
  for (JudgedPlan* const fused :
       {&found.beside, &found.predicted, &found.fused, &found.fused_training})
    if (fused->verdict.step_s < limit_s && !parts_text(fused->plan).empty() && !refused(*fused) &&
        std::none_of(out.begin(), out.end(),
                     [&](const JudgedPlan& one) { return one.plan == fused->plan; }))
      out.push_back(std::move(*fused));
  std::stable_sort(out.begin(), out.end(), faster);
  if (!out.empty())
    log_info(cat("plan: with ", parts_text(out.front().plan), " a step takes ",
                 format_seconds(out.front().verdict.step_s), " for ",
                 format_seconds(plain.front().verdict.step_s)));
  out.insert(out.end(), plain.begin(), plain.end());
  return out;
}

Status nothing_fits(const char* of_which, bool keeps_some) {
  return {Code::kInfeasible, cat("no plan that training executes fits", of_which,
                                 keeps_some ? " and keeps placement and parallel" : "",
                                 "; 'braid plan' says what would")};
}

}  // namespace

Result<Calibration> runtime_calibration(const PlanningProblem& problem) {
  BRAID_ASSIGN(Calibration calibration,
               with_profiles(committed_calibration(), problem, file_reader()));
  calibration.own_engine = true;
  return calibration;
}

Result<PlanConstraints> executable_constraints(const Config& config, const PlanningProblem& problem,
                                               const Calibration& calibration) {
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
  return priced_constraints(config, pricer, file_reader(), executed_options(problem));
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
  std::vector<ExecutionPlan> out;
  double synchronous_s = HUGE_VAL;
  if (search.synchronous) {
    BRAID_ASSIGN(WholeFound found, search_whole(problem, pricer, calibration,
                                                whole_options(search, problem, space_options)));
    const std::vector<JudgedPlan> plans = in_order(std::move(found), problem.graph);
    if (plans.empty()) return nothing_fits("", keeps_some);
    for (const JudgedPlan& judged : plans) out.push_back(judged.plan);
    synchronous_s = plans.front().verdict.step_s;
  }
  if (search.staleness == 0) return out;
  AheadOptions ahead = ahead_options(whole_options(search, problem, space_options));
  ahead.staleness = search.staleness;
  ahead.search.units.max_units = kUnitsOfDivision;
  BRAID_ASSIGN(const auto proposal,
               propose_ahead(problem, pricer, calibration, synchronous_s, ahead));
  if (!proposal)
    return invalid_input(cat("plan.staleness: ", problem.graph.name,
                             " has no generation that could work ahead; set it to 0"));
  if (search.synchronous) log_info(cat("plan: ", first_line(ahead_text(*proposal))));
  if (proposal->wins()) out.insert(out.begin(), proposal->ahead->plan);
  if (out.empty()) return nothing_fits(" with rollouts ahead of training", keeps_some);
  return out;
}

}  // namespace braid::inline launch
