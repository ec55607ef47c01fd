// Samples for rewards, read from JSON lines. Pure functions of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reward/reward.h"

namespace braid::inline reward {

// One sample per non-blank line: {"prompt", "response", optionally "prompt_ids", "response_ids",
// "truncated"}; a prompt is text or a list of messages; lines one after another with the same
// prompt are a group. Every other field becomes part of `extra`. sample_id is the 0-based number of
// the line. Where label_key is not "label", its field is also offered as "label". Errors name file
// and line.
Result<std::vector<RewardSample>> parse_samples(std::string_view text, const std::string& file,
                                                const std::string& label_key = "label");

}  // namespace braid::inline reward
