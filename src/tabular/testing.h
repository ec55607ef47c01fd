// Problems for the tests of the tabulated search: small ones of many graph shapes with small
// numbers, so that equal times, conflicts and infeasible plans are common.
#pragma once

#include <optional>

#include "base/json.h"
#include "base/rng.h"
#include "tabular/problem.h"

namespace braid::tabular {

// PPO, GRPO, ReMax, a wide graph, chains, train calls that wait for parts of the rest, train calls
// without partner or in front of inference.
inline constexpr int kNumShapes = 8;

struct RandomProblem {
  int shape = 0;
  uint64_t seed = 1;
  int options = 5;  // per call
  int devices = 4;
  int64_t capacity = 24;  // bytes; below about 12 many problems have no feasible plan
};
OrderedJson random_problem_json(const RandomProblem& wanted);
Problem random_problem(const RandomProblem& wanted);

Plan random_plan(const Problem& problem, RandomStream& random);

// The cheapest feasible plan's cost by pricing all plans literally; none when no plan fits.
std::optional<int64_t> enumerate_optimum(const Problem& problem);

}  // namespace braid::tabular
