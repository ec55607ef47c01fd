// "${...}" of the shell: defaults, patterns, pieces, lengths, arrays. Internal to foreign/. Pure
// but for the caller's variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "foreign/shell/expand.h"

namespace braid::inline foreign {

struct ParameterValue {
  std::vector<std::string> values;
  bool is_list = false;  // "$@", "${NAME[@]}": one field each
  bool joined = false;   // "$*", "${NAME[*]}": one field within quotes
};

// The value of "${body}".
ParameterValue expand_parameter(const std::string& body, ShellVariables* variables,
                                ShellExpander* expander, const ShellHost& host);

// NAME=(body) or NAME+=(body).
void set_array(const std::string& name, std::string_view body, bool adds, ShellVariables* variables,
               ShellExpander* expander);

// The parts of "{body}": of "a,b" and of "1..4"; none where it is neither.
std::vector<std::string> brace_parts(std::string_view body);

}  // namespace braid::inline foreign
