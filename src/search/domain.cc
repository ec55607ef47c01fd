#include "search/domain.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/ceil_div.h"
#include "optimize/descent.h"

namespace braid::inline search {
namespace {

constexpr int64_t kHorizonUs = int64_t{1} << 60;  // longer than any step
constexpr double kInfeasibleFactor = 3;
constexpr int kRepairs = 400;  // changes of a random plan that does not fit

Assignment nothing_assigned(const PlanSpace& space) {
  return {std::vector<const PlanOption*>(space.calls.size(), nullptr),
          std::vector<int>(space.roles.size(), -1)};
}

int values_of(const PlanSpace& space, int coordinate) {
  const int calls = space.num_calls();
  return static_cast<int>(coordinate < calls ? space.calls[coordinate].options.size()
                                             : space.roles[coordinate - calls].stays.size());
}

void put(const PlanSpace& space, Assignment& plan, int coordinate, int value) {
  const int calls = space.num_calls();
  if (coordinate < calls) {
    plan.option[coordinate] = value < 0 ? nullptr : &space.calls[coordinate].options[value];
  } else {
    plan.stay[coordinate - calls] = value;
  }
}

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

// ---- Bounds

PlanBounder::PlanBounder(const PlanSpace& space, const std::vector<std::vector<int32_t>>& remaining,
                         Moves moves)
    : space_(space), moves_(moves) {
  for (int c = 0; c < space.num_calls(); ++c) {
    int64_t least_us = kHorizonUs, least_area = kHorizonUs;
    for (const int32_t i : remaining[c]) {
      const PlanOption& option = space.calls[c].options[i];
      least_us = std::min(least_us, option.time_us);
      least_area = std::min(least_area, option.area_us);
    }
    least_us_.push_back(least_us);
    least_area_.push_back(least_area);
  }
}

int64_t PlanBounder::segment_bound_us(const Assignment& plan, int segment, Moves moves) const {
  int64_t area = 0;
  for (const int call : space_.segments[segment]) {
    const PlanOption* option = plan.option[call];
    area += option == nullptr ? least_area_[call] : option->area_us;
  }
  const int64_t fixed_us = segment == 0 ? space_.fixed_us : 0;
  return std::max(segment_us(space_, plan, segment, least_us_, moves),
                  fixed_us + ceil_div(area, space_.num_devices()));
}

std::vector<int64_t> PlanBounder::segment_bounds_us(const Assignment& plan) const {
  std::vector<int64_t> bounds;
  for (size_t s = 0; s < space_.segments.size(); ++s)
    bounds.push_back(segment_bound_us(plan, static_cast<int>(s), moves_));
  return bounds;
}

int64_t PlanBounder::bound_us(const Assignment& plan, const std::vector<int>& segments,
                              const std::vector<int64_t>& known_us, int64_t limit_us) const {
  const int64_t known = sum(known_us);
  const auto with = [&](Moves moves) {
    int64_t total = known;
    for (const int s : segments) total += segment_bound_us(plan, s, moves) - known_us[s];
    return total;
  };
  if (moves_ == Moves::kPriced)
    if (const int64_t total = with(Moves::kFree); total >= limit_us) return total;
  return with(moves_);
}

int64_t PlanBounder::quick_bound_us(const PlanChoice& choice,
                                    const std::vector<int64_t>& known_us) const {
  const int64_t known = sum(known_us);
  if (choice.coordinate >= space_.num_calls()) return known;
  const int64_t own_us = known_us[space_.segment_of[choice.coordinate]];
  const PlanOption& option = space_.calls[choice.coordinate].options[choice.value];
  return known - own_us + std::max(own_us, option.time_us);
}

PlanRoot::PlanRoot(const PlanSpace& space, int64_t limit_us, Moves counted)
    : moves(counted), segments_of(segments_by_coordinate(space)) {
  remaining.resize(space.num_coordinates());
  for (int c = 0; c < space.num_coordinates(); ++c) {
    remaining[c].resize(values_of(space, c));
    std::iota(remaining[c].begin(), remaining[c].end(), 0);
  }
  for (bool changed = true; changed;) {
    changed = false;
    const PlanBounder bounder(space, remaining, moves);
    Assignment plan = nothing_assigned(space);
    const std::vector<int64_t> open_us = bounder.segment_bounds_us(plan);
    bound = std::min(sum(open_us), limit_us);
    for (int c = 0; c < space.num_coordinates(); ++c) {
      const auto too_dear = [&](int32_t value) {
        if (bounder.quick_bound_us({c, value}, open_us) >= limit_us) return true;
        put(space, plan, c, value);
        ++bounds;
        return excess_bytes(space, plan) > 0 ||
               bounder.bound_us(plan, segments_of[c], open_us, limit_us) >= limit_us;
      };
      std::vector<int32_t>& list = remaining[c];
      const auto end = std::remove_if(list.begin(), list.end(), too_dear);
      put(space, plan, c, -1);
      changed |= end != list.end();
      list.erase(end, list.end());
      if (!list.empty()) continue;
      bound = limit_us;
      return;
    }
  }
}

// ---- Tree

PlanTree::PlanTree(const PlanSpace& space, std::shared_ptr<const PlanRoot> root)
    : space_(space),
      root_(std::move(root)),
      bounder_(space, root_->remaining, root_->moves),
      plan_(nothing_assigned(space)) {
  order_.resize(space.num_coordinates());
  std::iota(order_.begin(), order_.end(), 0);
  const auto weight = [&](int32_t coordinate) {
    if (coordinate >= space.num_calls()) return kHorizonUs;
    return space.calls[coordinate].options.front().time_us;
  };
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int32_t a, int32_t b) { return weight(a) > weight(b); });
  segment_us_.assign(order_.size() + 1, bounder_.segment_bounds_us(plan_));
}

bool PlanTree::is_assigned(int32_t coordinate) const {
  const int calls = space_.num_calls();
  return coordinate < calls ? plan_.option[coordinate] != nullptr
                            : plan_.stay[coordinate - calls] >= 0;
}

void PlanTree::assign(const PlanChoice& choice) {
  put(space_, plan_, choice.coordinate, choice.value);
}

void PlanTree::unassign(int32_t coordinate) { put(space_, plan_, coordinate, -1); }

bool PlanTree::push(const PlanChoice& choice, int64_t limit_us) {
  assign(choice);
  path_.push_back(choice.coordinate);
  ++bounds_;
  std::vector<int64_t>& here_us = segment_us_[path_.size()];
  here_us = segment_us_[path_.size() - 1];
  for (const int s : root_->segments_of[choice.coordinate])
    here_us[s] = bounder_.segment_bound_us(plan_, s, root_->moves);
  return sum(here_us) < limit_us && excess_bytes(space_, plan_) == 0;
}

void PlanTree::pop() {
  unassign(path_.back());
  path_.pop_back();
}

int PlanTree::next_coordinate() const {
  for (const int32_t coordinate : order_)
    if (!is_assigned(coordinate)) return coordinate;
  return -1;
}

void PlanTree::expand(int64_t limit_us, Children& children) {
  children.clear();
  const int coordinate = next_coordinate();
  if (coordinate < 0) return;
  const bool is_leaf = static_cast<int>(path_.size()) + 1 == space_.num_coordinates();
  for (const int32_t value : root_->remaining[coordinate]) {
    const PlanChoice choice{coordinate, value};
    if (bounder_.quick_bound_us(choice, segment_us_[path_.size()]) >= limit_us) continue;
    assign(choice);
    ++bounds_;
    const int64_t bound_us = bounder_.bound_us(plan_, root_->segments_of[coordinate],
                                               segment_us_[path_.size()], limit_us);
    if (bound_us < limit_us && excess_bytes(space_, plan_) == 0)
      children.push_back({bound_us, choice, is_leaf});
  }
  unassign(coordinate);
  std::stable_sort(children.begin(), children.end(),
                   [](const auto& a, const auto& b) { return a.bound < b.bound; });
}

// ---- Whole plans

std::vector<std::vector<int>> segments_by_coordinate(const PlanSpace& space) {
  std::vector<std::vector<int>> out;
  for (int c = 0; c < space.num_coordinates(); ++c) {
    std::vector<int> segments;
    const bool is_call = c < space.num_calls();
    const int role = is_call ? space.calls[c].role : c - space.num_calls();
    if (!is_call || space.roles[role].home == c)
      for (const int call : space.roles[role].calls) segments.push_back(space.segment_of[call]);
    if (is_call) {
      segments.push_back(space.segment_of[c]);
      for (int later = c + 1; later < space.num_calls(); ++later)  // receives fields from c
        if (std::count(space.calls[later].after.begin(), space.calls[later].after.end(), c) > 0)
          segments.push_back(space.segment_of[later]);
    }
    std::sort(segments.begin(), segments.end());
    segments.erase(std::unique(segments.begin(), segments.end()), segments.end());
    out.push_back(std::move(segments));
  }
  return out;
}

PlanDomain::PlanDomain(const PlanSpace& space)
    : space_(space), segments_of_(segments_by_coordinate(space)) {
  int64_t fastest_us = 0;
  for (const CallSpace& call : space.calls) fastest_us += call.options.front().time_us;
  scale_us_ = std::max<int64_t>(1, fastest_us);
}

int PlanDomain::num_values(int coordinate) const { return values_of(space_, coordinate); }

PlanState PlanDomain::state_with(Choice choice) const {
  State state;
  state.plan = assignment_of(space_, choice);
  state.choice = std::move(choice);
  state.cost = {excess_bytes(space_, state.plan), 0};
  for (size_t s = 0; s < space_.segments.size(); ++s) {
    state.segment_us.push_back(segment_us(space_, state.plan, static_cast<int>(s), {}));
    state.cost.time_us += state.segment_us.back();
  }
  return state;
}

PlanState PlanDomain::random_state(RandomStream& random) const {
  Choice choice;
  for (int c = 0; c < num_coordinates(); ++c)
    choice.push_back(static_cast<int>(random.below(static_cast<uint64_t>(num_values(c)))));
  PlanState state = state_with(std::move(choice));
  for (int step = 0; step < kRepairs && state.cost.excess_bytes > 0; ++step) {
    const PlanChoice change = propose(state, random);
    if (cost_after(state, change).excess_bytes <= state.cost.excess_bytes) apply(state, change);
  }
  return state;
}

PlanState PlanDomain::fixed_start() const {
  return state_with(Choice(static_cast<size_t>(num_coordinates()), 0));
}

void PlanDomain::place(Assignment& plan, int coordinate, int value) const {
  put(space_, plan, coordinate, value);
}

PlanCost PlanDomain::cost_with(State& state, int coordinate, int value) const {
  place(state.plan, coordinate, value);
  int64_t time_us = state.cost.time_us;
  for (const int s : segments_of_[coordinate])
    time_us += segment_us(space_, state.plan, s, {}) - state.segment_us[s];
  const Cost cost{excess_bytes(space_, state.plan), time_us};
  place(state.plan, coordinate, state.choice[coordinate]);
  return cost;
}

void PlanDomain::set(State& state, int coordinate, int value) const {
  state.floored = -1;
  state.choice[coordinate] = value;
  place(state.plan, coordinate, value);
  for (const int s : segments_of_[coordinate]) {
    const int64_t us = segment_us(space_, state.plan, s, {});
    state.cost.time_us += us - state.segment_us[s];
    state.segment_us[s] = us;
  }
  state.cost.excess_bytes = excess_bytes(space_, state.plan);
}

int64_t PlanDomain::others_floor_us(State& state, int call) const {
  if (state.floored == call) return state.floor_us;
  const int own = space_.segment_of[call];
  state.floored = call;
  state.floor_us = state.cost.time_us - state.segment_us[own];
  place(state.plan, call, -1);
  for (const int s : segments_of_[call])
    if (s != own) state.floor_us += segment_us(space_, state.plan, s, {}) - state.segment_us[s];
  place(state.plan, call, state.choice[call]);
  return state.floor_us;
}

bool PlanDomain::may_cost_less(State& state, int coordinate, int value, const Cost& cost) const {
  if (cost.excess_bytes > 0) return true;
  if (coordinate < space_.num_calls() &&
      others_floor_us(state, coordinate) + space_.calls[coordinate].options[value].time_us >=
          cost.time_us)
    return false;
  place(state.plan, coordinate, value);
  int64_t time_us = state.cost.time_us;
  for (const int s : segments_of_[coordinate])
    time_us += segment_us(space_, state.plan, s, {}, Moves::kFree) - state.segment_us[s];
  const bool may = time_us < cost.time_us && excess_bytes(space_, state.plan) == 0;
  place(state.plan, coordinate, state.choice[coordinate]);
  return may;
}

PlanChoice PlanDomain::propose(const State& state, RandomStream& random) const {
  const auto coordinate =
      static_cast<int32_t>(random.below(static_cast<uint64_t>(num_coordinates())));
  const int count = num_values(coordinate);
  if (count == 1) return {coordinate, 0};
  const auto drawn = static_cast<int32_t>(random.below(static_cast<uint64_t>(count - 1)));
  return {coordinate, drawn < state.choice[coordinate] ? drawn : drawn + 1};
}

double PlanDomain::increase(const Cost& from, const Cost& to) const {
  const auto penalized = [](const Cost& cost) {
    return static_cast<double>(cost.time_us) * (cost.excess_bytes > 0 ? kInfeasibleFactor : 1);
  };
  return (penalized(to) - penalized(from)) / static_cast<double>(scale_us_);
}

std::vector<int> PlanDomain::kept(RandomStream& random) const {
  const uint64_t drawn = random.below(2 * space_.segments.size());
  if (drawn >= space_.segments.size()) return optimize::random_subset(num_coordinates(), random);
  std::vector<int> coordinates;
  for (int c = 0; c < num_coordinates(); ++c)
    if (std::count(segments_of_[c].begin(), segments_of_[c].end(), static_cast<int>(drawn)) == 0)
      coordinates.push_back(c);
  return coordinates;
}

std::shared_ptr<const PlanRoot> PlanDomain::make_root(
    int64_t limit_us, const std::shared_ptr<const PlanRoot>&) const {
  return std::make_shared<const PlanRoot>(space_, limit_us);
}

int64_t PlanDomain::limit_of(const std::optional<Cost>& cost) const {
  return cost && recordable(*cost) ? cost->time_us : kHorizonUs;
}

PlanState PlanDomain::state_of(const std::vector<PlanChoice>& path) const {
  Choice choice(static_cast<size_t>(num_coordinates()), 0);
  for (const PlanChoice& step : path) choice[step.coordinate] = step.value;
  return state_with(std::move(choice));
}

}  // namespace braid::inline search
