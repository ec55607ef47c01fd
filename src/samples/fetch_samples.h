// The samples that a step of a run begins with. Thread-safe.
#pragma once

#include "algo/run_position.h"
#include "config/options.h"
#include "data/data_check.h"
#include "data/dataset.h"
#include "dataflow/graph.h"
#include "inputs/run_data.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

// Starts a step in the store with the prompts_per_step records (or pairs) of the data from `cursor`
// on, samples_per_prompt samples each where responses are generated; responses that the data has
// come with them.
Status fetch_samples(const Call& call, const DataSet& data, int64_t cursor,
                     const RolloutConfig& options, SampleStore& store);

// A warning for each bad row that a check of the training data has found since the last call: its
// place, and the first step that needs it, from the one at `position` on.
void note_bad_rows(const Config& config, const DataSet& data, const RunPosition& position,
                   DataCheck& check);

}  // namespace braid::inline samples
