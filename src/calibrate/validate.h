// How good predictions are: error tables, decisions inside groups, coverage of intervals. Pure;
// thread-safe.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "calibrate/calibrate.h"

namespace braid::inline calibrate {

// Of 100 x (predicted / measured - 1), in per cent.
struct ErrorSummary {
  int rows = 0;
  double median = 0, mean = 0, p90 = 0;  // of the absolute error
  double bias = 0;                       // mean signed error of the logarithm, in per cent
  double bias_error = 0;                 // its standard error
};
ErrorSummary summarize_errors(const std::vector<double>& log_errors);

// Absent where the row has no measured value or is unsupported.
std::optional<double> error_pct(const Measurement& row, const Prediction& prediction);

// Pairs of rows of one group that were measured and predicted, and what choosing by prediction
// costs.
struct DecisionSummary {
  int groups = 0;
  int agreed = 0, reversed = 0, within_noise = 0;  // noise: measured times within 5 %
  double mean_regret_pct = 0, worst_regret_pct = 0;
  std::vector<std::string> lines;  // one per group
};
DecisionSummary summarize_decisions(const std::vector<Measurement>& rows,
                                    const std::vector<Prediction>& predictions);

// Share of measured rows inside their interval.
double interval_coverage(const std::vector<Measurement>& rows,
                         const std::vector<Prediction>& predictions);

struct MemorySummary {
  int measured = 0;
  double median_error_pct = 0;  // sources weighted equally
  int oom = 0, oom_called_yes = 0;
  int ran = 0, ran_called_no = 0;
  int judged = 0, uncertain = 0;
};
MemorySummary summarize_memory(const std::vector<Measurement>& rows,
                               const std::vector<Prediction>& predictions);

// Tables per kind, device and engine.
void print_errors(std::ostream& out, const std::vector<Measurement>& rows,
                  const std::vector<Prediction>& predictions);

// Fitted values: each efficiency with its prior, and the offsets that moved it by more than 2 %.
void print_fit(std::ostream& out, const Calibration& calibration);

// {"rows": [...]} as documented for `braid validate --json`.
OrderedJson validation_json(const std::vector<Measurement>& rows,
                            const std::vector<Prediction>& predictions);

// Whether a row holds the columns that its kind of prediction takes (lengths, batch, what is
// offloaded).
bool states_what_it_needs(const Measurement& row);

// One line of the table of goals.
struct Goal {
  std::string name;
  double value = 0;
  double limit = 0;
  bool met = false;
  std::string detail;
};
// Goals of a cross-validation: `unseen_engine` selects the limits for engines that the fit has not
// seen.
std::vector<Goal> check_goals(const std::vector<Measurement>& rows,
                              const std::vector<Prediction>& predictions, bool unseen_engine);
void print_goals(std::ostream& out, const std::string& title, const std::vector<Goal>& goals);

}  // namespace braid::inline calibrate
