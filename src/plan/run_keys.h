// Which keys of a configuration `braid train` reads, and which of them the plan overrules. The
// counterpart of planned_keys.h, which says it of `braid plan`. No key is left out. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"
#include "config/options.h"
#include "dataflow/graph.h"
#include "plan/execution_plan.h"

namespace braid::inline plan {

// A run, as far as it decides which keys count.
struct RunFacts {
  const Config& config;
  const Graph& graph;
  const ExecutionPlan* plan = nullptr;  // null: one process runs the graph as it is
  bool priced = false;                  // whether the plan was searched, or its memory is predicted
};

// Why the run does not read a key; "" where it does. kUnknownKey for a key without a rule.
std::string why_unread(const std::string& key, const RunFacts& run);
inline constexpr const char* kUnknownKey = "nobody knows whether it is";

// What people should know of the keys that they set (LoadedConfig::resolved), each line with the
// place of the first: keys that this run does not read, a line per reason; and keys whose value the
// plan overrules, with both values.
std::vector<std::string> run_key_notes(const YamlNode& resolved, const RunFacts& run);

}  // namespace braid::inline plan
