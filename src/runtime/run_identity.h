// What makes two runs the same run: the options that results depend on, and the data. A checkpoint
// keeps both, and continuing under others is an error. Pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "config/options.h"
#include "data/dataset.h"
#include "program/program.h"

namespace braid {

// Every option by its dotted key ("optim.actor.lr", "reward[0].weight") as text; keys that hold a
// secret are left out.
Json flat_options(const Config& config);

// Compares the options of a checkpoint with those of this run. Options that change speed, memory,
// output or length of a run may differ; the error lists the others with both values.
Status check_same_options(const Json& saved, const Json& now);

// Number of records and the hash of all lines and of the ids that they became.
Json data_identity(const DataSet& data);

// The error names what differs.
Status check_same_data(const Json& saved, const Json& now);

// What a checkpoint keeps of these: options, hash of the program, data.
Json run_identity(const Config& config, const Program& program, const DataSet& data);

// The state of a checkpoint belongs to the run of this identity; the error names what differs.
Status check_same_run(const Json& saved, const Json& now);

}  // namespace braid
