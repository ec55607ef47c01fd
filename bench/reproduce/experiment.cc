#include "experiment.h"

#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/text.h"
#include "plan/make_problem.h"
#include "search/simulate.h"

namespace braid::reproduce {
namespace {

constexpr int kThreads = 2;  // never changes a result

Result<PlannedStep> search(const PlanningProblem& problem, const Calibration& calibration,
                           const PlanLimits& limits) {
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
  SpaceOptions space_options;
  space_options.allowed = limits.allowed;
  BRAID_ASSIGN(PlanSpace space, make_plan_space(problem, pricer, space_options));
  SearchOptions options;
  options.judged = limits.judged;
  options.polish = false;
  options.units.max_units = limits.units;
  options.units.threads = kThreads;
  BRAID_ASSIGN(Found found, search_plans(space, options, simulator_judge(problem, calibration)));
  return PlannedStep{std::move(found.plan), *std::move(found.verdict)};
}

}  // namespace

LengthDistribution fixed_length(int64_t tokens) {
  LengthDistribution lengths;
  lengths.mean = static_cast<double>(tokens);
  return lengths;
}

Result<PlanningProblem> make_experiment(const Experiment& experiment) {
  PlanningProblem problem;
  AlgorithmOptions options;
  options.name = experiment.algorithm;
  options.old_logprobs = experiment.old_logprobs;
  if (!experiment.reference) options.kl.coef = 0;
  BRAID_ASSIGN(problem.graph, make_graph(options));
  if (experiment.own_engine) note_what_it_looks_at(options, &problem.graph);
  if (experiment.algorithm == "ppo")
    problem.graph = experiment.score_calls ? with_score_calls(std::move(problem.graph), 1)
                                           : with_reward_model(std::move(problem.graph));
  for (const RoleSpec& spec : problem.graph.roles) {
    BRAID_ASSIGN(ModelSize size,
                 find_model(spec.scalar_head ? experiment.critic : experiment.actor));
    problem.models[spec.role.value].spec = {std::move(size)};
  }
  problem.workload = {experiment.prompts,
                      experiment.samples_per_prompt,
                      experiment.minibatches,
                      1,
                      fixed_length(experiment.prompt_tokens),
                      experiment.response};
  BRAID_ASSIGN(const GpuSpec gpu, find_gpu(experiment.gpu));
  BRAID_ASSIGN(problem.cluster, make_cluster(gpu, experiment.nodes, experiment.devices_per_node,
                                             experiment.nic_gbps_per_gpu));
  return problem;
}

Calibration with_constants(const Calibration& calibration, const std::string& gpu,
                           const std::map<std::string, double>& constants) {
  Calibration out = calibration;
  const Efficiency now =
      resolve_efficiency(calibration, efficiency_key(*find_gpu(gpu), Precision::kBf16, ""));
  size_t used = 0;
  for (const Knob& knob : knobs()) {
    const auto wanted = constants.find(knob.name);
    if (wanted == constants.end()) continue;
    out.offsets[knob.name] += std::log(wanted->second / now.*knob.member);
    ++used;
  }
  BRAID_CHECK(used == constants.size(), "a constant has no knob of its name");
  return out;
}

Result<PlannedStep> best_plan(const PlanningProblem& problem, const Calibration& calibration,
                              const PlanLimits& limits) {
  return search(problem, calibration, limits);
}

Result<PlannedStep> best_plan_on(const PlanningProblem& problem, const Calibration& calibration,
                                 const RoleMeshes& meshes, PlanLimits limits) {
  limits.allowed = [&, also = limits.allowed](const CallPlan& entry) {
    return (!also || also(entry)) &&
           entry.mesh == meshes.at(find_call(problem.graph, entry.call)->role.value);
  };
  return search(problem, calibration, limits);
}

double call_seconds(const PlanningProblem& problem, const Verdict& verdict, CallKind kind) {
  double sum = 0;
  size_t at = 0;
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    if (call.kind == kind) sum += verdict.call_s[at];
    ++at;
  }
  return sum;
}

double processor_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void print_row(const std::vector<std::string>& cells) {
  std::printf("| %s |\n", join(cells, " | ").c_str());
  std::fflush(stdout);
}

void print_header(const std::vector<std::string>& cells) {
  print_row(cells);
  std::string rule = "|";
  for (size_t i = 0; i < cells.size(); ++i) rule += "---|";
  std::printf("%s\n", rule.c_str());
}

std::string number(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string number(const Result<PlannedStep>& step, int digits) {
  return step.ok() ? number(step->verdict.step_s, digits) : "-";
}

}  // namespace braid::reproduce
