// The local cache of the Hugging Face hub: which folder a name such as Qwen/Qwen2.5-0.5B-Instruct
// means on this machine. Reads the environment (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME) and
// folders; nothing is fetched, and an address (https://, s3://, hf://) is an error that says what
// to do. Thread-safe while the environment does not change.
#pragma once

#include <string>

#include "base/status.h"

namespace braid::inline host {

// Where the hub's own programs keep what they fetched.
std::string hub_cache_folder();

// A path that exists is itself. Otherwise a name NAME, ORG/NAME or ORG/NAME@REVISION (a branch, a
// tag or the beginning of a commit; main by default) is the folder of that snapshot. kNotFound says
// what was looked for and the command that fetches it; a run's checkpoint is an error that names
// the command which makes a model of it.
Result<std::string> locate_model(const std::string& name_or_path);

// The same of a data set ORG/NAME[@REVISION], whose files may be named behind it:
// ORG/NAME/main/train-*.parquet is that path inside of the snapshot. "-", "task:..." and paths with
// wildcards that match are themselves.
Result<std::string> locate_data(const std::string& source);

}  // namespace braid::inline host
