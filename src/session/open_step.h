// A step that was left in the middle. Before its first update a failed step is simply begun anew;
// after it, weights have changed, so the step goes on where it was, with the samples that it had.
// Values; one thread.
#pragma once

#include <map>
#include <string>

#include "algo/run_position.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "passes/training.h"
#include "samples/field_exchange.h"
#include "samples/sample_store.h"

namespace braid::inline session {

// Where a step is, between two updates or calls.
struct StepProgress {
  size_t next = 0;                         // the instruction of the rank's list to go on with
  RunPosition position;                    // with what the step has drawn and computed so far
  Metrics metrics;                         // of the step
  std::map<std::string, double> seconds;   // of its calls, by name
  std::map<std::string, int64_t> skipped;  // updates refused in a row, by role
  int64_t trained_tokens = 0;              // of the step
  std::map<std::string, TrainingProgress> trainings;  // of train calls, by name
};

Json progress_json(const StepProgress& progress);
Result<StepProgress> parse_progress(const Json& json);

// Metrics that were written; the error names the key of `json`.
Result<Metrics> metrics_field(const Json& json, const std::string& key);
// The metrics of all ranks as one, written, on the first rank. All call it.
Result<Json> metrics_to_first(Metrics mine, FieldExchange& exchange);

// The samples and their fields: token lists and what is no tensor as JSON, the rest as tensors.
Result<Json> store_json(const SampleStore& store, NamedTensors& tensors);
Status load_store(const Json& json, const NamedTensors& tensors, SampleStore& store);

}  // namespace braid::inline session
