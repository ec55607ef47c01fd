// Where a run writes. Pure functions.
#pragma once

#include <string>

#include "config/options.h"

namespace braid::inline checkpoint {

// run.dir/run.name.
std::string run_folder(const Config& config);
// checkpoint.dir, or "checkpoints" in the run's folder.
std::string checkpoint_folder(const Config& config);

}  // namespace braid::inline checkpoint
