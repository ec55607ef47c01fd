#include "calibrate/predict.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"

namespace braid::inline calibrate {
namespace {

Result<double> price(const CollectiveCase& work, const DeviceModel& device,
                     const PredictionCase& row) {
  const double seconds =
      collective_s(work.op, work.bytes, work.group, device.efficiency, work.algorithm);
  if (row.metric == MeasuredQuantity::kTimeUs) return seconds * 1e6;
  return work.bytes / seconds * bus_factor(work.op, work.group.members) / 1e9;
}

Result<double> price(const TrainCase& work, const DeviceModel& device, const PredictionCase& row) {
  const double seconds = train_step_time(work.model, work.layout, work.work, device).total_s;
  if (row.metric == MeasuredQuantity::kSecondsPerStep) return seconds;
  return work.work.global_batch * work.work.seq_len / seconds / row.n_gpus;
}

Result<double> price(const GenerateCase& work, const DeviceModel& device,
                     const PredictionCase& row) {
  if (work.phase == "decode_step") {
    const double sequences = std::max(work.work.concurrency, 1.0) / work.layout.replicas;
    const DecodeStep step = decode_step(work.layout, device, sequences, work.work.prompt_len);
    return decode_step_s(work.model, step, device) * 1e6;
  }
  GenerateWork job = work.work;
  if (work.phase == "first_token") {  // of those that start together, however many follow
    job.output_len = 1;
    job.max_output_len = 0;
    job.requests = std::max(job.concurrency, 1.0);
  }
  BRAID_ASSIGN(const GenerateTime time, generate_time(work.model, job, work.layout, device));
  if (row.metric == MeasuredQuantity::kTimeUs) return time.total_s * 1e6;
  return time.tokens_per_s;
}

double phase_s(const RlTime& time, const std::string& phase, int logprob_passes) {
  if (phase == "generate") return time.generate_s;
  if (phase == "logprob") return time.logprob_s;
  if (phase == "ref_logprob") return time.logprob_s / logprob_passes;
  if (phase == "train") return time.train_s;
  if (phase == "reshard" || phase == "weight_sync") return time.reshard_s;
  return time.total_s;
}

Result<double> price(const RlCase& work, const DeviceModel& device, const PredictionCase&) {
  DeviceModel generate = device;
  generate.precision = work.generate_precision;
  BRAID_ASSIGN(const RlTime time, rl_step_time(work.model, work.critic ? &*work.critic : nullptr,
                                               work.work, device, generate));
  const double seconds = phase_s(time, work.phase, work.work.logprob_passes);
  if (seconds > 0) return seconds;
  return invalid_input(cat("this engine has no phase '", work.phase,
                           "': it trains and generates with the same weights"));
}

std::string unmeasured_engine(const std::string& engine, const Calibration& calibration) {
  if (engine.empty()) return "the row does not state its engine: default efficiencies";
  const std::string family = engine_family(engine);
  for (const std::string& known : calibration.engines)
    if (engine_family(known) == family)
      return cat("this release was not measured: efficiencies of other releases of ", family);
  const std::string stack = engine_stack(engine);
  if (!stack.empty())
    return cat("engine '", engine, "' was not measured: default efficiencies of the stack '", stack,
               "'");
  return cat("engine '", engine, "' was not measured: default efficiencies");
}

// Collectives have no engine.
double interval_of(const Measurement& row, const Calibration& calibration) {
  constexpr double kDefault = 0.3;
  const bool known =
      row.kind == MeasurementKind::kCollective || engine_is_known(calibration, row.engine);
  return interval_half_width(calibration, interval_kind(row), known).value_or(kDefault);
}

Result<double> price(const TrainMemoryCase& work, const DeviceModel& device,
                     const PredictionCase&) {
  const TrainCase& train = work.train;
  const MemoryParts parts =
      train_memory(train.model, train.layout, train.work, work.memory, device.efficiency);
  return reported_bytes(peak_bytes(parts), work.reading, device.efficiency) / kGib;
}

Result<double> price(const GenerateMemoryCase& work, const DeviceModel& device,
                     const PredictionCase&) {
  const GenerateCase& generate = work.generate;
  const MemoryParts parts =
      generate_memory(generate.model, generate.layout, generate.work, device.efficiency);
  return reported_bytes(peak_bytes(parts), work.reading, device.efficiency) / kGib;
}

MemoryReading reading_of(const PredictionCase& row) {
  if (const auto* train = std::get_if<TrainMemoryCase>(&row.work)) return train->reading;
  if (const auto* generate = std::get_if<GenerateMemoryCase>(&row.work)) return generate->reading;
  return MemoryReading::kUnstated;
}

}  // namespace

std::string interval_kind(const Measurement& row) {
  if (!row.is_memory) return kind_name(row.kind);
  return row.kind == MeasurementKind::kGenerate ? "memory_generate" : "memory_train_step";
}

double peak_of_reading(double reported_gib, const PredictionCase& row, const Efficiency& e) {
  const double reported = reported_gib * kGib, none = reported_bytes(0, reading_of(row), e);
  return (reported - none) / (reported_bytes(1, reading_of(row), e) - none);
}

Result<double> predict_case(const PredictionCase& row, const Efficiency& efficiency) {
  const DeviceModel device{row.gpu, row.precision, efficiency, nullptr};
  return std::visit([&](const auto& work) { return price(work, device, row); }, row.work);
}

Prediction predict_row(const Measurement& row, const Calibration& calibration) {
  Prediction out;
  out.id = row.id;
  const auto work = resolve_row(row);
  const auto value = work.ok() ? predict_case(*work, resolve_efficiency(calibration, work->key))
                               : Result<double>(work.status());
  if (!value.ok() || !std::isfinite(*value) || *value <= 0) {
    out.reason =
        value.ok() ? "its sizes are out of any range that can be priced" : value.status().message();
    return out;
  }
  const double half = interval_of(row, calibration);
  out.supported = true;
  if (row.kind != MeasurementKind::kCollective && !engine_is_known(calibration, row.engine))
    out.reason = unmeasured_engine(row.engine, calibration);
  out.predicted = *value;
  out.low = *value * std::exp(-half);
  out.high = *value * std::exp(half);
  if (row.is_memory) {
    const Efficiency efficiency = resolve_efficiency(calibration, work->key);
    out.fits = fit_name(
        judge_fit(peak_of_reading(*value, *work, efficiency), work->gpu.hbm_bytes, efficiency));
  }
  return out;
}

FitStage fit_stage(const PredictionCase& row) {
  if (std::holds_alternative<CollectiveCase>(row.work)) return FitStage::kCollective;
  if (std::holds_alternative<TrainCase>(row.work)) return FitStage::kTrain;
  if (std::holds_alternative<GenerateCase>(row.work)) return FitStage::kGenerate;
  return std::holds_alternative<RlCase>(row.work) ? FitStage::kRl : FitStage::kMemory;
}

}  // namespace braid::inline calibrate
