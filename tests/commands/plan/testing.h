// Shared by tests of the planner's commands.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "host/testing.h"

namespace braid {

inline const std::string kPlans = std::string(BRAID_SOURCE_DIR) + "/examples/plans/";

inline std::string temporary(const std::string& name) { return cat(testing::TempDir(), "/", name); }

inline std::string write_temporary(const std::string& name, const std::string& text) {
  std::ofstream(temporary(name)) << text;
  return temporary(name);
}

inline std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace braid
