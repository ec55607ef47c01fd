// Refits a calibration to one user's runs from the first logged steps, and measures on the other
// steps what that gained. Pure; thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/measurement.h"
#include "foreign/logs/log_import.h"
#include "pricing/efficiency.h"

namespace braid::inline calibrate {

inline constexpr int kRefitSteps = 3;

// Mean absolute error in per cent over the steps that were not used, before and after, of one
// phase.
struct RefitError {
  int steps = 0;
  double before_pct = 0, after_pct = 0;
};

struct RefitReport {
  Calibration calibration;                   // with offsets for the workload's engine
  std::map<std::string, double> factors;     // phase -> measured over predicted on the steps used
  std::map<std::string, RefitError> errors;  // phase ("generate", "train", ..., "memory") -> error
  bool priced = false;  // false: no workload was given, `before` is the first step's time
};

// `workload` is an rl_step row (its lengths are replaced by the logged ones, its value is not
// read); without one, phases are taken to grow with the logged lengths. Errors: fewer than four
// steps, a workload that cannot be priced.
Result<RefitReport> refit_from_log(const std::vector<LoggedStep>& steps,
                                   const std::optional<Measurement>& workload,
                                   const Calibration& calibration);

}  // namespace braid::inline calibrate
