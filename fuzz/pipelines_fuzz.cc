// Problems of braid fuse: what is read and checked can be searched, and what is found passes
// verify.
#include "fuse/fuse.h"
#include "fuse/problem_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto problem =
      braid::parse_pipeline_problem({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!problem.ok() || !braid::check_problem(*problem).ok()) return 0;
  if (braid::num_ops(*problem) > 200 || problem->nodes > 64) return 0;  // slow, not wrong
  braid::FuseOptions options;
  options.objective =
      size % 2 == 0 ? braid::FuseObjective::kLatency : braid::FuseObjective::kMemory;
  options.units.max_units = 1;
  (void)braid::fuse_pipelines(*problem, options);
  return 0;
}
