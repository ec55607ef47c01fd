// What makes two runs the same run: the options that results depend on, and the data. A checkpoint
// keeps both, and continuing under others is an error. Functions are thread-safe; they look at
// files only to tell whether two paths are one file.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "config/options.h"
#include "data/dataset.h"
#include "program/program.h"

namespace braid::inline identity {

// Every option by its dotted key ("optim.actor.lr", "reward[0].weight") as text; keys that hold a
// secret are left out.
Json flat_options(const Config& config);

// The configuration of such options, without rewards and what describes plans.
Result<Config> config_of(const Json& options);

// The files that options name, by key, as paths that do not depend on their spelling.
Json option_files(const Json& options);

// data.template_date of the options of a checkpoint; "" where they have none.
std::string saved_date(const Json& options);

// Every key of checkpoint.allow is an option, or a group of them; the error names one that is not.
Status check_allowed_keys(const std::vector<std::string>& allowed, const Json& options);

// Compares the options of a checkpoint (and the files that they named) with those of this run.
// Options that change speed, memory, output or length of a run may differ, and so may those in
// `allowed`, where a key stands for all below it; the error lists the others with both values.
Status check_same_options(const Json& saved, const Json& saved_files, const Json& now,
                          const std::vector<std::string>& allowed);

// Number of records, hash of their lines, and hash of all lines and of the ids that they became:
// the last is `sha256`, "" while not all are checked.
Json data_identity(const DataSet& data, const std::string& sha256);

// The error names what differs; hashes that one of both does not know yet are not compared.
Status check_same_data(const Json& saved, const Json& now);
// What it says of lines or ids.
Status changed_data();

// What a checkpoint keeps of these: options, hash of the program, data.
Json run_identity(const Config& config, const Program& program, Json data);

// The state of a checkpoint belongs to the run of this identity; the error names what differs.
// Keys in `allowed` (checkpoint.allow) may.
Status check_same_run(const Json& saved, const Json& now, const std::vector<std::string>& allowed);

// The hash of the data with which `now` has to agree once it knows its own; "" for none.
std::string data_sha256_to_compare(const Json& saved, const Json& now,
                                   const std::vector<std::string>& allowed);

}  // namespace braid::inline identity
