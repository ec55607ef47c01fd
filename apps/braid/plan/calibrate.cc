// braid calibrate: fits the efficiencies of the cost model to measurements, or refits them to one
// user's logged steps.
#include <iomanip>
#include <iostream>
#include <memory>

#include "braid/commands.h"
#include "braid/outputs.h"
#include "calibrate/refit.h"
#include "calibrate/validate.h"
#include "host/file.h"

namespace braid {
namespace {

struct CalibrateArguments {
  std::vector<std::string> files;
  std::string out, report, from_log, workload;
};

Result<std::vector<Measurement>> read_rows(const std::vector<std::string>& files) {
  std::vector<Measurement> rows;
  for (const std::string& file : files) {
    BRAID_ASSIGN(const std::string text, read_file(file));
    BRAID_ASSIGN(const auto part, parse_measurements(text, file));
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

// A path that ends in .cc gets the source file that builds the result into the program.
Status write_calibration(const Calibration& calibration, const std::string& path) {
  if (path.empty()) return ok_status();
  const bool source = path.size() > 3 && path.compare(path.size() - 3, 3, ".cc") == 0;
  return write_file_atomic(path, source ? calibration_source(calibration)
                                        : calibration_json(calibration).dump(1) + "\n");
}

Status fit_measurements(const CalibrateArguments& options) {
  if (!options.workload.empty()) return invalid_input("--workload goes with --from-log only");
  BRAID_ASSIGN(const auto rows, read_rows(options.files));
  const Calibration calibration = calibrated(rows);
  std::vector<Prediction> predictions;
  for (const Measurement& row : rows) predictions.push_back(predict_row(row, calibration));
  std::ostringstream report;
  report << "fit on " << rows.size()
         << " rows, errors on the same rows (see `braid validate --folds` for unseen ones)\n";
  print_errors(report, rows, predictions);
  print_fit(report, calibration);
  std::cout << report.str();
  BRAID_TRY(write_calibration(calibration, options.out));
  return options.report.empty() ? ok_status() : write_file_atomic(options.report, report.str());
}

Result<std::optional<Measurement>> read_workload(const std::string& path) {
  if (path.empty()) return std::optional<Measurement>();
  BRAID_ASSIGN(const auto rows, read_rows({path}));
  if (rows.size() != 1)
    return invalid_input(cat(path, ": a workload is one row of kind rl_step, found ", rows.size()));
  if (rows.front().kind != MeasurementKind::kRlStep)
    return invalid_input(cat(path, ":", rows.front().line,
                             ": a workload is a row of kind rl_step, is ",
                             kind_name(rows.front().kind)));
  return std::optional<Measurement>(rows.front());
}

void print_refit(const RefitReport& report) {
  std::cout << (report.priced ? "before: the built-in calibration\n"
                              : "before: the time of the first step (no --workload given)\n")
            << "after:  refit from the first " << kRefitSteps << " steps\n"
            << std::left << std::setw(12) << "phase" << std::right << std::setw(8) << "steps"
            << std::setw(12) << "before %" << std::setw(12) << "after %" << std::setw(12)
            << "factor"
            << "\n"
            << std::fixed << std::setprecision(2);
  for (const auto& [phase, error] : report.errors)
    std::cout << std::left << std::setw(12) << phase << std::right << std::setw(8) << error.steps
              << std::setw(12) << error.before_pct << std::setw(12) << error.after_pct
              << std::setw(12) << report.factors.at(phase) << "\n";
}

Status refit_log(const CalibrateArguments& options) {
  if (!options.report.empty())
    return invalid_input("--report does not go with --from-log, which prints its errors");
  if (options.files.size() != 1) return invalid_input("--from-log takes one log file");
  BRAID_ASSIGN(const LogFormat format, parse_log_format(options.from_log));
  BRAID_ASSIGN(const std::string text, read_file(options.files.front()));
  BRAID_ASSIGN(const auto steps, parse_step_log(text, format, options.files.front()));
  BRAID_ASSIGN(const auto workload, read_workload(options.workload));
  BRAID_ASSIGN(const RefitReport report,
               refit_from_log(steps, workload, committed_calibration()).at(options.files.front()));
  print_refit(report);
  return write_calibration(report.calibration, options.out);
}

Action define_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateArguments>();
  app.add_option("files", options->files, "measurement files (CSV), or one log with --from-log")
      ->required();
  app.add_option("--out", options->out,
                 "write the calibration: JSON, or C++ source for a name ending in .cc");
  app.add_option("--report", options->report, "write the fit report to this file");
  app.add_option("--from-log", options->from_log,
                 "refit from a log of this framework: verl, nemo-rl or braid");
  app.add_option("--workload", options->workload,
                 "with --from-log: CSV with the one rl_step row that the log is of");
  return [options] {
    BRAID_TRY(check_outputs({{"--out", options->out}, {"--report", options->report}}));
    return options->from_log.empty() ? fit_measurements(*options) : refit_log(*options);
  };
}

}  // namespace

extern const Command kCalibrateCommand = {
    "calibrate", "fit the cost model to measurements or to logged steps (docs/cost_model.md)",
    define_calibrate};

}  // namespace braid
