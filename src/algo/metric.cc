// Metrics as sums, so that any split into micro-batches and ranks gives the same mean.
#include <algorithm>
#include <array>
#include <cmath>

#include "algo/algorithm.h"

namespace braid::inline algo {
namespace {

template <typename Sums>
auto metrics_in(Sums& sums) {
  return std::array{&sums.advantages, &sums.returns, &sums.errors, &sums.kl, &sums.mismatched};
}

}  // namespace

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

void StepSums::merge(const StepSums& other) {
  const auto from = metrics_in(other);
  const auto into = metrics_in(*this);
  for (size_t i = 0; i < into.size(); ++i) into[i]->merge(*from[i]);
}

std::vector<double> numbers_of(const StepSums& sums) {
  std::vector<double> out;
  for (const Metric* metric : metrics_in(sums))
    out.insert(out.end(), {metric->sum, metric->count, metric->squares});
  return out;
}

StepSums step_sums(const std::vector<double>& numbers) {
  BRAID_CHECK(std::ssize(numbers) == kStepSumNumbers, "sums of a step");
  StepSums out;
  auto next = numbers.begin();
  for (Metric* metric : metrics_in(out))
    for (double* number : {&metric->sum, &metric->count, &metric->squares}) *number = *next++;
  return out;
}

double reported(const std::string& name, const Metric& metric) {
  if (name.ends_with("max")) return metric.max;
  if (name.ends_with("min")) return metric.min;
  if (name == kAdvantageStd)
    return metric.count > 1 ? std::sqrt(metric.squares / (metric.count - 1)) : 0;
  return metric.mean();
}

}  // namespace braid::inline algo
