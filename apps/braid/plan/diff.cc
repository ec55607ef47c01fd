// braid plan diff A B: what two execution plans do differently.
#include "braid/plan/diff.h"

#include <iostream>

#include "base/text.h"
#include "host/file.h"
#include "plan/plan_text.h"

namespace braid {
namespace {

// Either form of a plan; a JSON text starts with a brace.
Result<ExecutionPlan> load_plan(const std::string& path) {
  BRAID_ASSIGN(const std::string text, read_file(path));
  if (trim(text).rfind('{', 0) != 0) return parse_plan(text, path);
  BRAID_ASSIGN(const Json json, parse_json(text, path));
  return plan_from_json(json).at(path);
}

}  // namespace

Status run_plan_diff(const std::string& a, const std::string& b) {
  BRAID_ASSIGN(const ExecutionPlan first, load_plan(a));
  BRAID_ASSIGN(const ExecutionPlan second, load_plan(b));
  const std::vector<std::string> lines = diff(first, second);
  if (lines.empty()) std::cout << "the plans are equal\n";
  for (const std::string& line : lines) std::cout << line << "\n";
  return ok_status();
}

}  // namespace braid
