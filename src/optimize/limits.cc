#include "optimize/limits.h"

#include <algorithm>
#include <thread>

namespace braid::optimize {

UnitOptions unit_options(const SearchLimits& limits, const Stopwatch& watch, double limit_s,
                         int least_units) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  UnitOptions options;
  options.threads = limits.threads > 0 ? limits.threads : cores;
  options.max_units = limits.max_units;
  options.elapsed_s = [watch] { return watch.elapsed_s(); };
  options.stop = [watch, limit_s, least_units, begun = 0]() mutable {
    return begun++ >= least_units && watch.elapsed_s() >= limit_s;
  };
  return options;
}

}  // namespace braid::optimize
