// Reads what RL frameworks log per step: phase times, lengths, peak memory. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline foreign {

enum class LogFormat { kVerl, kNemoRl, kBraid };
Result<LogFormat> parse_log_format(const std::string& text);

// Seconds, tokens and GiB of one step; absent = not logged.
struct LoggedStep {
  int line = 0;
  std::optional<double> generate_s, logprob_s, train_s, critic_s, reshard_s, total_s;
  std::optional<double> prompt_len, output_len, max_output_len;
  std::optional<double> peak_memory_gib;
};

// JSON lines (flat, or with the metrics under "data" or "metrics", nested objects joined by '/'),
// verl's console lines "step:3 - timing_s/gen:12.5 - ...", NeMo-RL's console (bullets below "Total
// step time") or its dump {metric: {step: value}}. Steps without any phase time are skipped. Errors
// name file:line: broken JSON, a time that is not finite or negative, or no step at
// all.
Result<std::vector<LoggedStep>> parse_step_log(std::string_view text, LogFormat format,
                                               const std::string& file);

}  // namespace braid::inline foreign
