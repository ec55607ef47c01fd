// A step of a recorded run: its lengths, and what else its order of instructions depends on. Pure:
// takes text.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "config/options.h"
#include "plan/execution_plan.h"
#include "sim/simulate.h"

namespace braid::inline sim {

struct RecordedStep {
  SampleLengths lengths;
  int64_t step = -1;  // -1: the record does not say
};

// Reads the samples of one step, in order: rollouts.jsonl of a run (one object per sample with
// `step`, `prompt_ids` and `response_ids`), or a list with "PROMPT RESPONSE" tokens per line.
// `step` picks the step of a rollouts.jsonl; -1 takes its first. Errors name where:line.
Result<RecordedStep> parse_recorded_step(std::string_view text, const std::string& where,
                                         int64_t step = -1);

// What the runtime adds to a plan for one device: limits of generation that the plan leaves open
// are those of `rollout`, and a cache without a budget has room for max_concurrent of the longest
// sequence among the recorded ones. Other plans stay as they are.
void take_engine_limits(const RolloutConfig& rollout, const RecordedStep* recorded,
                        PlanningProblem* problem, ExecutionPlan* plan);

// Training calls that a run of this configuration leaves out at this step (critic.warmup_steps).
std::set<std::string> idle_calls(const Config& config, const Graph& graph, int64_t step);

}  // namespace braid::inline sim
