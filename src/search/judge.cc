#include "search/judge.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/text.h"
#include "optimize/shared_memo.h"
#include "plan/executable.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline search {
namespace {

Status check_run(const CallPlan& entry) {
  if (is_run(entry.mesh)) return ok_status();
  return invalid_input(
      cat("call ", entry.call, ": the evaluator prices meshes of consecutive devices only"));
}

// Device-seconds of computation over those of the cluster.
double utilisation_of(const PlanSpace& space, const Assignment& plan, int64_t step_us) {
  double busy = 0;
  for (const PlanOption* option : plan.option)
    busy += static_cast<double>(option->time_us) * option->devices();
  return busy / (static_cast<double>(std::max<int64_t>(1, step_us)) * space.num_devices());
}

}  // namespace

bool keeps(const CallPlan& entry, const PlanConstraints& constraints) {
  PlanConstraints mine;
  const auto mesh = constraints.meshes.find(entry.call);
  if (mesh != constraints.meshes.end()) mine.meshes.insert(*mesh);
  const auto strategy = constraints.strategies.find(entry.call);
  if (strategy != constraints.strategies.end()) mine.strategies.insert(*strategy);
  ExecutionPlan plan;
  plan.calls = {entry};
  return satisfies(plan, mine).ok();
}

Result<SpaceOptions> keeping(const PlanConstraints& constraints, SpaceOptions options) {
  for (const auto& [call, mesh] : constraints.meshes) {
    if (!is_run(mesh))
      return invalid_input(
          cat("placement: call ", call, " has the devices ", mesh_text(mesh),
              ", and a search gives calls devices whose numbers follow each other; "
              "state parallel too, and search nothing"));
    options.meshes.push_back(mesh);
  }
  options.allowed = [&constraints, also = std::move(options.allowed)](const CallPlan& entry) {
    return (!also || also(entry)) && keeps(entry, constraints);
  };
  return options;
}

SpaceOptions executed_options(const PlanningProblem& problem) {
  SpaceOptions options;
  options.allowed = [&problem](const CallPlan& entry) {
    const Call* call = find_call(problem.graph, entry.call);
    return call == nullptr || !uses_model(*call) || check_executable(*call, entry.strategy).ok();
  };
  return options;
}

Result<PlanSpace> space_of_plan(const ExecutionPlan& plan, const PlanningProblem& problem,
                                const CallPricer& pricer) {
  BRAID_TRY(validate(plan, problem));
  for (const CallPlan& entry : plan.calls) BRAID_TRY(check_run(entry));
  BRAID_ASSIGN(PlanSpace space, make_plan_space(problem, pricer, {.only = &plan, .allowed = {}}));
  for (RoleSpace& role : space.roles) role.stays = {stay_of(role_plan(plan, role.role))};
  return space;
}

Verdict verdict_of(const PlanSpace& space, const Choice& choice) {
  const Assignment plan = assignment_of(space, choice);
  const PlanCost cost = evaluate(space, plan);
  Verdict verdict;
  verdict.step_s = static_cast<double>(cost.time_us) / 1e6;
  verdict.fits = cost.excess_bytes == 0;
  for (int32_t d = 0; d < space.num_devices(); ++d)
    note_device(verdict, device_bytes(space, plan, d), space.capacity_bytes[d]);
  verdict.utilisation = utilisation_of(space, plan, cost.time_us);
  for (const CallTiming& call : timeline(space, plan))
    verdict.call_s.push_back(static_cast<double>(call.end_us - call.start_us) / 1e6);
  if (!verdict.fits)
    verdict.reason = cat("needs ", format_bytes(verdict.peak_bytes), " of ",
                         format_bytes(verdict.capacity_bytes), " on the fullest device");
  return verdict;
}

Verdict refused_verdict() {
  Verdict verdict;
  verdict.step_s = HUGE_VAL;
  verdict.fits = false;
  return verdict;
}

Judge remembering(Judge judge) {
  using Verdicts = optimize::SharedMemo<std::string, Result<Verdict>>;
  return
      [judge = std::move(judge), known = std::make_shared<Verdicts>()](const ExecutionPlan& plan) {
        const std::string text = plan_to_yaml(plan);
        if (const auto found = known->find(text)) return *found;
        Result<Verdict> verdict = judge(plan);
        known->keep(text, verdict);
        return verdict;
      };
}

Judge evaluator_judge(const PlanningProblem& problem, const CallPricer& pricer) {
  return [&problem, &pricer](const ExecutionPlan& plan) -> Result<Verdict> {
    BRAID_ASSIGN(const PlanSpace space, space_of_plan(plan, problem, pricer));
    return verdict_of(space, Choice(static_cast<size_t>(space.num_coordinates()), 0));
  };
}

}  // namespace braid::inline search
