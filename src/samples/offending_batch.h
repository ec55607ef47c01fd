// RUN/nonfinite_step_N.jsonl: the samples of updates that were refused, for the person who looks
// for the cause. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "dataflow/graph.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

struct RefusedUpdate {
  int64_t step = 0;
  size_t minibatch = 0;
  Rows rows;
  std::string why;
};

// One line per sample: its ids and the fields that the loss of `call` read. `append`: after the
// lines of an earlier update of the step. Returns the file's path.
Result<std::string> write_offending_batch(const std::string& folder, const Call& call,
                                          const RefusedUpdate& update, const SampleStore& store,
                                          bool append);

}  // namespace braid::inline samples
