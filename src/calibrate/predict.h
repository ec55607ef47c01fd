// Predicts the metric of a measurement row. A row is first resolved into a case (model, device,
// layout, work) without any efficiency, so that a fit can price the same case many times. Nothing
// here reads `value` or `peak_memory_gib`. Pure; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "calibrate/measurement.h"
#include "calibrate/predict_rl.h"
#include "pricing/collective.h"
#include "pricing/memory.h"

namespace braid::inline calibrate {

struct CollectiveCase {
  CollectiveOp op = CollectiveOp::kAllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAutomatic;
  double bytes = 0;
  CollectiveGroup group;
};

struct TrainCase {
  ModelSize model;
  TrainLayout layout;
  TrainStepWork work;
};

struct GenerateCase {
  ModelSize model;
  GenerateLayout layout;
  GenerateWork work;
  std::string phase;  // "", "first_token" or "decode_step"
};

struct RlCase {
  ModelSize model;
  std::optional<ModelSize> critic;
  RlWork work;
  std::string phase;
  Precision generate_precision = Precision::kBf16;
};

struct TrainMemoryCase {
  TrainCase train;
  TrainMemoryWork memory;
  MemoryReading reading = MemoryReading::kUnstated;
};

struct GenerateMemoryCase {
  GenerateCase generate;
  MemoryReading reading = MemoryReading::kUnstated;
};

struct PredictionCase {
  std::variant<CollectiveCase, TrainCase, GenerateCase, RlCase, TrainMemoryCase, GenerateMemoryCase>
      work;
  GpuSpec gpu;
  Precision precision = Precision::kBf16;
  EfficiencyKey key;
  MeasuredQuantity metric = MeasuredQuantity::kNone;
  int n_gpus = 1;
};

// A row that cannot be predicted: the status says what it does not state or what is unknown.
Result<PredictionCase> resolve_row(const Measurement& row);
// The metric's value (memory rows: GiB as the row's tool would read it) under given efficiencies.
// Errors: an infeasible case (weights do not fit).
Result<double> predict_case(const PredictionCase& work, const Efficiency& efficiency);
// The peak behind a reported figure, in bytes: what has to fit on the device.
double peak_of_reading(double reported_gib, const PredictionCase& row,
                       const Efficiency& efficiency);
FitStage fit_stage(const PredictionCase& work);

// What is known about an engine from its documentation, by the family's name.
struct EngineTraits {
  bool graphs = true;                // decode steps are captured graphs
  bool chunked_loss = false;         // logits of no loss exist at once
  bool chunked_policy_loss = false;  // logits of a policy loss never exist at once
  bool sharded_buckets = false;      // fixed buckets of a sharded optimizer, even on one device
  bool keeps_gathered = false;       // FSDP that gathers all blocks and frees them after the pass
  bool loops_experts = false;        // experts run one after another
  bool sequence_parallel = true;     // default with tensor parallelism where a row does not say
  bool pipelines_batches = true;     // several batches in flight with pipeline stages
};
EngineTraits engine_traits(const std::string& engine);

// The key under which a calibration keeps the interval of such rows: "train_step", or
// "memory_train_step" and "memory_generate" for peaks.
std::string interval_kind(const Measurement& row);

struct Prediction {
  std::string id;
  bool supported = false;
  std::string reason;                       // why not, or the assumption made
  double predicted = 0, low = 0, high = 0;  // in the unit of the row's metric; memory rows: GiB
  std::string fits;                         // memory rows: "yes", "no" or "uncertain"
};
// Rows of either file, priced with a calibration.
Prediction predict_row(const Measurement& row, const Calibration& calibration);

}  // namespace braid::inline calibrate
