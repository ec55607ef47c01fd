// A run's numbers as they appear: one JSON line per step in metrics.jsonl, TensorBoard events, a
// child process, texts in samples.jsonl, and one line per step on the console with progress and
// time left. Not thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "report/command_log.h"
#include "report/event_file.h"

namespace braid::inline report {

struct MetricsLogOptions {
  std::string folder;  // of the run
  bool jsonl = true;
  bool console = true;
  std::string names = "braid";  // whose names the files and child processes have: metric_names.h
  int64_t total_steps = 0;      // for progress and time left
  bool tensorboard = false;
  std::vector<CommandLogOptions> commands;  // child processes that get each row
};

using MetricsRow = std::map<std::string, double>;

// "step 12/60 [##......] 20%  reward 0.42 ...", with the times of a step's phases, longest first.
// left_s is the time left; below 0 = not known yet.
std::string console_line(const MetricsRow& row, int64_t step, int64_t total_steps, double left_s);

class MetricsLog {
 public:
  // Appends to the files of the folder; rows from `first_step` on, which a resumed run repeats, are
  // dropped first. Errors: rows that are left have names of another kind than options.names.
  static Result<MetricsLog> open(const MetricsLogOptions& options, int64_t first_step);

  // One row, with the peak memory of the process added as perf/peak_rss_gb; a value that is not
  // finite is written as null.
  Status write(int64_t step, MetricsRow row);
  Status write_sample(const Json& row);
  // What the ranks did and held in a step, to ranks.jsonl, where rows are written as JSON.
  Status write_ranks(const Json& row);

  // The last step whose row metrics.jsonl had when it was opened; -1 where there was none.
  int64_t last_step() const { return last_step_; }

  // Ends the child processes; call it once after the last row.
  Status finish();

 private:
  explicit MetricsLog(const MetricsLogOptions& options) : options_(options) {}
  Status append(const std::string& file, const Json& row) const;
  Result<MetricsRow> named(MetricsRow row);  // as it is written
  double seconds_left(int64_t step) const;   // below 0 before the first step

  MetricsLogOptions options_;
  std::map<std::string, std::string> ours_;  // our names of those that were written
  std::optional<EventFile> events_;
  std::vector<CommandLog> commands_;
  int64_t first_step_ = 0;
  int64_t last_step_ = -1;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace braid::inline report
