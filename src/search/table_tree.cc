#include "search/table_tree.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace braid::table {
namespace {

void take_candidates(const Model& model, int call, const std::vector<int32_t>& remaining,
                     PartialPlan& plan) {
  CallBounds least = no_candidates();
  for (const int32_t i : remaining)
    take_least(least, bounds_of(model.candidates[call][i], model.problem->num_devices));
  plan.calls[call] = least;
}

void assign(const Model& model, PlanChoice choice, PartialPlan& plan) {
  plan.assigned |= uint32_t{1} << choice.call;
  plan.chosen[choice.call] = model.candidates[choice.call][choice.candidate];
  plan.calls[choice.call] = bounds_of(plan.chosen[choice.call], model.problem->num_devices);
  plan.calls[choice.call].assigned = true;
}

void unassign(int call, const CallBounds& before, PartialPlan& plan) {
  plan.assigned &= ~(uint32_t{1} << call);
  plan.calls[call] = before;
}

PartialPlan open_plan(const Model& model, const Remaining& remaining) {
  PartialPlan plan{.chosen = std::vector<Candidate>(model.num_calls),
                   .calls = std::vector<CallBounds>(model.num_calls)};
  for (int c = 0; c < model.num_calls; ++c) take_candidates(model, c, remaining[c], plan);
  return plan;
}

// The plan's bound when `call` takes a candidate, given the bounds of all segments without it.
int64_t bound_with(const Model& model, Bounder& bounder, PartialPlan& plan, PlanChoice choice,
                   const std::vector<int64_t>& segment_us, int64_t total_us) {
  const CallBounds before = plan.calls[choice.call];
  assign(model, choice, plan);
  for (const int s : model.segments_of[choice.call])
    total_us += std::max(bounder.segment_us(s, plan), segment_us[s]) - segment_us[s];
  unassign(choice.call, before, plan);
  return total_us;
}

// One pass of PlanRoot over all candidates; whether any went. Sets the bound.
class RootPass {
 public:
  RootPass(const Model& model, Remaining& remaining, int64_t limit_us)
      : model_(model),
        bounder_(model),
        remaining_(remaining),
        limit_us_(limit_us),
        plan_(open_plan(model, remaining)) {
    for (size_t s = 0; s < model.segments.size(); ++s)
      segment_us_.push_back(bounder_.segment_us(static_cast<int>(s), plan_));
    total_us_ = std::accumulate(segment_us_.begin(), segment_us_.end(), int64_t{0});
  }

  int64_t bound_us() const { return total_us_; }

  bool run() {
    bool changed = false;
    for (int c = 0; c < model_.num_calls; ++c) changed |= shorten(c);
    return changed;
  }

 private:
  bool shorten(int call) {
    std::vector<int32_t>& list = remaining_[call];
    const auto too_dear = [&](int32_t i) {
      return bound_with(model_, bounder_, plan_, {call, i}, segment_us_, total_us_) >= limit_us_;
    };
    const auto end = std::remove_if(list.begin(), list.end(), too_dear);
    const bool changed = end != list.end();
    list.erase(end, list.end());
    return changed;
  }

  const Model& model_;
  Bounder bounder_;
  Remaining& remaining_;
  int64_t limit_us_;
  PartialPlan plan_;
  std::vector<int64_t> segment_us_;
  int64_t total_us_ = 0;
};

bool any_empty(const Remaining& remaining) {
  return std::any_of(remaining.begin(), remaining.end(), [](const auto& l) { return l.empty(); });
}

}  // namespace

PlanRoot::PlanRoot(const Model& model, int64_t limit_us) {
  remaining.resize(model.num_calls);
  for (int c = 0; c < model.num_calls; ++c) {
    remaining[c].resize(model.candidates[c].size());
    std::iota(remaining[c].begin(), remaining[c].end(), 0);
  }
  for (bool changed = true; changed;) {
    RootPass pass(model, remaining, limit_us);
    bound = std::min(pass.bound_us(), limit_us);
    changed = pass.run();
    if (any_empty(remaining)) {
      bound = limit_us;
      return;
    }
  }
}

PlanTree::PlanTree(const Model& model, std::shared_ptr<const PlanRoot> root)
    : model_(model), root_(std::move(root)), bounder_(model), room_(model) {
  levels_.resize(model.num_calls + 1);
  Level& first = levels_[0];
  first.remaining = root_->remaining;
  first.plan = open_plan(model, first.remaining);
  first.segment_us.resize(model.segments.size());
  first.demand.resize(model.segments.size());
  first.path_around_us.resize(model.num_calls);
  if (!any_empty(first.remaining)) rebound_all(first);
}

void PlanTree::rebound(Level& level, int segment) {
  const int64_t us = std::max(bounder_.segment_us(segment, level.plan), level.segment_us[segment]);
  level.total_us += us - level.segment_us[segment];
  level.segment_us[segment] = us;
  level.demand[segment] = bounder_.demand();
  for (const SegmentNode& node : model_.segments[segment].nodes)
    if (node.pair < 0) level.path_around_us[node.call] = bounder_.path_around_us(node.call);
}

void PlanTree::rebound_all(Level& level) {
  for (size_t s = 0; s < model_.segments.size(); ++s) rebound(level, static_cast<int>(s));
}

bool PlanTree::push(const PlanChoice& choice, int64_t limit_us) {
  const Level& parent = level();
  ++depth_;
  Level& here = level();
  here.plan = parent.plan;
  here.segment_us = parent.segment_us;
  here.demand = parent.demand;
  here.path_around_us = parent.path_around_us;
  here.total_us = parent.total_us;
  here.remaining.resize(model_.num_calls);
  assign(model_, choice, here.plan);
  for (const int s : model_.segments_of[choice.call]) rebound(here, s);
  return here.total_us < limit_us && filter(parent.remaining, here, limit_us);
}

void PlanTree::pop() { --depth_; }

// Drops candidates of open calls without room in memory or time, and takes the higher minima into
// the bounds.
bool PlanTree::filter(const Remaining& before, Level& here, int64_t limit_us) {
  room_.look_at(here.plan);
  for (int c = 0; c < model_.num_calls; ++c) {
    if (here.plan.calls[c].assigned) continue;
    std::vector<int32_t>& list = here.remaining[c];
    list.clear();
    CallBounds least = no_candidates();
    for (const int32_t i : before[c]) {
      const Candidate& candidate = model_.candidates[c][i];
      const CallBounds own = bounds_of(candidate, model_.problem->num_devices);
      if (!room_.fits(candidate) || !may_stay(here, c, own, limit_us)) continue;
      list.push_back(i);
      take_least(least, own);
    }
    work_ += static_cast<int64_t>(before[c].size());
    if (list.empty()) return false;
    here.plan.calls[c] = least;
  }
  rebound_all(here);
  return here.total_us < limit_us;
}

bool PlanTree::may_stay(const Level& here, int call, const CallBounds& own,
                        int64_t limit_us) const {
  const int home = model_.home[call];
  const int64_t allowed_us = limit_us - 1 - (here.total_us - here.segment_us[home]);
  if (here.path_around_us[call] + own.time_us > allowed_us) return false;
  const int64_t num_devices = model_.problem->num_devices;
  const CallBounds& least = here.plan.calls[call];
  const SegmentDemand& demand = here.demand[home];
  return demand.area - least.area + own.area <= allowed_us * num_devices &&
         demand.wide_area - least.wide_area + own.wide_area <= 2 * allowed_us;
}

// The open call that is longest even at its fastest: its choice moves the bound most.
int PlanTree::branching_call(const Level& here) const {
  int best = -1;
  for (int c = 0; c < model_.num_calls; ++c) {
    if (here.plan.calls[c].assigned) continue;
    if (best < 0 || here.plan.calls[c].time_us > here.plan.calls[best].time_us) best = c;
  }
  return best;
}

void PlanTree::expand(int64_t limit_us, Children& children) {
  children.clear();
  Level& here = level();
  if (depth_ == 0 && any_empty(here.remaining)) return;
  const int call = branching_call(here);
  const bool is_leaf = depth_ + 1 == model_.num_calls;
  bounds_ += static_cast<int64_t>(here.remaining[call].size());
  for (const int32_t i : here.remaining[call]) {
    const PlanChoice choice{call, i};
    const int64_t bound_us =
        bound_with(model_, bounder_, here.plan, choice, here.segment_us, here.total_us);
    if (bound_us < limit_us) children.push_back({bound_us, choice, is_leaf});
  }
  std::stable_sort(children.begin(), children.end(),
                   [](const auto& a, const auto& b) { return a.bound < b.bound; });
}

}  // namespace braid::table
