// Fused training (program/fused.h) as a last step of the search: whether weaving the two training
// calls of a found plan, or of it with their layouts in pipelines, makes the step shorter by the
// judge's word. Pure; thread-safe.
#pragma once

#include "search/plan_search.h"

namespace braid::planner {

// Tries plans with fused training against the found one and puts the best of all into `found`,
// with what was gained. Nothing is tried where the graph has not two training calls.
Status try_fusion(const PlanSpace& space, const Judge& judge, Found& found);

// One sentence, or "" where nothing was tried.
std::string fusion_text(const Found& found);

}  // namespace braid::planner
