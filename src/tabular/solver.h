// Solves a tabulated plan-search problem: compiles it, runs a portfolio of searches in work units
// and reports the best plan with a lower bound. The result is a function of (problem, options that
// change results, units completed).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "optimize/portfolio.h"
#include "tabular/price.h"
#include "tabular/problem.h"

namespace braid::tabular {

struct SolveOptions {
  optimize::Method method = optimize::Method::kAuto;
  uint64_t seed = 1;
  double inverse_temperature =
      0.001;  // of Metropolis walks, per tenth of a second of cost (README of the tables)
  int64_t walk_steps = 2'000'000;  // proposals of one Metropolis walk, which is one unit
  optimize::UnitOptions units;     // threads, limits, clock
};

struct CostLogEntry {
  int64_t unit = 0;
  double elapsed_s = 0;
  bool feasible = false;
  int64_t cost_us = 0;  // all iterations
};

struct Solution {
  std::optional<Plan>
      plan;  // the cheapest that fits; else the one with the least excess of memory; else none
  std::optional<Price> price;  // of `plan`
  bool proven = false;         // nothing cheaper fits; without a fitting plan: none exists
  int64_t lower_bound_us =
      0;  // no fitting plan costs less (all iterations); meaningless if proven infeasible
  std::string infeasible_reason;  // why there is no fitting plan; empty if there is one
  int64_t plans_priced = 0;
  int64_t bounds_computed = 0;
  int64_t units = 0;
  std::vector<CostLogEntry> log;  // improvements, in order of unit
};

Result<Solution> solve(const Problem& problem, const SolveOptions& options);

}  // namespace braid::tabular
