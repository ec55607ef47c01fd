#include "report/metrics_log.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "host/file.h"

namespace braid {
namespace {

constexpr const char* kMetricsFile = "metrics.jsonl";

// What the console shows of a row, in this order, as far as it has it.
constexpr std::pair<const char*, const char*> kConsoleColumns[] = {
    {"reward/raw_mean", "reward"},
    {"kl/ref_k1", "kl"},
    {"policy/loss", "loss"},
    {"critic/loss", "value_loss"},
    {"reward/accuracy", "accuracy"},
    {"length/response_mean", "length"},
    {"time/step", "s"}};

Status drop_rows_from(const std::string& path, int64_t first_step) {
  if (!path_exists(path)) return ok_status();
  BRAID_ASSIGN(const std::string text, read_file(path));
  std::istringstream lines(text);
  std::string line, kept;
  while (std::getline(lines, line)) {
    const auto row = parse_json(line, path);
    if (row.ok() && row->value("step", int64_t{0}) < first_step) kept += line + "\n";
  }
  return write_file_atomic(path, kept);
}

}  // namespace

Result<MetricsLog> MetricsLog::open(const MetricsLogOptions& options, int64_t first_step) {
  BRAID_TRY(make_folder(options.folder));
  BRAID_TRY(drop_rows_from(join_path(options.folder, kMetricsFile), first_step));
  MetricsLog log(options);
  log.first_step_ = first_step;
  return log;
}

Status MetricsLog::append(const std::string& file, const Json& row) const {
  const std::string path = join_path(options_.folder, file);
  std::ofstream out(path, std::ios::app);
  out << row.dump() << "\n";
  out.flush();
  return out ? ok_status() : io_error(cat(path, ": cannot append; is the disk full?"));
}

std::string MetricsLog::console_line(int64_t step, const std::map<std::string, double>& row) const {
  std::string line = cat("step ", step + 1, "/", options_.total_steps);
  char number[64];
  for (const auto& [name, label] : kConsoleColumns) {
    const auto found = row.find(name);
    if (found == row.end()) continue;
    std::snprintf(number, sizeof number, "  %s %.4g", label, found->second);
    line += number;
  }
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double left = elapsed / static_cast<double>(step + 1 - first_step_) *
                      static_cast<double>(options_.total_steps - step - 1);
  std::snprintf(number, sizeof number, "  left %.0f s", left);
  return line + number;
}

Status MetricsLog::write(int64_t step, const std::map<std::string, double>& row) {
  if (options_.console) std::fprintf(stderr, "%s\n", console_line(step, row).c_str());
  if (!options_.jsonl) return ok_status();
  Json json = {{"step", step}};
  for (const auto& [name, value] : row)
    json[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  return append(kMetricsFile, json);
}

Status MetricsLog::write_sample(const Json& row) { return append("samples.jsonl", row); }

}  // namespace braid
