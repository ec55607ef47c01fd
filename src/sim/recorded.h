// Lengths of a recorded run. Pure: takes text.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "sim/simulate.h"

namespace braid {

// Reads the samples of one step, in order: rollouts.jsonl of a run (one object per sample with
// `step`, `prompt_ids` and `response_ids`), or a list with "PROMPT RESPONSE" tokens per line.
// `step` picks the step of a rollouts.jsonl; -1 takes its first. Errors name where:line.
Result<SampleLengths> parse_recorded_lengths(std::string_view text, const std::string& where,
                                             int64_t step = -1);

}  // namespace braid
