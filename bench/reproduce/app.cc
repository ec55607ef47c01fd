#include "app.h"

#include "experiment.h"
#include "foreign/baselines/baselines.h"
#include "plan/validate.h"
#include "search/simulate.h"

namespace braid::reproduce {
namespace {

constexpr int64_t kTokens = 256;  // of a prompt, and of an answer
constexpr int64_t kLoraRank = 128;

// Seconds of a forward of the actor, one token of each sample, that gathers its weights layer by
// layer.
Result<double> gathered_forward_s(PlanningProblem problem, const Calibration& calibration) {
  problem.workload.prompt = problem.workload.response = fixed_length(1);
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
  const Call& call = *find_call(problem.graph, "old_logprob");
  Strategy strategy;
  strategy.dp = device_count(problem.cluster);
  strategy.zero_stage = 3;
  BRAID_ASSIGN(const CallPrice price, pricer.price(call, whole_cluster(problem.cluster), strategy));
  return price.time.total_s;
}

}  // namespace

std::vector<AppRow> app_rows() {
  std::vector<AppRow> rows;
  for (const double nic : {200.0, 25.0})
    for (const auto& [model, gpus] : {std::pair("llama-7b", 16), std::pair("llama-13b", 16),
                                      std::pair("llama-30b", 32), std::pair("llama-65b", 32)})
      rows.push_back({model, gpus, nic});
  return rows;
}

Result<PlanningProblem> app_problem(const AppRow& row) {
  Experiment experiment;
  experiment.actor = experiment.critic = row.model;
  experiment.nodes = row.gpus / experiment.devices_per_node;
  experiment.nic_gbps_per_gpu = row.nic_gbps_per_gpu;
  experiment.prompts = row.gpus * row.samples_per_gpu;
  experiment.minibatches = 1;
  experiment.prompt_tokens = kTokens;
  experiment.response = fixed_length(kTokens);
  experiment.old_logprobs = "recompute";
  experiment.score_calls = true;
  BRAID_ASSIGN(PlanningProblem problem, make_experiment(experiment));
  for (const RoleSpec& spec : problem.graph.roles)
    if (spec.trained) problem.models[spec.role.value].trainable = {true, kLoraRank};
  return problem;
}

Result<AppTimes> run_app(const AppRow& row, const Calibration& calibration,
                         const SearchBudget& budget) {
  BRAID_ASSIGN(const PlanningProblem problem, app_problem(row));
  BRAID_ASSIGN(const ExecutionPlan plan, deepspeed_chat_plan(problem));
  BRAID_ASSIGN(const Verdict verdict, simulate_plan(plan, problem, calibration, {}));
  BRAID_ASSIGN(const double forward_s, gathered_forward_s(problem, calibration));
  AppTimes out;
  out.hybrid_s = verdict.step_s;
  out.gathered_fits = verdict.fits;
  out.gathered_generate_s = kTokens * forward_s;
  out.gathered_s = verdict.step_s - call_seconds(problem, verdict, CallKind::kGenerate) +
                   out.gathered_generate_s;
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
  for (const Restriction& system : systems(problem))
    if (system.name == "app") out.app = optimum(problem, pricer, calibration, system, budget);
  out.ours = optimum(problem, pricer, calibration, whole_space(), budget);
  return out;
}

}  // namespace braid::reproduce
