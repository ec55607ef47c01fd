// Two evaluations on the same prompts beside each other: by how much they differ, and how sure that
// is. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scoring/evaluate.h"

namespace braid::inline scoring {

// By metric, a value for each prompt: the mean over its responses; NaN where none has one.
// REQUIRES: the report is of these options.
using PromptMeans = std::map<std::string, std::vector<double>>;
PromptMeans prompt_means(const EvalReport& report, const EvalConfig& eval);

struct PairedDifference {
  double mean = 0;            // of the first minus the second, over prompts that both have
  double standard_error = 0;  // of that mean, from the spread of the prompts' differences
  int64_t prompts = 0;        // below 2: there is no standard error
};
// REQUIRES: values of the same prompts.
PairedDifference paired_difference(const std::vector<double>& first,
                                   const std::vector<double>& second);

}  // namespace braid::inline scoring
