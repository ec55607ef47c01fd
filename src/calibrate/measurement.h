// One published measurement of time or peak memory, in the schema of measurements.csv and
// memory.csv. A row states a workload, where it ran and what was measured. Plain values; parsing is
// pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline calibrate {

enum class MeasurementKind { kTrainStep, kGenerate, kCollective, kRlStep };
enum class MeasuredQuantity {
  kNone,
  kSecondsPerStep,
  kTokensPerSecondPerGpu,
  kOutputTokensPerSecond,
  kBusbw,
  kTimeUs
};
const char* kind_name(MeasurementKind kind);
const char* metric_name(MeasuredQuantity metric);

// Absent optional = the cell is empty: not applicable or not stated. Units are those of the column
// names.
struct Measurement {
  int line = 0;
  std::string id;
  MeasurementKind kind = MeasurementKind::kTrainStep;
  std::string phase, model, critic_model, gpu;
  std::optional<int> n_gpus, gpus_per_node;
  std::optional<double> internode_gbps_per_gpu;
  std::string precision, kv_precision;
  std::optional<int> dp, tp, pp, vpp, cp, ep, zero_stage;
  std::string recompute, tuning;
  std::optional<double> micro_batch, global_batch, mini_batch, seq_len;
  std::optional<double> prompt_len, output_len, max_output_len, concurrency, requests;
  std::string engine, collective, coll_algo;
  std::optional<double> bytes;
  std::string algorithm, placement;
  std::optional<int> gen_tp, train_gpus, rollout_gpus;
  std::optional<double> prompts, samples_per_prompt, staleness;
  MeasuredQuantity metric = MeasuredQuantity::kNone;
  std::optional<double> value;  // never read by a prediction
  bool approx = false;
  std::string group, note, source;

  bool is_memory = false;  // a row of memory.csv: the fields below instead of metric and value
  std::optional<double> peak_memory_gib;  // never read by a prediction
  std::string memory_kind, optimizer, offload;
};

// Reads either file; memory.csv is recognised by its column memory_kind. Errors name file:line, the
// column and what it takes: a missing column, an unknown kind or metric, a number that is not
// finite or negative, text that is no word in an enumeration. Unknown words of other enumerations
// are kept: a file of a later schema is read, and the row alone cannot be priced (check_words).
Result<std::vector<Measurement>> parse_measurements(std::string_view text, const std::string& file);

// Errors: the first word of an enumeration that is not known, with its column and the known ones.
Status check_words(const Measurement& row);

// What was run, without when or with which software and without the result: rows that share it are
// one configuration.
std::string configuration_key(const Measurement& row);

}  // namespace braid::inline calibrate
