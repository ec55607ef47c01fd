// The tree of partial plans of a tabulated problem for branch and bound (optimize/branch.h): a
// level gives one more call its candidate, a leaf is a plan with enough memory on every device, its
// cost the time of one iteration. A root and the model are constants that threads share; a tree
// belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optimize/branch.h"
#include "search/table_bound.h"
#include "search/table_memory.h"
#include "search/table_model.h"

namespace braid::table {

struct PlanChoice {
  int32_t call = 0;
  int32_t candidate = 0;  // index into Model::candidates of the call
};

// Per call, the candidates still possible; indices into Model::candidates, ascending.
using Remaining = std::vector<std::vector<int32_t>>;

// Candidates of plans that may cost less than a limit: those whose own bound reaches it are gone,
// until nothing changes.
struct PlanRoot {
  PlanRoot(const Model& model, int64_t limit_us);
  Remaining remaining;
  int64_t bound = 0;  // microseconds; at most the cost of every plan that costs less than the limit
};

class PlanTree {
 public:
  using Cost = int64_t;
  using Choice = PlanChoice;
  using Children = std::vector<optimize::Child<Cost, Choice>>;

  PlanTree(const Model& model, std::shared_ptr<const PlanRoot> root);

  bool push(const PlanChoice& choice, int64_t limit_us);
  void pop();
  void expand(int64_t limit_us, Children& children);
  // In candidates looked at; bounding one costs about as much as looking at kBoundWork.
  int64_t work() const { return work_ + kBoundWork * bounds_; }
  // Partial plans bounded.
  int64_t bounds() const { return bounds_; }

 private:
  static constexpr int64_t kBoundWork = 16;

  struct Level {
    PartialPlan plan;
    Remaining remaining;
    std::vector<int64_t> segment_us;
    std::vector<SegmentDemand> demand;    // per segment
    std::vector<int64_t> path_around_us;  // per call
    int64_t total_us = 0;
  };

  Level& level() { return levels_[depth_]; }
  void rebound(Level& level, int segment);
  void rebound_all(Level& level);
  bool filter(const Remaining& before, Level& level, int64_t limit_us);
  bool may_stay(const Level& level, int call, const CallBounds& own, int64_t limit_us) const;
  int branching_call(const Level& level) const;

  const Model& model_;
  std::shared_ptr<const PlanRoot> root_;
  Bounder bounder_;
  MemoryRoom room_;
  std::vector<Level> levels_;
  int depth_ = 0;
  int64_t work_ = 0;
  int64_t bounds_ = 0;
};

}  // namespace braid::table
