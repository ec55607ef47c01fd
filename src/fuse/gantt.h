// Drawings of a pipeline timeline: a Gantt chart of all nodes, and below it the memory of each node
// over time, by pipeline. Pure.
#pragma once

#include <string>

#include "schedule/pipelines.h"

namespace braid::inline fuse {

// A picture that stands for itself. REQUIRES: verify(problem, timeline) is ok.
std::string timeline_svg(const PipelineProblem& problem, const PipelineTimeline& timeline);

// The picture in a page with its numbers and the table of pipelines; needs nothing but itself.
std::string timeline_page(const PipelineProblem& problem, const PipelineTimeline& timeline,
                          const std::string& title);

}  // namespace braid::inline fuse
