// What each part of the plan space adds, and the best plan of single systems beside ours, on
// clusters of 8 to 128 devices. Everything is a function of its arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiment.h"
#include "restrictions.h"

namespace braid::reproduce {

struct AblationPoint {
  std::string algorithm, model;
  int gpus = 8;
  bool long_responses = false;
};
// 8, 32 and 128 devices, 7B to 70B, PPO and GRPO, short and long responses; in an order in which
// the first few have all of these sizes.
std::vector<AblationPoint> ablation_points();
Result<PlanningProblem> ablation_problem(const AblationPoint& point);
std::string words_of(const AblationPoint& point);

struct SystemResult {
  std::string name;
  std::optional<JudgedPlan> best;    // of its space; none: no plan fits
  std::optional<Verdict> published;  // of its published plan; none: there is none
};

struct AblationResult {
  // Seconds of the fastest plan with one layout, and with a part more each: layouts, placement,
  // offload, fused training, hand-over, predicted lengths, training beside scoring, staleness.
  // Infinite where none fits.
  std::vector<double> steps_s;
  JudgedPlan ours;   // all of these but staleness
  JudgedPlan stale;  // all of these
  std::vector<SystemResult> systems;
  double longest_search_s = 0;
  std::string longest_search;    // its space
  double best_system_s() const;  // infinite where no plan of any fits
};
const std::vector<std::string>& ablation_steps();

// Prices whose constants, but those of memory, are a fifth higher or lower, drawn by the number.
Calibration perturbed(const Calibration& calibration, uint64_t draw);
// Of other prices than those that a plan was made for: the seconds of the plan over those of the
// best restricted plan, found with these prices.
Result<double> regret(const PlanningProblem& problem, const ExecutionPlan& plan,
                      const Calibration& prices, const SearchBudget& budget);

// `clock`: seconds, for longest_search_s alone.
using Clock = std::function<double()>;
Result<AblationResult> run_ablation(const PlanningProblem& problem, const Calibration& calibration,
                                    const SearchBudget& budget, const Clock& clock);

}  // namespace braid::reproduce
