// What a run is, in words, for its report: plan, arithmetic, and the keys that somebody set, with
// the place where they did. Pure.
#pragma once

#include "base/json.h"
#include "config/load.h"
#include "launch/job.h"

namespace braid {

inline constexpr const char* kAboutFile = "about.json";  // in a run's folder

// {"arithmetic", "algorithm", "ranks", "set": [[key, value, origin], ...], "plan": [sentence, ...],
// "plan_yaml"}; the last two of runs with a plan. Keys that hold a secret are left out.
Json about_run(const LoadedConfig& loaded, const PlannedRun& planned);

}  // namespace braid
