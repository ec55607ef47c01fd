// Samples of plans, and how well the evaluator orders them compared with a judge. Pure.
#pragma once

#include <vector>

#include "search/search.h"

namespace braid::inline search {

// Distinct plans that fit, each drawn at random (PlanDomain::random_state). Fewer than `count`
// where the space has no more.
std::vector<Choice> random_plans(const PlanSpace& space, int count, uint64_t seed);
// Distinct plans that fit, the best that descents and their neighbourhoods find under the
// evaluator.
std::vector<Choice> best_plans(const PlanSpace& space, int count, uint64_t seed);

struct RankCorrelation {
  int plans = 0;            // compared
  int misfits = 0;          // left out: the judge says that they do not fit
  double correlation = 0;   // Spearman's, ties at their mean rank
  double median_error = 0;  // |evaluator / judge - 1|
};
RankCorrelation rank_correlation(const std::vector<Choice>& plans, const PlanSpace& space,
                                 const Judge& judge);

// Spearman's rank correlation of two lists of equal length.
double spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace braid::inline search
