// Fused training (program/fused.h) as a proposal beside a found plan: whether fusing its two
// training calls, or fusing them after both were put into pipelines, makes the step shorter by the
// judge's word. Beside it and not in its place: search_plans() does not fuse (search/whole.h
// does). Values; thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "search/search.h"

namespace braid::inline search {

// What holds for the found plan and shall hold for a proposal.
struct FusionOptions {
  double margin = 0;                             // share of every device's memory left free
  std::function<bool(const CallPlan&)> allowed;  // empty: every call's plan
  // Of plans with one update after the other, to choose those that are worth fusing: a cheaper
  // judge than the one of fused plans; empty: that one.
  Judge apart = {};
  // Of the search for an order: of a plan that wins, and while plans are compared, when the first
  // units find nearly all of what there is to find.
  int64_t units = Fusion().units, trial_units = 2;
  size_t fused = 4;  // plans with other pipelines that are fused, the fastest without
  std::function<bool()> stop = {};  // asked before each judgement; true: with what there is
};

struct FusionProposal {
  double step_s = 0;                // of the plan without
  std::optional<JudgedPlan> fused;  // the fastest with fused training that fits; none: none fits
  int64_t judged = 0;               // plans that the judge priced
  bool wins() const { return fused && fused->verdict.step_s < step_s; }
};

// The plan whose updates, where both have one mesh, run towards each other: the second has its last
// stage first.
ExecutionPlan facing_updates(ExecutionPlan plan, const Graph& graph);

// The same for everybody where nothing stops it: (problem, plan, judge, options). Nothing where the
// graph has not two training calls. REQUIRES: the plan is valid and step_s is the judge's for it.
// Errors: those of the judge that are not about one plan alone.
Result<std::optional<FusionProposal>> propose_fusion(const PlanningProblem& problem,
                                                     const ExecutionPlan& plan, double step_s,
                                                     const Judge& judge,
                                                     const FusionOptions& options);

// One line that says by how much, and how a plan that wins differs; it ends with a line break.
std::string fusion_text(const FusionProposal& proposal, const ExecutionPlan& plan);
OrderedJson fusion_json(const FusionProposal& proposal);

}  // namespace braid::inline search
