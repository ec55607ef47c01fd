#include "calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "base/units.h"
#include "calibrate/least_squares.h"

namespace braid::inline calibrate {
namespace {

constexpr double kNudge = 1e-3;  // of a logarithm, for derivatives

// A knob of one row and the parameters whose sum moves it.
struct RowKnob {
  const Knob* knob = nullptr;
  std::vector<int> parameters;
};

// What a row says about the quantity: its value, or a bound (a run that fitted, or that ran out of
// memory).
enum class Bound { kExact, kAtMost, kAtLeast };

struct FitRow {
  PredictionCase work;
  Efficiency start;  // with the stages before this one fitted
  double log_measured = 0;
  Bound bound = Bound::kExact;
  double noise = 0;
  std::vector<RowKnob> knobs;
};

class Parameters {
 public:
  int index(const OffsetTerm& term) {
    const auto [found, added] = index_.emplace(term.name, static_cast<int>(spread_.size()));
    if (added) {
      names_.push_back(term.name);
      spread_.push_back(term.spread);
    }
    return found->second;
  }
  const std::vector<double>& spread() const { return spread_; }
  const std::string& name(size_t i) const { return names_[i]; }

 private:
  std::map<std::string, int> index_;
  std::vector<std::string> names_;
  std::vector<double> spread_;
};

Efficiency efficiency_at(const FitRow& row, const std::vector<double>& at) {
  Efficiency efficiency = row.start;
  for (const RowKnob& knob : row.knobs) {
    double sum = 0;
    for (const int index : knob.parameters) sum += at[index];
    efficiency.*knob.knob->member *= std::exp(sum);
  }
  return efficiency;
}

double log_prediction(const FitRow& row, const Efficiency& efficiency) {
  const auto predicted = predict_case(row.work, efficiency);
  return predicted.ok() ? std::log(*predicted) : row.log_measured;
}

Residual row_residual(const FitRow& row, const std::vector<double>& at) {
  Efficiency efficiency = efficiency_at(row, at);
  const double base = log_prediction(row, efficiency);
  Residual residual;
  residual.value = row.log_measured - base;
  if (row.bound == Bound::kAtMost && residual.value >= 0) return {};
  if (row.bound == Bound::kAtLeast && residual.value <= 0) return {};
  for (const RowKnob& knob : row.knobs) {
    double& value = efficiency.*knob.knob->member;
    const double kept = value;
    value *= std::exp(kNudge);
    const double slope = (log_prediction(row, efficiency) - base) / kNudge;
    value = kept;
    if (slope == 0) continue;
    for (const int index : knob.parameters) residual.slopes.emplace_back(index, slope);
  }
  return residual;
}

// A bound keeps this far from the limit of the device, a little more than predictions call
// uncertain.
constexpr double kBoundMargin = 0.07;

// Sets what the row measured; false where it measured nothing that a fit can use.
bool set_target(const Measurement& row, const FitOptions& options, FitRow* fit) {
  fit->noise = row.approx ? options.approx_noise : options.noise;
  if (!row.is_memory) {
    if (row.value) fit->log_measured = std::log(*row.value);
    return row.value.has_value();
  }
  const double limit_gib = usable_bytes(fit->work.gpu.hbm_bytes, fit->start) / kGib;
  if (!row.peak_memory_gib) {
    if (row.memory_kind != "oom" && row.memory_kind != "fits") return false;
    fit->bound = row.memory_kind == "oom" ? Bound::kAtLeast : Bound::kAtMost;
    fit->log_measured =
        std::log(limit_gib) + (row.memory_kind == "oom" ? kBoundMargin : -kBoundMargin);
    return true;
  }
  fit->log_measured = std::log(*row.peak_memory_gib);
  constexpr double kFullCard = 0.97;  // a reserve near the limit says only that the card is full
  if (row.memory_kind != "allocated" && *row.peak_memory_gib > kFullCard * limit_gib)
    fit->bound = Bound::kAtLeast;
  return true;
}

std::vector<FitRow> stage_rows(const std::vector<Measurement>& rows, FitStage stage,
                               const Calibration& calibration, const FitOptions& options) {
  std::vector<FitRow> out;
  std::map<std::string, int> per_source;
  for (const Measurement& row : rows) ++per_source[row.source];
  for (const Measurement& row : rows) {
    auto work = resolve_row(row);
    if (!work.ok() || fit_stage(*work) != stage) continue;
    FitRow fit;
    fit.start = resolve_efficiency(calibration, work->key);
    fit.work = std::move(*work);
    if (!set_target(row, options, &fit) || !predict_case(fit.work, fit.start).ok()) continue;
    // Sources of memory figures count about equally: many rows of one source are one kind of
    // evidence.
    if (row.is_memory) fit.noise *= std::pow(per_source[row.source], 0.25);
    out.push_back(std::move(fit));
  }
  return out;
}

void fit_stage_of(const std::vector<Measurement>& rows, FitStage stage, const FitOptions& options,
                  Calibration* calibration) {
  std::vector<FitRow> fit_rows = stage_rows(rows, stage, *calibration, options);
  Parameters parameters;
  LeastSquaresProblem problem;
  for (FitRow& row : fit_rows) {
    for (const Knob& knob : knobs()) {
      if (knob.stage != stage || knob.spread <= 0) continue;
      RowKnob row_knob{&knob, {}};
      for (const OffsetTerm& term : offset_terms(knob, row.work.key))
        row_knob.parameters.push_back(parameters.index(term));
      row.knobs.push_back(std::move(row_knob));
    }
    problem.noise.push_back(row.noise);
  }
  problem.residuals = static_cast<int>(fit_rows.size());
  problem.prior_spread = parameters.spread();
  problem.residual = [&](int index, const std::vector<double>& at) {
    return row_residual(fit_rows[index], at);
  };
  const std::vector<double> solution = solve_least_squares(problem);
  for (size_t i = 0; i < solution.size(); ++i)
    if (std::abs(solution[i]) > 1e-4) calibration->offsets[parameters.name(i)] = solution[i];
}

std::vector<std::string> seen_engines(const std::vector<Measurement>& rows) {
  std::set<std::string> engines;
  for (const Measurement& row : rows) engines.insert(row.engine);
  return {engines.begin(), engines.end()};
}

// A stable hash of text (FNV-1a), so that folds do not depend on the order of rows.
uint64_t stable_hash(const std::string& text) {
  uint64_t hash = 1469598103934665603ull;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return hash ^ (hash >> 29);
}

// Half width that holds 80 % of the absolute errors.
double eighty_percent(std::vector<double> errors) {
  std::sort(errors.begin(), errors.end());
  const double at = 0.8 * (errors.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, errors.size() - 1);
  return errors[low] + (at - low) * (errors[high] - errors[low]);
}

void measure_intervals(const std::vector<Measurement>& rows,
                       const std::vector<Prediction>& predictions, const char* seen,
                       std::map<std::string, double>* intervals) {
  std::map<std::string, std::vector<double>> errors;
  for (size_t i = 0; i < rows.size(); ++i)
    if (const auto error = log_error(rows[i], predictions[i]))
      errors[cat(interval_kind(rows[i]), "/", seen)].push_back(std::abs(*error));
  constexpr size_t kFewest = 5;
  for (auto& [key, values] : errors)
    if (values.size() >= kFewest) (*intervals)[key] = eighty_percent(std::move(values));
}

}  // namespace

Calibration fit_calibration(const std::vector<Measurement>& rows, const FitOptions& options) {
  Calibration calibration;
  for (const FitStage stage : {FitStage::kCollective, FitStage::kTrain, FitStage::kGenerate,
                               FitStage::kRl, FitStage::kMemory})
    fit_stage_of(rows, stage, options, &calibration);
  calibration.engines = seen_engines(rows);
  return calibration;
}

std::vector<Prediction> predict_unseen(const std::vector<Measurement>& rows,
                                       const std::function<std::string(const Measurement&)>& part,
                                       const std::map<std::string, double>& intervals) {
  std::map<std::string, std::vector<size_t>> parts;
  for (size_t i = 0; i < rows.size(); ++i) parts[part(rows[i])].push_back(i);
  std::vector<Prediction> predictions(rows.size());
  for (const auto& [name, members] : parts) {
    const std::set<size_t> left_out(members.begin(), members.end());
    std::vector<Measurement> seen;
    for (size_t i = 0; i < rows.size(); ++i)
      if (name.empty() || left_out.count(i) == 0) seen.push_back(rows[i]);
    Calibration calibration = fit_calibration(seen);
    calibration.intervals = intervals;
    for (const size_t i : members) predictions[i] = predict_row(rows[i], calibration);
  }
  return predictions;
}

std::function<std::string(const Measurement&)> folds_by_configuration(int folds) {
  return [folds](const Measurement& row) {
    const std::string unit = row.group.empty() ? configuration_key(row) : row.group;
    return cat("fold ", stable_hash(unit) % folds);
  };
}

Calibration calibrated(const std::vector<Measurement>& rows) {
  Calibration calibration = fit_calibration(rows);
  constexpr int kFolds = 5;
  measure_intervals(rows, predict_unseen(rows, folds_by_configuration(kFolds), {}), "seen",
                    &calibration.intervals);
  const auto by_engine = [](const Measurement& row) { return engine_family(row.engine); };
  measure_intervals(rows, predict_unseen(rows, by_engine, {}), "unseen", &calibration.intervals);
  return calibration;
}

std::optional<double> log_error(const Measurement& row, const Prediction& prediction) {
  const std::optional<double>& measured = row.is_memory ? row.peak_memory_gib : row.value;
  if (!measured || !prediction.supported || prediction.predicted <= 0) return std::nullopt;
  return std::log(*measured / prediction.predicted);
}

}  // namespace braid::inline calibrate
