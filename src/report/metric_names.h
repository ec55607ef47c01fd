// The names that the metrics of a run have in its files (log.names; foreign/keys/metric_names.h),
// and how they get Braid's own again. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline report {

// The names in a run's files, kept beside them: {"names": "verl", "ours": {"actor/lr":
// "policy/lr"}}. A run under Braid's names has no such file.
inline constexpr const char* kMetricNamesFile = "metric_names.json";

// The rows with Braid's names again. `names` is the text of that file, "" for none.
// Errors: a text that is none such.
Status restore_names(const std::string& names, const std::string& where, std::vector<Json>* rows);

}  // namespace braid::inline report
