#include "tabular/tree.h"

#include <algorithm>
#include <utility>

namespace braid::tabular {

PlanTree::PlanTree(const Model& model, const PlanRoot& root, int segment)
    : model_(model),
      root_(root),
      segment_(segment),
      bounder_(model),
      room_(model),
      levels_(size_t(kStages) * model.num_calls + 1) {
  for (int s = 0; s < static_cast<int>(model.segments.size()); ++s) {
    if (segment != kAllSegments && s != segment) continue;
    segments_.push_back(s);
    scope_ |= model.segments[s].calls;
  }
  if (!root.empty) open_root();
}

void PlanTree::open_root() {
  Level& first = levels_[0];
  first.plan = open_plan(model_, root_.groups);
  first.stage.assign(model_.num_calls, kCount);
  for (const CallGroups& call : root_.groups) {
    std::vector<int32_t>& list = first.groups.emplace_back();
    for (size_t g = 0; g < call.stages[kCount].size(); ++g) list.push_back(static_cast<int32_t>(g));
  }
  first.segment_us.resize(model_.segments.size());
  first.demand.resize(model_.segments.size());
  first.path_around_us.resize(model_.num_calls);
  for (const int s : segments_) first.total_us += first.segment_us[s] = root_.least_us[s];
  for (const int s : segments_) rebound(first, s);
}

void PlanTree::rebound(Level& here, int segment) {
  const int64_t us = std::max(bounder_.segment_us(segment, here.plan), here.segment_us[segment]);
  here.total_us += us - here.segment_us[segment];
  here.segment_us[segment] = us;
  here.demand[segment] = bounder_.demand();
  for (const SegmentNode& node : model_.segments[segment].nodes)
    if (node.pair < 0) here.path_around_us[node.call] = bounder_.path_around_us(node.call);
}

void PlanTree::rebound_those_of(Level& here, uint32_t calls) {
  for (const int s : segments_)
    if ((model_.segments[s].calls & calls) != 0) rebound(here, s);
}

// The bound when a call takes a group, given the bounds without it.
int64_t PlanTree::bound_with(Level& here, int call, Stage stage, const Group& group) {
  const CallBounds before = decide(model_, call, stage, group, here.plan);
  int64_t total_us = here.total_us;
  for (const int s : model_.segments_of[call])
    if (segment_ == kAllSegments || s == segment_)
      total_us +=
          std::max(bounder_.segment_us(s, here.plan), here.segment_us[s]) - here.segment_us[s];
  take_back(call, before, here.plan);
  ++bounds_;
  return total_us;
}

// The group in its stage; -1: not in this root.
int32_t PlanTree::find(const PlanChoice& choice) const {
  const CallGroups& groups = root_.groups[choice.call];
  if (choice.stage == kOption) return groups.place[choice.candidate];
  const auto keys = group_keys(model_.candidates[choice.call][choice.candidate], choice.candidate);
  int32_t begin = 0;
  auto end = static_cast<int32_t>(groups.stages[kCount].size());
  for (int32_t s = 0;; ++s) {
    const std::vector<Group>& stage = groups.stages[s];
    while (begin < end && stage[begin].key != keys[s]) ++begin;
    if (begin == end) return -1;
    if (s == choice.stage) return begin;
    end = stage[begin].end_child;
    begin = stage[begin].first_child;
  }
}

int32_t PlanTree::ancestor(int call, Stage stage, int32_t index, Stage of_stage) const {
  for (int32_t s = stage; s > of_stage; --s)
    index = group(call, static_cast<Stage>(s), index).parent;
  return index;
}

// Whether a group, or all that is left of it, is among what remains.
bool PlanTree::remains(const Level& here, const PlanChoice& choice, int32_t index) const {
  const Stage stage = here.stage[choice.call];
  const std::vector<int32_t>& list = here.groups[choice.call];
  if (stage == kStages || list.empty()) return false;
  if (stage > choice.stage)
    return ancestor(choice.call, stage, list.front(), choice.stage) == index;
  const int32_t above = ancestor(choice.call, choice.stage, index, stage);
  return std::find(list.begin(), list.end(), above) != list.end();
}

// Decides a stage of a call; its groups are then all children of that group.
void PlanTree::go_to(Level& here, int call, Stage stage, int32_t index) const {
  const Group& to = group(call, stage, index);
  here.stage[call] = static_cast<Stage>(stage + 1);
  here.groups[call].clear();
  if (stage == kOption) return;
  for (int32_t child = to.first_child; child < to.end_child; ++child)
    here.groups[call].push_back(child);
}

bool PlanTree::push(const PlanChoice& choice, int64_t limit_us) {
  const Level& parent = level();
  ++depth_;
  ++bounds_;
  if (root_.empty) return false;
  const int32_t index = find(choice);
  if (index < 0 || !remains(parent, choice, index)) return false;
  Level& here = level();
  here = parent;
  if (here.stage[choice.call] > choice.stage) return here.total_us < limit_us;
  const Group& to = group(choice.call, choice.stage, index);
  room_.look_at(here.plan, choice.call);
  if (!room_.fits(to)) return false;
  decide(model_, choice.call, choice.stage, to, here.plan);
  go_to(here, choice.call, choice.stage, index);
  rebound_those_of(here, uint32_t{1} << choice.call);
  return here.total_us < limit_us && filter(here, limit_us);
}

void PlanTree::pop() { --depth_; }

// Drops groups of open calls without room in memory or time, and takes the higher minima into the
// bounds.
bool PlanTree::filter(Level& here, int64_t limit_us) {
  uint32_t shorter = 0;
  for (int c = 0; c < model_.num_calls; ++c) {
    if (!in_scope(c) || here.stage[c] == kStages) continue;
    const Stage stage = here.stage[c];
    const size_t count = here.groups[c].size();
    if (!filter_call(here, c, limit_us)) return false;
    if (here.stage[c] != stage || here.groups[c].size() != count) shorter |= uint32_t{1} << c;
  }
  rebound_those_of(here, shorter);
  return here.total_us < limit_us;
}

bool PlanTree::filter_call(Level& here, int call, int64_t limit_us) {
  std::vector<int32_t>& list = here.groups[call];
  while (true) {
    const Stage stage = here.stage[call];
    room_.look_at(here.plan, call);
    const auto no_room = [&](int32_t index) {
      const Group& one = group(call, stage, index);
      return !may_stay(here, call, one.bounds, limit_us) || !room_.fits(one);
    };
    work_ += static_cast<int64_t>(list.size());
    list.erase(std::remove_if(list.begin(), list.end(), no_room), list.end());
    if (list.empty()) return false;
    CallBounds least = group(call, stage, list.front()).bounds;
    for (const int32_t index : list) take_least(least, group(call, stage, index).bounds);
    least.assigned = false;
    here.plan.calls[call] = least;
    if (list.size() > 1 || stage == kOption) return true;
    go_to(here, call, stage, int32_t{list.front()});
  }
}

bool PlanTree::may_stay(const Level& here, int call, const CallBounds& own,
                        int64_t limit_us) const {
  const int home = model_.home[call];
  if (segment_ != kAllSegments && home != segment_) return true;
  const int64_t allowed_us = limit_us - 1 - (here.total_us - here.segment_us[home]);
  if (here.path_around_us[call] + own.time_us > allowed_us) return false;
  const int64_t whole = bounder_.whole_cluster();
  const Demand& least = here.plan.calls[call].demand;
  const Demand& demand = here.demand[home];
  for (size_t k = 0; k < kDemands; ++k)
    if (demand[k] - least[k] + own.demand[k] > allowed_us * whole) return false;
  return true;
}

// Options last: until then the groups of all calls bound the plan almost as well. Before them,
// the segment that takes longest comes first, in it the earliest stage, and the longest call.
bool PlanTree::precedes(const Level& here, int call, int other) const {
  const bool last = here.stage[call] == kOption;
  if (last != (here.stage[other] == kOption)) return !last;
  if (!last && segment_ == kAllSegments && model_.home[call] != model_.home[other]) {
    const int64_t us = here.segment_us[model_.home[call]];
    const int64_t other_us = here.segment_us[model_.home[other]];
    return us != other_us ? us > other_us : model_.home[call] < model_.home[other];
  }
  if (here.stage[call] != here.stage[other]) return here.stage[call] < here.stage[other];
  return here.plan.calls[call].time_us > here.plan.calls[other].time_us;
}

int PlanTree::branching_call(const Level& here) const {
  int best = -1;
  for (int c = 0; c < model_.num_calls; ++c) {
    if (!in_scope(c) || here.stage[c] == kStages) continue;
    if (best < 0 || precedes(here, c, best)) best = c;
  }
  return best;
}

void PlanTree::expand(int64_t limit_us, Children& children) {
  children.clear();
  if (root_.empty) return;
  Level& here = level();
  const int call = branching_call(here);
  if (call < 0) return;
  const Stage stage = here.stage[call];
  const bool is_leaf = (scope_ & ~here.plan.assigned) == uint32_t{1} << call && stage == kOption;
  room_.look_at(here.plan, call);
  for (const int32_t index : here.groups[call]) {
    const Group& to = group(call, stage, index);
    if (!room_.fits(to)) continue;
    const int64_t bound_us = bound_with(here, call, stage, to);
    if (bound_us < limit_us) children.push_back({bound_us, {call, stage, to.candidate}, is_leaf});
  }
  std::stable_sort(children.begin(), children.end(),
                   [](const auto& a, const auto& b) { return a.bound < b.bound; });
}

}  // namespace braid::tabular
