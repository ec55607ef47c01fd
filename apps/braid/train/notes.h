// What a configuration says that a run will not do, or will hardly be meant to do.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"
#include "plan/run_keys.h"

namespace braid {

// Keys that were written but that this run does not read or the plan overrules (plan/run_keys.h),
// and values that are seldom meant; each begins with its place. Nothing of it is an error.
std::vector<std::string> config_notes(const LoadedConfig& loaded, const RunFacts& run,
                                      const BatchArithmetic& arithmetic);

}  // namespace braid
