// The table behind foreign_keys.cc: names of other frameworks, ours, units and conversions.
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"

namespace braid {

// Our value for theirs, or "" where it cannot be computed; `root` offers the other keys.
using ConvertKey = std::string (*)(const std::string& value, const YamlNode& root);

struct ForeignKey {
  const char* theirs;     // end of the dotted path, '-' written as '_'
  const char* framework;  // who uses it
  const char* ours;       // "optim.ROLE.lr": ROLE becomes actor or critic; "" = no counterpart
  const char* note;       // unit, or what to know; without a counterpart: what happens instead
  ConvertKey convert = nullptr;  // null: the value stays as it is
};

const std::vector<ForeignKey>& foreign_key_table();

}  // namespace braid
