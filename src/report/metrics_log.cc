#include "report/metrics_log.h"

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "foreign/keys/metric_names.h"
#include "host/file.h"
#include "host/machine.h"
#include "report/json_rows.h"
#include "report/metric_names.h"

namespace braid::inline report {
namespace {

constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kSamplesFile = "samples.jsonl";
constexpr const char* kRanksFile = "ranks.jsonl";

// Whose names the folder's rows have, and what each of them is here.
struct WrittenNames {
  std::string names = "braid";
  std::map<std::string, std::string> ours;
};

Result<WrittenNames> written_names(const std::string& folder) {
  WrittenNames out;
  const std::string path = join_path(folder, kMetricNamesFile);
  if (!path_exists(path)) return out;
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(const Json json, parse_json(text, path));
  BRAID_ASSIGN(out.names, json_field<std::string>(json, "names").at(path));
  BRAID_ASSIGN(const Json ours, json_field<Json>(json, "ours").at(path));
  for (const auto& [theirs, name] : ours.items())
    if (name.is_string()) out.ours[theirs] = name.get<std::string>();
  return out;
}

}  // namespace

Result<MetricsLog> MetricsLog::open(const MetricsLogOptions& options, int64_t first_step) {
  BRAID_TRY(make_folder(options.folder));
  MetricsLog log(options);
  BRAID_ASSIGN(WrittenNames written, written_names(options.folder));
  const std::string metrics = join_path(options.folder, kMetricsFile);
  const std::string samples = join_path(options.folder, kSamplesFile);
  BRAID_ASSIGN(const KeptRows kept, rows_before(metrics, first_step));
  if (!kept.text.empty() && written.names != options.names)
    return invalid_input(cat("log.names: the rows of ", metrics, " have the names of ",
                             written.names, ", and the run would go on with those of ",
                             options.names, "; write log.names: ", written.names,
                             ", or another run.name"));
  // Before anything of an earlier run goes: a program that does not start ends this one.
  for (const CommandLogOptions& command : options.commands) {
    BRAID_ASSIGN(CommandLog child, CommandLog::start(command));
    log.commands_.push_back(std::move(child));
  }
  BRAID_ASSIGN(const KeptRows kept_samples, rows_before(samples, first_step));
  BRAID_TRY(keep_rows(samples, kept_samples));
  BRAID_TRY(drop_rows_from(join_path(options.folder, kRanksFile), first_step).status());
  BRAID_TRY(keep_rows(metrics, kept));
  if (kept.text.empty())
    std::filesystem::remove(join_path(options.folder, kMetricNamesFile));
  else
    log.ours_ = std::move(written.ours);
  log.last_step_ = kept.last_step;
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

Result<MetricsRow> MetricsLog::named(MetricsRow row) {
  if (options_.names == "braid") return row;
  MetricsRow out;
  const size_t known = ours_.size();
  for (const auto& [ours, value] : row) {
    const std::string theirs = metric_name(ours, options_.names);
    const bool free = out.emplace(theirs, value).second;  // of two the second keeps its own
    if (!free) out[ours] = value;
    if (free && theirs != ours) ours_[theirs] = ours;
  }
  if (ours_.size() > known)
    BRAID_TRY(write_file_atomic(join_path(options_.folder, kMetricNamesFile),
                                Json({{"names", options_.names}, {"ours", ours_}}).dump(1) + "\n"));
  return out;
}

Status MetricsLog::write(int64_t step, MetricsRow row) {
  row["perf/peak_rss_gb"] = static_cast<double>(peak_memory_bytes()) / 1e9;
  if (options_.console)
    std::fprintf(stderr, "%s\n",
                 console_line(row, step, options_.total_steps, seconds_left(step)).c_str());
  BRAID_ASSIGN(const MetricsRow written, named(std::move(row)));
  Json json = {{"step", step}};
  for (const auto& [name, value] : written)
    json[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  if (options_.jsonl) BRAID_TRY(append(kMetricsFile, json));
  if (events_) BRAID_TRY(events_->write(step, written));
  for (CommandLog& command : commands_) BRAID_TRY(command.write(json));
  return ok_status();
}

Status MetricsLog::write_sample(const Json& row) { return append(kSamplesFile, row); }

Status MetricsLog::write_ranks(const Json& row) {
  return options_.jsonl ? append(kRanksFile, row) : ok_status();
}

Status MetricsLog::finish() {
  for (CommandLog& command : commands_) BRAID_TRY(command.finish());
  return ok_status();
}

}  // namespace braid::inline report
