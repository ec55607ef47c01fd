// Flat keys out of YAML and argument lists, and the brackets of shells and references. Internal to
// plan/. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "foreign/foreign.h"

namespace braid::inline foreign {

// The place after the `close` that ends the group which the first `open` from `begin` on starts;
// npos if none does.
size_t end_of_group(std::string_view text, size_t begin, char open, char close);

// Leaves of a YAML tree by dotted path, as written ("null" for nothing, "[a, b]" for a list).
Result<ForeignKeys> yaml_keys(std::string_view text, const std::string& where);

// "key=value" words, with Hydra's leading "+" or "++" removed.
ForeignKeys assignment_keys(const std::vector<std::string>& words);

// "--key value", "--key=value" and "--flag" words; the word ";" is no value.
ForeignKeys flag_keys(const std::vector<std::string>& words);

// Whether a text is YAML with a map of more than one line, rather than a script or arguments.
bool looks_like_yaml(std::string_view text);

}  // namespace braid::inline foreign
