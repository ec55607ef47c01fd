#include "tabular/domain.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "optimize/descent.h"

namespace braid::tabular {
namespace {

constexpr double kTenthOfASecondUs = 1e5;
constexpr int kInfeasibleFactor = 3;  // the published search's penalty

double penalized_us(const PlanCost& cost) {
  return static_cast<double>(cost.time_us) * (cost.excess_bytes > 0 ? kInfeasibleFactor : 1);
}

}  // namespace

PlanState PlanDomain::state_with(std::vector<int> choice) const {
  State state;
  state.choice = std::move(choice);
  for (int c = 0; c < model_.num_calls; ++c)
    state.chosen.push_back(model_.candidates[c][state.choice[c]]);
  for (const CompiledSegment& segment : model_.segments)
    state.segment_us.push_back(segment_time_us(model_, segment, state.chosen, state.scratch));
  state.cost =
      price(state, std::accumulate(state.segment_us.begin(), state.segment_us.end(), int64_t{0}));
  return state;
}

PlanCost PlanDomain::price(const State& state, int64_t time_us) const {
  const int64_t capacity = model_.problem->device_memory_bytes;
  return {.excess_bytes = std::max<int64_t>(0, peak_bytes(state.chosen) - capacity),
          .time_us = time_us};
}

PlanState PlanDomain::random_state(RandomStream& random) const {
  std::vector<int> choice;
  for (int c = 0; c < model_.num_calls; ++c)
    choice.push_back(static_cast<int>(random.below(num_values(c))));
  return state_with(std::move(choice));
}

PlanState PlanDomain::fixed_start() const {
  return state_with(std::vector<int>(model_.num_calls, 0));
}

PlanCost PlanDomain::cost_with(State& state, int call, int value) const {
  const Candidate present = std::exchange(state.chosen[call], model_.candidates[call][value]);
  int64_t time_us = state.cost.time_us;
  for (const int s : model_.segments_of[call])
    time_us += segment_time_us(model_, model_.segments[s], state.chosen, state.scratch) -
               state.segment_us[s];
  const Cost cost = price(state, time_us);
  state.chosen[call] = present;
  return cost;
}

void PlanDomain::set(State& state, int call, int value) const {
  state.choice[call] = value;
  state.chosen[call] = model_.candidates[call][value];
  int64_t time_us = state.cost.time_us;
  for (const int s : model_.segments_of[call]) {
    time_us -= state.segment_us[s];
    state.segment_us[s] = segment_time_us(model_, model_.segments[s], state.chosen, state.scratch);
    time_us += state.segment_us[s];
  }
  state.cost = price(state, time_us);
}

bool PlanDomain::may_cost_less(const State& state, int call, int value, const Cost& cost) const {
  if (cost.excess_bytes > 0 || model_.segments_of[call].size() > 1) return true;
  const int64_t others_us = state.cost.time_us - state.segment_us[model_.home[call]];
  return others_us + model_.candidates[call][value].time_us < cost.time_us;
}

PlanChange PlanDomain::propose(const State& state, RandomStream& random) const {
  int64_t total = 0;
  for (int c = 0; c < model_.num_calls; ++c) total += num_values(c) - 1;
  if (total == 0) return {.call = 0, .value = state.choice[0]};
  auto drawn = static_cast<int64_t>(random.below(static_cast<uint64_t>(total)));
  int call = 0;
  for (; drawn >= num_values(call) - 1; ++call) drawn -= num_values(call) - 1;
  const int value = static_cast<int>(drawn);
  return {.call = call, .value = value < state.choice[call] ? value : value + 1};
}

double PlanDomain::increase(const Cost& from, const Cost& to) const {
  const double tenths =
      (penalized_us(to) - penalized_us(from)) * model_.problem->iterations / kTenthOfASecondUs;
  return published_rule_ ? std::floor(tenths) : tenths;
}

std::vector<int> PlanDomain::kept(RandomStream& random) const {
  const uint64_t drawn = random.below(2 * model_.segments.size());
  if (drawn >= model_.segments.size()) return optimize::random_subset(num_coordinates(), random);
  std::vector<int> calls;
  for (int c = 0; c < model_.num_calls; ++c)
    if ((model_.segments[drawn].calls >> c & 1) == 0) calls.push_back(c);
  return calls;
}

std::shared_ptr<const PlanRoot> PlanDomain::make_root(
    int64_t limit_us, const std::shared_ptr<const PlanRoot>& before) const {
  auto root = std::make_shared<PlanRoot>(model_, limit_us, before.get());
  if (!before) root->raise_segments(model_, limit_us);
  return root;
}

int64_t PlanDomain::limit_of(const std::optional<Cost>& cost) const {
  return cost && recordable(*cost) ? cost->time_us : model_.horizon_us;
}

PlanState PlanDomain::state_of(const std::vector<PlanChoice>& path) const {
  std::vector<int> choice(model_.num_calls, 0);
  for (const PlanChoice& step : path)
    if (step.stage == kOption) choice[step.call] = step.candidate;
  return state_with(std::move(choice));
}

}  // namespace braid::tabular
