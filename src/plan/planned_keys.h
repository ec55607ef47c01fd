// What the keys that a configuration sets mean to a plan: each is part of the plan's problem, has
// no effect on the time and memory of a step, or is not priced. No key is left out. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"
#include "config/key_facts.h"
#include "plan/problem.h"

namespace braid::inline plan {

struct KeyMeaning {
  PlanEffect effect = PlanEffect::kPriced;
  std::string why;  // empty for kPriced
};

// What one key means in general; "" as `why` where a key is read. Keys of a list's entries are
// written as "reward[].weight".
KeyMeaning meaning_of_key(const std::string& key);

struct PlannedKeys {
  struct Entry {
    std::string key, why;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<std::string> read;
  std::vector<Entry> without_effect, not_priced;
};

// The keys that were set in a loaded configuration (LoadedConfig::resolved), in its order, each in
// exactly one of the lists.
PlannedKeys planned_keys(const YamlNode& resolved, const PlanningProblem& problem);

// What people should see of them: a line per reason, keys first.
std::vector<std::string> key_notes(const PlannedKeys& keys);

}  // namespace braid::inline plan
