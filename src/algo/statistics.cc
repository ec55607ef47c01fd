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
  const Moments m = moments(values);
  const double scale = 1 / std::sqrt(m.variance + 1e-8);
  for (double& value : values) value = (value - m.mean) * scale + (keep_mean ? m.mean : 0);
}

void add_explained_variance(Metrics& metrics, const std::vector<double>& values,
                            const std::vector<double>& returns) {
  const double total = moments(returns).variance;
  if (total == 0) return;
  std::vector<double> errors(values.size());
  for (size_t i = 0; i < values.size(); ++i) errors[i] = returns[i] - values[i];
  metrics["critic/explained_var"].add(1 - moments(errors).variance / total);
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
