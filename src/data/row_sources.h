// Which files hold the rows of a source of data. Reads folders and small descriptions in them.
// Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace braid::inline data {

// A path that is no folder is itself ("-" too); a pattern with * ? [ ] is the files that match; a
// folder that `datasets` wrote with save_to_disk() is the files that its state.json lists, and one
// with a folder for each split (dataset_dict.json) that of its only split; any other folder is its
// files of rows in the order of their names. Errors: several splits (which one is meant must be
// said), the same rows in two forms, a model's folder, a folder without rows, a listed file that is
// missing.
Result<std::vector<std::string>> paths_of_rows(const std::string& source);

}  // namespace braid::inline data
