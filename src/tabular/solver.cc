#include "tabular/solver.h"

#include <algorithm>

#include "base/text.h"
#include "tabular/domain.h"

namespace braid::tabular {
namespace {

using optimize::Method;

// Annealing cools from accepting a loss of 5 % in one of e proposals to one of 0.05 %.
constexpr double kFirstLoss = 0.05;
constexpr double kLastLoss = 0.0005;
constexpr int64_t kAnnealingSteps = 200'000;
// Bounds rise slowly where several calls run side by side: a good plan is worth more at first.
constexpr int64_t kRestlessUnits = 64;

optimize::PortfolioOptions portfolio_options(const PlanDomain& domain,
                                             const SolveOptions& options) {
  optimize::PortfolioOptions out;
  out.method = options.method;
  out.seed = options.seed;
  out.restless_units = kRestlessUnits;
  if (options.method == Method::kMetropolis) {
    out.walk.steps = options.walk_steps;
    out.walk.inverse_temperature = {options.inverse_temperature, options.inverse_temperature};
  } else {
    const PlanCost start = domain.cost(domain.fixed_start());
    const double tenths = std::max(domain.increase({}, start), 1e-6);
    out.walk.steps = kAnnealingSteps;
    out.walk.inverse_temperature = {1 / (kFirstLoss * tenths), 1 / (kLastLoss * tenths)};
  }
  return out;
}

std::string why_infeasible(const Problem& problem, const Solution& solution) {
  const char* claim = solution.proven ? "no plan fits into device memory"
                                      : "no plan that fits into device memory was found";
  return cat(claim, ": the best found needs ",
             format_bytes(static_cast<double>(solution.price->peak_bytes)), " of ",
             format_bytes(static_cast<double>(problem.device_memory_bytes)));
}

Solution report(const Problem& problem, const optimize::Portfolio<PlanDomain>& portfolio) {
  Solution solution;
  solution.proven = portfolio.proven();
  solution.lower_bound_us = portfolio.lower_bound() * problem.iterations;
  solution.plans_priced = portfolio.evaluations();
  solution.bounds_computed = portfolio.bounds();
  for (const auto& step : portfolio.log())
    solution.log.push_back({.unit = step.unit,
                            .elapsed_s = step.elapsed_s,
                            .feasible = step.cost.excess_bytes == 0,
                            .cost_us = step.cost.time_us * problem.iterations});
  if (!portfolio.best()) return solution;
  solution.plan = plan_of(portfolio.best()->chosen);
  solution.price = price_plan(problem, *solution.plan);
  BRAID_CHECK(solution.price->cost_us == portfolio.cost()->time_us * problem.iterations,
              "the fast evaluator differs from the literal one");
  if (!solution.price->feasible) solution.infeasible_reason = why_infeasible(problem, solution);
  return solution;
}

Solution proven_infeasible(const std::string& reason) {
  Solution solution;
  solution.proven = true;
  solution.infeasible_reason = reason;
  return solution;
}

}  // namespace

Result<Solution> solve(const Problem& problem, const SolveOptions& options) {
  const bool published = options.method == Method::kMetropolis;
  Result<Model> model = compile_model(problem, published ? Pruning::kNone : Pruning::kLossless);
  if (model.status().code() == Code::kInfeasible)
    return proven_infeasible(model.status().message());
  if (!model.ok()) return model.status();
  const PlanDomain domain(*model, published);
  optimize::Portfolio<PlanDomain> portfolio(domain, portfolio_options(domain, options));
  const optimize::UnitReport units = run_units(portfolio, options.units);
  Solution solution = report(problem, portfolio);
  solution.units = units.units;
  return solution;
}

}  // namespace braid::tabular
