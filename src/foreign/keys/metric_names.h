// What metrics are called where they are written (log.names): verl and TRL have names of their own
// for numbers that they know too. One table; a number that they do not know, or count in another
// way, keeps its name. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace braid::inline foreign_keys {

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

}  // namespace braid::inline foreign_keys
