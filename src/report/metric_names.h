// What metrics are called where they are written (log.names): verl and TRL have names of their own
// for numbers that they know too. One table; a number that they do not know, or count in another
// way, keeps its name. Pure functions; thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline report {

// A row of the table. NAME stands for the name of an entry of `reward`.
struct MetricName {
  const char* ours;
  const char* verl;  // "" = it has no such number
  const char* trl;
};
const std::vector<MetricName>& metric_names();

// The name of one of our metrics under log.names = braid | verl | trl.
std::string metric_name(const std::string& ours, const std::string& names);

// metric_names() as a Markdown table, for docs/metrics.md.
std::string metric_names_table();

// The names in a run's files, kept beside them: {"names": "verl", "ours": {"actor/lr":
// "policy/lr"}}. A run under Braid's names has no such file.
inline constexpr const char* kMetricNamesFile = "metric_names.json";

// The rows with Braid's names again. `names` is the text of that file, "" for none.
// Errors: a text that is none such.
Status restore_names(const std::string& names, const std::string& where, std::vector<Json>* rows);

}  // namespace braid::inline report
