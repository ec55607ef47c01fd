#include "tabular/root.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "tabular/memory.h"
#include "tabular/tree.h"

namespace braid::tabular {
namespace {

constexpr int kRounds = 4;  // of dropping candidates, each with the bounds that the last one left

constexpr int64_t kSegmentWork = 12'000'000;  // of searching a segment alone
constexpr int64_t kSegmentPiece = 200'000;    // of one visit to its lowest open node
constexpr int kFewCalls = 1;                  // a segment of so few is easy within the whole

// Walks the groups of calls and keeps candidates of groups whose bound stays below the limit.
class Shortening {
 public:
  Shortening(const Model& model, const PlanRoot& root, int64_t limit_us)
      : model_(model),
        bounder_(model),
        room_(model),
        root_(root),
        limit_us_(limit_us),
        plan_(open_plan(model, root.groups)) {
    for (size_t s = 0; s < model.segments.size(); ++s)
      segment_us_.push_back(
          std::max(root.least_us[s], bounder_.segment_us(static_cast<int>(s), plan_)));
    total_us_ = std::accumulate(segment_us_.begin(), segment_us_.end(), int64_t{0});
  }

  int64_t bound_us() const { return total_us_; }
  const std::vector<int64_t>& segment_us() const { return segment_us_; }

  std::vector<int32_t> kept(int call) {
    std::vector<int32_t> list;
    room_.look_at(plan_, call);
    const auto count = static_cast<int32_t>(root_.groups[call].stages[kCount].size());
    for (int32_t g = 0; g < count; ++g) visit(call, kCount, g, list);
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  void visit(int call, Stage stage, int32_t index, std::vector<int32_t>& list) {
    const Group& group = root_.groups[call].stages[stage][index];
    if (!room_.fits(group) || bound_with(call, stage, group) >= limit_us_) return;
    if (stage == kOption) return list.push_back(group.key);
    for (int32_t child = group.first_child; child < group.end_child; ++child)
      visit(call, static_cast<Stage>(stage + 1), child, list);
  }

  int64_t bound_with(int call, Stage stage, const Group& group) {
    const CallBounds before = decide(model_, call, stage, group, plan_);
    int64_t total_us = total_us_;
    for (const int s : model_.segments_of[call])
      total_us += std::max(bounder_.segment_us(s, plan_), segment_us_[s]) - segment_us_[s];
    take_back(call, before, plan_);
    return total_us;
  }

  const Model& model_;
  Bounder bounder_;
  MemoryRoom room_;
  const PlanRoot& root_;
  int64_t limit_us_;
  PartialPlan plan_;
  std::vector<int64_t> segment_us_;
  int64_t total_us_ = 0;
};

}  // namespace

PlanRoot::PlanRoot(const Model& model, int64_t limit_us, const PlanRoot* before) {
  if (before != nullptr) {
    remaining = before->remaining;
    groups = before->groups;
    least_us = before->least_us;
    empty = before->empty;
  } else {
    least_us.assign(model.segments.size(), 0);
    remaining.resize(model.num_calls);
    for (int c = 0; c < model.num_calls; ++c) {
      remaining[c].resize(model.candidates[c].size());
      std::iota(remaining[c].begin(), remaining[c].end(), 0);
    }
    group(model);
  }
  bool changed = !empty;
  for (int round = 0; changed && round < kRounds; ++round) changed = shorten(model, limit_us);
  if (empty) bound = limit_us;
}

void PlanRoot::raise_segments(const Model& model, int64_t limit_us) {
  std::vector<int> hard;
  for (int s = 0; s < static_cast<int>(model.segments.size()); ++s)
    if (std::popcount(model.segments[s].calls) > kFewCalls) hard.push_back(s);
  if (hard.size() < 2) return;
  for (const int s : hard) {
    if (empty) return;
    const int64_t others_us =
        std::accumulate(least_us.begin(), least_us.end(), int64_t{0}) - least_us[s];
    PlanTree tree(model, *this, s);
    const int64_t least =
        optimize::least_cost(tree, limit_us - others_us, kSegmentWork, kSegmentPiece);
    bounds += tree.bounds();
    least_us[s] = std::max(least_us[s], least);
    empty = others_us + least_us[s] >= limit_us;
  }
  if (!empty) shorten(model, limit_us);
  if (empty) bound = limit_us;
}

void PlanRoot::group(const Model& model) {
  groups.clear();
  for (int c = 0; c < model.num_calls; ++c)
    groups.push_back(group_candidates(model, c, remaining[c]));
}

bool PlanRoot::shorten(const Model& model, int64_t limit_us) {
  Shortening shortening(model, *this, limit_us);
  least_us = shortening.segment_us();
  bound = std::min(shortening.bound_us(), limit_us);
  bool changed = false;
  for (int c = 0; c < model.num_calls; ++c) {
    std::vector<int32_t> kept = shortening.kept(c);
    changed |= kept.size() != remaining[c].size();
    remaining[c] = std::move(kept);
    empty |= remaining[c].empty();
  }
  if (!empty && changed) group(model);
  return changed && !empty;
}

PartialPlan open_plan(const Model& model, const std::vector<CallGroups>& groups) {
  PartialPlan plan;
  plan.chosen.resize(model.num_calls);
  for (const CallGroups& call : groups) {
    const std::vector<Group>& widest = call.stages[kCount];
    plan.calls.push_back(widest.front().bounds);
    for (const Group& group : widest) take_least(plan.calls.back(), group.bounds);
    plan.calls.back().assigned = false;
  }
  return plan;
}

CallBounds decide(const Model& model, int call, Stage stage, const Group& group,
                  PartialPlan& plan) {
  const CallBounds before = std::exchange(plan.calls[call], group.bounds);
  if (stage != kOption) return before;
  plan.assigned |= uint32_t{1} << call;
  plan.chosen[call] = model.candidates[call][group.key];
  return before;
}

void take_back(int call, const CallBounds& before, PartialPlan& plan) {
  plan.assigned &= ~(uint32_t{1} << call);
  plan.calls[call] = before;
}

}  // namespace braid::tabular
