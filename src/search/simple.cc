#include "search/simple.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "search/domain.h"

namespace braid::inline search {
namespace {

constexpr size_t kOfEach = 3;
constexpr size_t kMostTraining = 6;  // layouts that generation in another one is tried with
constexpr int kMostRounds = 4;       // of taking the best value of each coordinate

using Sizes = std::tuple<int, int>;  // tp, pp

bool is_generation(const PlanSpace& space, int call) {
  return space.problem->graph.calls[space.calls[call].call.value].kind == CallKind::kGenerate;
}

// Values of a call on all devices with these sizes.
std::vector<int> values_with(const PlanSpace& space, int call, const Sizes& sizes) {
  std::vector<int> values;
  const std::vector<PlanOption>& options = space.calls[call].options;
  for (size_t i = 0; i < options.size(); ++i)
    if (options[i].devices() == space.num_devices() && Sizes(options[i].tp, options[i].pp) == sizes)
      values.push_back(static_cast<int>(i));
  return values;
}

std::set<Sizes> sizes_of(const PlanSpace& space, bool of_generation) {
  std::set<Sizes> sizes;
  for (int c = 0; c < space.num_calls(); ++c)
    for (const PlanOption& option : space.calls[c].options)
      if (is_generation(space, c) == of_generation && option.devices() == space.num_devices())
        sizes.emplace(option.tp, option.pp);
  return sizes;
}

// Each coordinate in turn takes its best value of those allowed.
std::optional<std::pair<PlanCost, Choice>> best_with(const PlanSpace& space, const Sizes& trains,
                                                     const Sizes& serves) {
  const PlanDomain domain(space);
  std::vector<std::vector<int>> allowed;
  Choice choice;
  for (int c = 0; c < space.num_coordinates(); ++c) {
    allowed.emplace_back();
    if (c < space.num_calls()) {
      allowed.back() = values_with(space, c, is_generation(space, c) ? serves : trains);
    } else {
      for (int value = 0; value < domain.num_values(c); ++value) allowed.back().push_back(value);
    }
    if (allowed.back().empty()) return std::nullopt;
    choice.push_back(allowed.back().front());
  }
  PlanState state = domain.state_with(std::move(choice));
  for (int round = 0; round < kMostRounds; ++round) {
    const PlanCost before = state.cost;
    for (int c = 0; c < space.num_coordinates(); ++c) {
      int best = domain.value(state, c);
      PlanCost least = state.cost;
      for (const int value : allowed[c]) {
        if (value == domain.value(state, c) || !domain.may_cost_less(state, c, value, least))
          continue;
        const PlanCost cost = domain.cost_with(state, c, value);
        if (!(cost < least)) continue;
        best = value;
        least = cost;
      }
      if (best != domain.value(state, c)) domain.set(state, c, best);
    }
    if (state.cost == before) break;
  }
  if (state.cost.excess_bytes > 0) return std::nullopt;
  return std::pair(state.cost, state.choice);
}

}  // namespace

std::vector<Choice> simple_choices(const PlanSpace& space) {
  std::vector<Choice> out;
  std::vector<std::pair<PlanCost, Choice>> one, two;
  std::vector<std::pair<PlanCost, Sizes>> training;
  for (const Sizes& trains : sizes_of(space, false)) {
    const auto found = best_with(space, trains, trains);
    if (found) one.push_back(*found);
    training.emplace_back(found ? found->first : PlanCost{INT64_MAX, 0}, trains);
  }
  std::sort(training.begin(), training.end());
  training.resize(std::min(training.size(), kMostTraining));
  for (const Sizes& serves : sizes_of(space, true))
    for (const auto& [cost, trains] : training)
      if (serves != trains && std::get<1>(serves) == 1)
        if (const auto found = best_with(space, trains, serves)) two.push_back(*found);
  for (auto* found : {&one, &two}) {
    std::stable_sort(found->begin(), found->end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < std::min(kOfEach, found->size()); ++i) out.push_back((*found)[i].second);
  }
  return out;
}

}  // namespace braid::inline search
