// Pipeline problems and their schedules as JSON, the formats of `braid fuse` (docs/fuse.md). Pure;
// the reader takes text.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "schedule/pipelines.h"

namespace braid::inline fuse {

// Reads one problem and checks its form; check_problem checks its numbers, once the caller has put
// its own memory limit in. Errors name `where`, the pipeline, the key and the remedy.
Result<PipelineProblem> parse_pipeline_problem(std::string_view text, const std::string& where);

// The problem in the reader's format, with numbers per stage.
OrderedJson pipeline_problem_json(const PipelineProblem& problem);

// What a schedule file says beside the ops.
struct TimelineSummary {
  double makespan = 0;
  double lower_bound = 0;
  double peak_memory = 0;  // highest of all nodes
};

// {"makespan", "lower_bound", "peak_memory", "nodes": [[op, ...], ...]}.
OrderedJson timeline_json(const PipelineTimeline& timeline, const TimelineSummary& summary);

}  // namespace braid::inline fuse
