// Fits the efficiencies to measurements: maximum a posteriori with the priors and shrinkage of
// efficiency.h, on errors of the logarithm, robust against outliers. Collectives first, then
// training, generation and RL steps. Deterministic: the same rows in any order give the same fit up
// to rounding. Pure; thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "calibrate/measurement.h"
#include "calibrate/predict.h"
#include "pricing/efficiency.h"

namespace braid::inline calibrate {

struct FitOptions {
  double noise = 0.08;         // expected standard deviation of ln(measured / predicted)
  double approx_noise = 0.16;  // the same for rows marked approx
};

// Efficiencies from the rows that can be priced; others are left out. Memory rows fit the memory
// model.
Calibration fit_calibration(const std::vector<Measurement>& rows, const FitOptions& options = {});

// Predictions of every row by a fit that has not seen its part; part(row) names the part, rows with
// "" are never left out. Intervals are those of `intervals`.
std::vector<Prediction> predict_unseen(const std::vector<Measurement>& rows,
                                       const std::function<std::string(const Measurement&)>& part,
                                       const std::map<std::string, double>& intervals);

// The part of a row in k-fold cross-validation by configuration: rows that differ only in engine
// release, result or note stay together.
std::function<std::string(const Measurement&)> folds_by_configuration(int folds);

// fit_calibration() with the 80 % intervals measured on unseen configurations and unseen engines.
Calibration calibrated(const std::vector<Measurement>& rows);

// ln(measured / predicted) as far as both exist. Reads the measured value.
std::optional<double> log_error(const Measurement& row, const Prediction& prediction);

}  // namespace braid::inline calibrate
