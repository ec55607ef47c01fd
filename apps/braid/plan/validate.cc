// braid validate: predicts every row of a measurement file and reports how far off the predictions
// are.
#include <iostream>
#include <memory>

#include "base/text.h"
#include "braid/commands.h"
#include "braid/outputs.h"
#include "braid/plan/calibration_input.h"
#include "calibrate/validate.h"
#include "host/file.h"

namespace braid {
namespace {

struct ValidateArguments {
  std::string file, json_out, calibration;
  int folds = 0;
  bool leave_one_engine_out = false;
  bool decisions = false;
};

std::vector<Prediction> predict_all(const std::vector<Measurement>& rows,
                                    const Calibration& calibration) {
  std::vector<Prediction> predictions;
  for (const Measurement& row : rows) predictions.push_back(predict_row(row, calibration));
  return predictions;
}

std::vector<Prediction> predictions_of(const ValidateArguments& options,
                                       const std::vector<Measurement>& rows,
                                       const Calibration& calibration) {
  if (options.folds > 1)
    return predict_unseen(rows, folds_by_configuration(options.folds), calibration.intervals);
  if (options.leave_one_engine_out)
    return predict_unseen(
        rows, [](const Measurement& row) { return engine_family(row.engine); },
        calibration.intervals);
  return predict_all(rows, calibration);
}

Status validate(const ValidateArguments& options) {
  if (options.folds == 1 || options.folds < 0) return invalid_input("--folds must be at least 2");
  if (options.folds > 0 && options.leave_one_engine_out)
    return invalid_input("--folds and --leave-one-engine-out: choose one");
  if (!options.calibration.empty() && (options.folds > 0 || options.leave_one_engine_out))
    return invalid_input("--calibration does not go with a cross-validation, which refits");
  BRAID_TRY(check_outputs({{"--json", options.json_out}}));
  BRAID_ASSIGN(const std::string text, read_file(options.file));
  BRAID_ASSIGN(const auto rows, parse_measurements(text, options.file));
  if (options.folds > static_cast<int>(rows.size()))
    return invalid_input(cat("--folds ", options.folds, ": ", options.file, " has ", rows.size(),
                             " rows; 5 or 10 is usual"));
  BRAID_ASSIGN(const Calibration calibration, load_calibration(options.calibration));
  const std::vector<Prediction> predictions = predictions_of(options, rows, calibration);
  print_errors(std::cout, rows, predictions);
  for (const std::string& line : summarize_decisions(rows, predictions).lines)
    std::cout << line << "\n";
  print_goals(std::cout, "goals", check_goals(rows, predictions, options.leave_one_engine_out));
  if (options.json_out.empty()) return ok_status();
  return write_file_atomic(options.json_out, validation_json(rows, predictions).dump(1) + "\n");
}

Action define_validate(CLI::App& app) {
  auto options = std::make_shared<ValidateArguments>();
  app.add_option("file", options->file, "measurements in the CSV schema of docs/cost_model.md")
      ->required();
  app.add_option("--json", options->json_out, "write predictions of all rows to this file");
  app.add_option("--calibration", options->calibration,
                 "use this calibration (JSON) instead of the built-in one");
  app.add_option("--folds", options->folds,
                 "cross-validate: refit without each of K parts of the configurations");
  app.add_flag("--leave-one-engine-out", options->leave_one_engine_out,
               "cross-validate: refit without each engine");
  return [options] { return validate(*options); };
}

}  // namespace

extern const Command kValidateCommand = {
    "validate", "predict published measurements and report the errors (docs/cost_model.md)",
    define_validate};

}  // namespace braid
