// What all trees of partial plans share for one limit: the candidates of plans that may cost less,
// grouped, and what each segment takes at least in such plans. Immutable once made; safe to share.
#pragma once

#include <cstdint>
#include <vector>

#include "tabular/groups.h"
#include "tabular/model.h"

namespace braid::tabular {

// Per call, the candidates still possible; indices into Model::candidates, ascending.
using Remaining = std::vector<std::vector<int32_t>>;

struct PlanRoot {
  // Candidates whose own bound reaches the limit are gone. `before`: an earlier root, for a limit
  // at least as high; may be null.
  PlanRoot(const Model& model, int64_t limit_us, const PlanRoot* before);

  // Searches each of several segments alone, within a budget, for the least that it can take.
  // REQUIRES: the limit that the root was made for.
  void raise_segments(const Model& model, int64_t limit_us);

  Remaining remaining;
  std::vector<CallGroups> groups;  // per call, of `remaining`
  std::vector<int64_t> least_us;   // per segment
  int64_t bound = 0;  // microseconds; at most the cost of every plan that costs less than the limit
  bool empty = false;  // there is no such plan
  int64_t bounds = 0;  // partial plans that raise_segments bounded

 private:
  bool shorten(const Model& model, int64_t limit_us);
  void group(const Model& model);
};

// A plan in which nothing is decided.
PartialPlan open_plan(const Model& model, const std::vector<CallGroups>& groups);

// Puts what is known of a call, or the candidate of a group of the last stage, into a plan; hands
// back what was known before.
CallBounds decide(const Model& model, int call, Stage stage, const Group& group, PartialPlan& plan);
void take_back(int call, const CallBounds& before, PartialPlan& plan);

}  // namespace braid::tabular
