#include "algo/statistics.h"

#include <cmath>
#include <map>

namespace braid::inline algo {
namespace {

double squared_distances(const std::vector<double>& values, double mean) {
  double sum = 0;
  for (const double value : values) sum += std::pow(value - mean, 2);
  return sum;
}

// Unbiased, as in Moments.
double variance(const Metric& metric) {
  return metric.count < 2 ? 0 : metric.squares / (metric.count - 1);
}

void whiten_by(const Moments& m, bool keep_mean, std::vector<double>& values) {
  const double scale = 1 / std::sqrt(m.variance + 1e-8);
  for (double& value : values) value = (value - m.mean) * scale + (keep_mean ? m.mean : 0);
}

}  // namespace

Moments moments(const std::vector<double>& values) {
  Moments result;
  const auto count = static_cast<double>(values.size());
  if (values.empty()) return result;
  for (const double value : values) result.mean += value;
  result.mean /= count;
  if (values.size() < 2) return result;
  result.variance = squared_distances(values, result.mean) / (count - 1);
  return result;
}

void whiten(std::vector<double>& values, bool keep_mean) {
  whiten_by(moments(values), keep_mean, values);
}

void whiten(std::vector<double>& values, const Metric& all) {
  whiten_by({all.mean(), variance(all)}, false, values);
}

void add_explained_variance(Metrics& metrics, const StepSums& sums) {
  const double total = variance(sums.returns);
  if (total != 0) metrics["critic/explained_var"].add(1 - variance(sums.errors) / total);
}

Metric distribution(const std::vector<double>& values) {
  Metric metric;
  for (const double value : values) metric.add(value);
  metric.squares = squared_distances(values, metric.mean());  // rounds less than what is merged
  return metric;
}

void add_advantage_metrics(Metrics& metrics, const std::vector<double>& advantages) {
  const Metric all = distribution(advantages);
  for (const char* name : {"adv/mean", "adv/min", "adv/max", kAdvantageStd}) metrics[name] = all;
}

std::vector<std::vector<size_t>> group_members(const std::vector<int64_t>& groups) {
  std::map<int64_t, size_t> place;
  std::vector<std::vector<size_t>> members;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto [found, added] = place.emplace(groups[i], members.size());
    if (added) members.emplace_back();
    members[found->second].push_back(i);
  }
  return members;
}

}  // namespace braid::inline algo
