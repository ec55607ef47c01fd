// The tree of partial plans of a tabulated problem for branch and bound (optimize/branch.h): a
// level decides one more stage of one call (groups.h), a leaf is a plan with enough memory on
// every device, its cost the time of one iteration. A tree may be confined to one segment: then it
// decides only the calls that the segment depends on, and its cost is the segment's makespan. A
// root and the model are constants that threads share; a tree belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "optimize/branch.h"
#include "tabular/bound.h"
#include "tabular/memory.h"
#include "tabular/model.h"
#include "tabular/root.h"

namespace braid::tabular {

// A group, named by a candidate that is or was in it, so that a choice means the same in every
// root.
struct PlanChoice {
  int32_t call = 0;
  Stage stage = kOption;
  int32_t candidate = 0;  // index into Model::candidates
};

class PlanTree {
 public:
  using Cost = int64_t;
  using Choice = PlanChoice;
  using Children = std::vector<optimize::Child<Cost, Choice>>;

  static constexpr int kAllSegments = -1;

  // `root` must outlive the tree.
  PlanTree(const Model& model, const PlanRoot& root, int segment = kAllSegments);

  // Choices of a call may skip stages, or repeat one that has only one group left.
  bool push(const PlanChoice& choice, int64_t limit_us);
  void pop();
  void expand(int64_t limit_us, Children& children);
  // In groups looked at; bounding one costs about as much as looking at kBoundWork.
  int64_t work() const { return work_ + kBoundWork * bounds_; }
  // Partial plans bounded.
  int64_t bounds() const { return bounds_; }

 private:
  static constexpr int64_t kBoundWork = 16;

  struct Level {
    PartialPlan plan;
    std::vector<Stage> stage;                  // per call, the next to decide
    std::vector<std::vector<int32_t>> groups;  // per call, those that remain in that stage
    std::vector<int64_t> segment_us;
    std::vector<Demand> demand;           // per segment
    std::vector<int64_t> path_around_us;  // per call
    int64_t total_us = 0;
  };

  Level& level() { return levels_[depth_]; }
  const Group& group(int call, Stage stage, int32_t index) const {
    return root_.groups[call].stages[stage][index];
  }
  bool in_scope(int call) const { return (scope_ >> call & 1) != 0; }
  void open_root();
  void rebound(Level& level, int segment);
  void rebound_those_of(Level& level, uint32_t calls);
  int64_t bound_with(Level& level, int call, Stage stage, const Group& group);
  int32_t find(const PlanChoice& choice) const;
  int32_t ancestor(int call, Stage stage, int32_t index, Stage of_stage) const;
  bool remains(const Level& level, const PlanChoice& choice, int32_t index) const;
  void go_to(Level& level, int call, Stage stage, int32_t index) const;
  bool filter(Level& level, int64_t limit_us);
  bool filter_call(Level& level, int call, int64_t limit_us);
  bool may_stay(const Level& level, int call, const CallBounds& own, int64_t limit_us) const;
  int branching_call(const Level& level) const;
  bool precedes(const Level& level, int call, int other) const;

  const Model& model_;
  const PlanRoot& root_;
  int segment_;
  uint32_t scope_ = 0;         // mask of the calls to decide
  std::vector<int> segments_;  // that cost counts
  Bounder bounder_;
  MemoryRoom room_;
  std::vector<Level> levels_;
  int depth_ = 0;
  int64_t work_ = 0;
  int64_t bounds_ = 0;
};

}  // namespace braid::tabular
