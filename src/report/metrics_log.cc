#include "report/metrics_log.h"

#include <cmath>
#include <cstdio>
#include <sstream>

#include "base/text.h"
#include "host/file.h"
#include "host/machine.h"

namespace braid::inline report {
namespace {

constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kSamplesFile = "samples.jsonl";

// Returns the last step that is left, -1 for none.
Result<int64_t> drop_rows_from(const std::string& path, int64_t first_step) {
  int64_t last = -1;
  if (!path_exists(path)) return last;
  BRAID_ASSIGN(const std::string text, read_file(path));
  std::istringstream lines(text);
  std::string line, kept;
  while (std::getline(lines, line)) {
    const auto row = parse_json(line, path);
    const int64_t step = row.ok() ? row->value("step", int64_t{0}) : first_step;
    if (step >= first_step) continue;
    kept += line + "\n";
    last = step;
  }
  BRAID_TRY(write_file_atomic(path, kept));
  return last;
}

}  // namespace

Result<MetricsLog> MetricsLog::open(const MetricsLogOptions& options, int64_t first_step) {
  BRAID_TRY(make_folder(options.folder));
  MetricsLog log(options);
  // Before anything of an earlier run goes: a program that does not start ends this one.
  for (const CommandLogOptions& command : options.commands) {
    BRAID_ASSIGN(CommandLog child, CommandLog::start(command));
    log.commands_.push_back(std::move(child));
  }
  BRAID_TRY(drop_rows_from(join_path(options.folder, kSamplesFile), first_step).status());
  BRAID_ASSIGN(log.last_step_, drop_rows_from(join_path(options.folder, kMetricsFile), first_step));
  log.first_step_ = first_step;
  if (options.tensorboard) {
    BRAID_ASSIGN(log.events_,
                 EventFile::create(join_path(options.folder, "tensorboard"), first_step));
  }
  return log;
}

Status MetricsLog::append(const std::string& file, const Json& row) const {
  return append_file(join_path(options_.folder, file), row.dump() + "\n");
}

double MetricsLog::seconds_left(int64_t step) const {
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const int64_t done = step + 1 - first_step_;
  if (done <= 0) return -1;
  return elapsed / static_cast<double>(done) * static_cast<double>(options_.total_steps - step - 1);
}

Status MetricsLog::write(int64_t step, MetricsRow row) {
  row["perf/peak_rss_gb"] = static_cast<double>(peak_memory_bytes()) / 1e9;
  if (options_.console)
    std::fprintf(stderr, "%s\n",
                 console_line(row, step, options_.total_steps, seconds_left(step)).c_str());
  Json json = {{"step", step}};
  for (const auto& [name, value] : row)
    json[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  if (options_.jsonl) BRAID_TRY(append(kMetricsFile, json));
  if (events_) BRAID_TRY(events_->write(step, row));
  for (CommandLog& command : commands_) BRAID_TRY(command.write(json));
  return ok_status();
}

Status MetricsLog::write_sample(const Json& row) { return append(kSamplesFile, row); }

Status MetricsLog::finish() {
  for (CommandLog& command : commands_) BRAID_TRY(command.finish());
  return ok_status();
}

}  // namespace braid::inline report
