// Sums over plain numbers in float64. Pure functions.
#pragma once

#include <vector>

#include "algo/algorithm.h"

namespace braid::inline algo {

struct Moments {
  double mean = 0;
  double variance = 0;  // unbiased (n - 1); 0 for fewer than two numbers
};
Moments moments(const std::vector<double>& values);

// Scales to variance 1 (with 1e-8 added under the root, as in TRL's masked_whiten) around the mean,
// which becomes 0 or is kept.
void whiten(std::vector<double>& values, bool keep_mean);
// The same, around 0, by the moments of more numbers than these.
void whiten(std::vector<double>& values, const Metric& all);

// 1 - Var(errors) / Var(returns); meaningless when the returns are all equal, then absent from the
// metrics.
void add_explained_variance(Metrics& metrics, const StepSums& sums);

// One entry per number.
Metric distribution(const std::vector<double>& values);

// adv/{mean,std,min,max} of the numbers that the loss will get.
void add_advantage_metrics(Metrics& metrics, const std::vector<double>& advantages);

// Indices of the members of each group, groups in the order of their first member.
std::vector<std::vector<size_t>> group_members(const std::vector<int64_t>& groups);

}  // namespace braid::inline algo
