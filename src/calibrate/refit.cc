#include "calibrate/refit.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "calibrate/predict.h"

namespace braid::inline calibrate {
namespace {

struct Phase {
  const char* name;
  std::optional<double> LoggedStep::*measured;
  const char* knob;      // whose engine offset takes the factor; nullptr: none
  bool inverse = false;  // the knob is a rate
};

constexpr Phase kPhases[] = {{"generate", &LoggedStep::generate_s, "rl_generate_factor"},
                             {"logprob", &LoggedStep::logprob_s, "rl_infer_factor"},
                             {"train", &LoggedStep::train_s, "rl_train_factor"},
                             {"reshard", &LoggedStep::reshard_s, "rl_reshard_gbytes_per_s", true},
                             {"total", &LoggedStep::total_s, nullptr},
                             {"memory", &LoggedStep::peak_memory_gib, "mem_reserve_factor"}};

Measurement at_step(const Measurement& workload, const LoggedStep& step, const Phase& phase) {
  Measurement row = workload;
  row.kind = MeasurementKind::kRlStep;
  row.metric = MeasuredQuantity::kSecondsPerStep;
  row.phase = phase.name;
  if (step.output_len) row.output_len = step.output_len;
  if (step.prompt_len) row.prompt_len = step.prompt_len;
  if (step.max_output_len && step.output_len)
    row.max_output_len = std::max(*step.max_output_len, *step.output_len);
  if (std::string(phase.name) != "memory") return row;
  row.is_memory = true;
  row.metric = MeasuredQuantity::kNone;
  row.memory_kind = "reserved";
  if (row.optimizer.empty()) row.optimizer = "adamw, 32-bit master weights and states";
  return row;
}

// Without a workload a phase is taken to grow with the tokens of a step: the longest response while
// generating, all tokens elsewhere. The unit is arbitrary, the refit finds the rate.
double length_proxy(const LoggedStep& step, const Phase& phase) {
  const double output = step.output_len.value_or(1), prompt = step.prompt_len.value_or(0);
  if (phase.measured == &LoggedStep::generate_s)
    return std::sqrt(output * step.max_output_len.value_or(output));
  if (phase.measured == &LoggedStep::reshard_s || phase.measured == &LoggedStep::peak_memory_gib)
    return 1;
  return prompt + output;
}

// Predictions of all steps of one phase; empty where the phase cannot be priced.
std::vector<double> predict_steps(const std::vector<LoggedStep>& steps,
                                  const std::optional<Measurement>& workload, const Phase& phase,
                                  const Calibration& calibration) {
  std::vector<double> out;
  for (const LoggedStep& step : steps) {
    if (!workload) {
      out.push_back(length_proxy(step, phase));
      continue;
    }
    const Prediction prediction = predict_row(at_step(*workload, step, phase), calibration);
    if (!prediction.supported || prediction.predicted <= 0) return {};
    out.push_back(prediction.predicted);
  }
  return out;
}

// The median ratio over the steps used.
std::optional<double> fitted_factor(const std::vector<LoggedStep>& steps, const Phase& phase,
                                    const std::vector<double>& predicted) {
  std::vector<double> ratios;
  for (int i = 0; i < kRefitSteps; ++i)
    if (const auto measured = steps[i].*phase.measured; measured && *measured > 0)
      ratios.push_back(*measured / predicted[i]);
  if (ratios.empty()) return std::nullopt;
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

RefitError unused_error(const std::vector<LoggedStep>& steps, const Phase& phase,
                        const std::vector<double>& before, const std::vector<double>& after) {
  RefitError error;
  for (size_t i = kRefitSteps; i < steps.size(); ++i) {
    const auto measured = steps[i].*phase.measured;
    if (!measured || *measured <= 0) continue;
    ++error.steps;
    error.before_pct += 100 * std::abs(before[i] / *measured - 1);
    error.after_pct += 100 * std::abs(after[i] / *measured - 1);
  }
  if (error.steps > 0) error.before_pct /= error.steps, error.after_pct /= error.steps;
  return error;
}

void refit_phase(const std::vector<LoggedStep>& steps, const std::optional<Measurement>& workload,
                 const Phase& phase, const Calibration& calibration, RefitReport* report) {
  const std::vector<double> predicted = predict_steps(steps, workload, phase, calibration);
  if (predicted.empty()) return;
  const auto factor = fitted_factor(steps, phase, predicted);
  if (!factor) return;
  std::vector<double> before = predicted, after = predicted;
  for (double& value : after) value *= *factor;
  if (!workload)
    std::fill(before.begin(), before.end(), (steps.front().*phase.measured).value_or(0));
  report->factors[phase.name] = *factor;
  report->errors[phase.name] = unused_error(steps, phase, before, after);
  if (phase.knob == nullptr || !workload) return;
  const std::string offset = cat(phase.knob, "@engine:", engine_family(workload->engine));
  report->calibration.offsets[offset] += std::log(*factor) * (phase.inverse ? -1 : 1);
}

}  // namespace

Result<RefitReport> refit_from_log(const std::vector<LoggedStep>& steps,
                                   const std::optional<Measurement>& workload,
                                   const Calibration& calibration) {
  if (static_cast<int>(steps.size()) <= kRefitSteps)
    return invalid_input(cat("the log has ", steps.size(), " steps; ", kRefitSteps,
                             " to fit and at least one to check are needed"));
  if (workload) {
    BRAID_TRY(resolve_row(at_step(*workload, steps.front(), kPhases[0])).status().at("workload"));
  }
  RefitReport report;
  report.calibration = calibration;
  report.priced = workload.has_value();
  for (const Phase& phase : kPhases) refit_phase(steps, workload, phase, calibration, &report);
  return report;
}

}  // namespace braid::inline calibrate
