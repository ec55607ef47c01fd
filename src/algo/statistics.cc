#include "algo/statistics.h"

#include <cmath>
#include <map>

namespace braid::inline algo {

Moments moments(const std::vector<double>& values) {
  Moments result;
  const auto count = static_cast<double>(values.size());
  if (values.empty()) return result;
  for (const double value : values) result.mean += value;
  result.mean /= count;
  if (values.size() < 2) return result;
  for (const double value : values) result.variance += std::pow(value - result.mean, 2);
  result.variance /= count - 1;
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
  return metric;
}

void add_advantage_metrics(Metrics& metrics, const std::vector<double>& advantages) {
  const Metric all = distribution(advantages);
  metrics["adv/mean"] = metrics["adv/min"] = metrics["adv/max"] = all;
  metrics["adv/std"].add(std::sqrt(moments(advantages).variance));
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
