// What a rank says of the files that it reads, before it reads them: ranks on several machines, or
// in several folders, may find others under one name. Weights are told apart by their files
// (host/file_fingerprint.h): a rank may have a slice that no other one has, while every rank can
// look at some pieces of the files, and that takes the same small time for each. What several ranks
// read of them in whole is compared once it is read (weights/shared_reads.h). Thread-safe.
#pragma once

#include "checkpoint/resumed_checkpoint.h"
#include "comm/world.h"
#include "config/options.h"
#include "data/dataset.h"
#include "dataflow/graph.h"

namespace braid::inline identity {

// Whether a file holds weights of which each rank reads slices, and compares these later
// (weights/shared_reads.h): adapters are read whole.
bool is_sliced_file(const std::string& path);

// One claim for each file: of the weights of every role and reward model, the tokenizer, the data,
// rewards that are files, a recorded rollout, and the list of hashes of the checkpoint to continue
// from. What cannot be found is left to whoever reads it.
Result<Claims> input_claims(const Config& config, const Graph& graph,
                            const ResumedCheckpoint& resumed);

// The step that the rank would continue from.
Result<Claims> checkpoint_claims(const ResumedCheckpoint& resumed);

// Compares both over all ranks; kInvalidInput names ranks, files and values.
Status agree_on_inputs(World& world, const Config& config, const Graph& graph,
                       const ResumedCheckpoint& resumed);

// Compares the lines of data.train, all of them, once they are read.
Status agree_on_data(World& world, const DataSet& data);

// Whether the folder of checkpoints, into which every rank writes, is one for all. REQUIRES: the
// first rank has claimed it, and all have met since then.
Status agree_on_run_folder(World& world, const Config& config);

}  // namespace braid::inline identity
