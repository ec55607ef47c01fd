// Metrics as sums, so that any split into micro-batches and ranks gives the same mean.
#include <algorithm>
#include <cmath>

#include "algo/algorithm.h"

namespace braid::inline algo {

void Metric::add(double value, double weight) { merge({value * weight, weight, value, value}); }

void Metric::merge(const Metric& other) {
  if (other.count == 0) return;
  min = count == 0 ? other.min : std::min(min, other.min);
  max = count == 0 ? other.max : std::max(max, other.max);
  squares += other.squares;
  if (count != 0)
    squares += std::pow(other.mean() - mean(), 2) * count * other.count / (count + other.count);
  sum += other.sum;
  count += other.count;
}

void merge(Metrics& into, const Metrics& from) {
  for (const auto& [name, metric] : from) into[name].merge(metric);
}

double reported(const std::string& name, const Metric& metric) {
  if (name.ends_with("max")) return metric.max;
  if (name.ends_with("min")) return metric.min;
  if (name == kAdvantageStd)
    return metric.count > 1 ? std::sqrt(metric.squares / (metric.count - 1)) : 0;
  return metric.mean();
}

}  // namespace braid::inline algo
