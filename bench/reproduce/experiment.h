// What the reproductions of published experiments share: planning problems in the words of the
// papers, plans under a placement, engines with stated constants, and Markdown tables. Everything
// is a function of its arguments: searches stop after a number of units, never by the clock.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/problem.h"
#include "pricing/efficiency.h"
#include "search/search.h"

namespace braid::reproduce {

// One step of PPO or GRPO on equal nodes.
struct Experiment {
  std::string algorithm = "ppo";
  std::string actor = "llama2-7b";   // and reference
  std::string critic = "llama2-7b";  // and reward model
  std::string gpu = "a100-80g";
  int nodes = 1, devices_per_node = 8;
  double nic_gbps_per_gpu = 0;  // 0 = the catalogue's
  int64_t prompts = 256, samples_per_prompt = 1, minibatches = 4;
  int64_t prompt_tokens = 128;
  LengthDistribution response = {};
  std::string old_logprobs = "sampler";  // or "recompute": a pass of the trainer
  bool reference = true;
  bool own_engine = false;   // what advantages look at is known, as Braid's runs have it
  bool score_calls = false;  // the reward model scores in a call of its own, sample by sample
};
LengthDistribution fixed_length(int64_t tokens);
Result<PlanningProblem> make_experiment(const Experiment& experiment);

// A calibration whose efficiencies on one device are the given values; all others stay. REQUIRES:
// the names are those of cost's knobs.
Calibration with_constants(const Calibration& calibration, const std::string& gpu,
                           const std::map<std::string, double>& constants);

struct PlannedStep {
  ExecutionPlan plan;
  Verdict verdict;  // of the simulator
};

struct PlanLimits {
  int64_t units = 32;
  int64_t judged = 12;
  std::function<bool(const CallPlan&)> allowed = {};  // a condition on the mesh or the strategy
};
// The best plan that the search finds, judged by the simulator. kInfeasible when nothing fits.
Result<PlannedStep> best_plan(const PlanningProblem& problem, const Calibration& calibration,
                              const PlanLimits& limits);
// The same for the plans that give every role the mesh named here and that limits.allowed accepts.
using RoleMeshes = std::map<std::string, DeviceMesh>;
Result<PlannedStep> best_plan_on(const PlanningProblem& problem, const Calibration& calibration,
                                 const RoleMeshes& meshes, PlanLimits limits);

// Seconds of calls of a kind, summed.
double call_seconds(const PlanningProblem& problem, const Verdict& verdict, CallKind kind);

// Seconds of a processor that this process has taken.
double processor_s();

// One line of a Markdown table; a header prints the rule under it too.
void print_row(const std::vector<std::string>& cells);
void print_header(const std::vector<std::string>& cells);
// A number with so many digits after the point; "-" where there is none.
std::string number(double value, int digits);
std::string number(const Result<PlannedStep>& step, int digits);

}  // namespace braid::reproduce
