#include "search/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace braid::inline search {
namespace {

constexpr int kTries = 40;  // random plans per plan wanted
constexpr int kDescents = 12;

// Mean rank of every value, from 0.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (size_t i = first; i < end; ++i) out[order[i]] = static_cast<double>(first + end - 1) / 2;
    first = end;
  }
  return out;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<size_t>(1, values.size()));
}

}  // namespace

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mx = mean(x), my = mean(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::vector<Choice> random_plans(const PlanSpace& space, int count, uint64_t seed) {
  const PlanDomain domain(space);
  std::set<Choice> found;
  for (int i = 0; i < count * kTries && static_cast<int>(found.size()) < count; ++i) {
    RandomStream random(seed, static_cast<uint64_t>(i));
    const PlanState state = domain.random_state(random);
    if (state.cost.excess_bytes == 0) found.insert(state.choice);
  }
  return {found.begin(), found.end()};
}

std::vector<Choice> best_plans(const PlanSpace& space, int count, uint64_t seed) {
  const PlanDomain domain(space);
  std::set<std::pair<PlanCost, Choice>> found;
  for (int i = 0; i < kDescents; ++i) {
    RandomStream random(seed, static_cast<uint64_t>(i));
    PlanState state = domain.random_state(random);
    int64_t evaluations = 0;
    optimize::coordinate_descent(domain, state, random, evaluations);
    for (int c = 0; c < space.num_coordinates(); ++c) {
      int taken = 0;
      for (const Alternative& other : alternatives(space, state.choice, c, count)) {
        if (other.cost.excess_bytes > 0 || taken++ >= count) break;
        Choice changed = state.choice;
        changed[static_cast<size_t>(c)] = other.value;
        found.emplace(other.cost, std::move(changed));
      }
    }
  }
  std::vector<Choice> out;
  for (const auto& [cost, choice] : found)
    if (static_cast<int>(out.size()) < count) out.push_back(choice);
  return out;
}

RankCorrelation rank_correlation(const std::vector<Choice>& plans, const PlanSpace& space,
                                 const Judge& judge) {
  RankCorrelation report;
  std::vector<double> ours, theirs, errors;
  for (const Choice& choice : plans) {
    const Result<Verdict> verdict = judge(plan_of(space, choice));
    ++report.plans;
    if (!verdict.ok() || !verdict->fits) {
      ++report.misfits;
      continue;
    }
    const PlanCost cost = evaluate(space, assignment_of(space, choice));
    ours.push_back(static_cast<double>(cost.time_us) / 1e6);
    theirs.push_back(verdict->step_s);
    errors.push_back(std::abs(ours.back() / theirs.back() - 1));
  }
  report.correlation = spearman(ours, theirs);
  std::sort(errors.begin(), errors.end());
  if (!errors.empty()) report.median_error = errors[errors.size() / 2];
  return report;
}

}  // namespace braid::inline search
