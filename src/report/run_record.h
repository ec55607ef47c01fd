// What a run has left in its folder, read for a report: rows of metrics and samples, what was
// predicted, the plan and the configuration. A run that still writes is read as far as its last
// complete line. Free functions over values; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline report {

struct RunRecord {
  std::string name;           // the folder's, or as much of its path as tells it from others
  std::vector<Json> metrics;  // rows by step, ascending
  std::vector<Json> samples;
  Json predicted;                      // of predicted.json; null where there is none
  std::vector<Json> ranks;             // of ranks.jsonl, by step
  std::vector<Json> warnings;          // of warnings.jsonl
  Json about;                          // of about.json; null where there is none
  std::string config;                  // text of config.yaml
  std::vector<std::string> nonfinite;  // files of updates that were refused
  int64_t total_steps = 0;             // of config.yaml; 0 where it does not say
  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// kNotFound where the folder has no metrics.jsonl or the file has no row; other errors name file
// and line.
Result<RunRecord> read_run(const std::string& folder);

// The runs of several folders, with names that tell them apart. Errors: those of read_run(), and a
// folder that is given twice.
Result<std::vector<RunRecord>> read_runs(const std::vector<std::string>& folders);

// The shortest end of each path that no other has: "toy" and "ppo", or "a/toy" and "b/toy". Equal
// paths keep equal names.
std::vector<std::string> names_apart(const std::vector<std::string>& folders);

// Whether the run has completed its last step.
bool complete(const RunRecord& run);

// A remark about a run: what was seen, in which metric, and what to do about it. The limits are
// those of docs/reading_a_run.md, "A report".
struct Finding {
  std::string metric, text;
  friend bool operator==(const Finding&, const Finding&) = default;
};
std::vector<Finding> findings(const RunRecord& run);

// The texts of the run's warnings, each once, in the order in which they came.
std::vector<std::string> warning_texts(const RunRecord& run);

// The limits in words, as a report and that page list them.
struct FindingLimit {
  std::string what, limit;
};
std::vector<FindingLimit> finding_limits();

}  // namespace braid::inline report
