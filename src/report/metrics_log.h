// A run's numbers as they appear: one JSON line per step in metrics.jsonl, texts in samples.jsonl,
// one line per step on the console with progress and time left. Not thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace braid {

struct MetricsLogOptions {
  std::string folder;  // of the run
  bool jsonl = true;
  bool console = true;
  int64_t total_steps = 0;  // for progress and time left
};

class MetricsLog {
 public:
  // Appends to the files of the folder; rows from `first_step` on, which a resumed run repeats, are
  // dropped first.
  static Result<MetricsLog> open(const MetricsLogOptions& options, int64_t first_step);

  // One row; a value that is not finite is written as null.
  Status write(int64_t step, const std::map<std::string, double>& row);
  Status write_sample(const Json& row);

 private:
  explicit MetricsLog(const MetricsLogOptions& options) : options_(options) {}
  Status append(const std::string& file, const Json& row) const;
  std::string console_line(int64_t step, const std::map<std::string, double>& row) const;

  MetricsLogOptions options_;
  int64_t first_step_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace braid
