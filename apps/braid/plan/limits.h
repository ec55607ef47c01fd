// How long a search of the command line may run: its options, their check and the clock they mean.
// Values; safe to use from several threads.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "optimize/units.h"

namespace braid {

struct SearchLimits {
  std::optional<double> time_limit_s = {};  // as stated
  int64_t max_units = INT64_MAX;
  int threads = 0;  // 0: one per core

  // A number of units is a limit that gives the same result anywhere: no other is needed then.
  bool counts_units() const { return max_units != INT64_MAX; }
  double limit_s() const { return time_limit_s.value_or(counts_units() ? HUGE_VAL : 10); }
};

// Errors: a time limit that is no positive number, less than one unit, threads outside 0 to 1024.
Status check_limits(const SearchLimits& limits);

// Adds --time-limit, --max-units, --seed and --threads to a command. The targets must outlive
// `app`.
void define_search_options(CLI::App& app, SearchLimits& limits, uint64_t& seed);

// For options: CLI11 would take -1 for the largest number there is.
std::string not_negative(const std::string& text);

// Measures from its construction on.
class Stopwatch {
 public:
  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

// Units that stop once `watch` has reached limit_s, but not before the first least_units have
// begun.
optimize::UnitOptions unit_options(const SearchLimits& limits, const Stopwatch& watch,
                                   double limit_s, int least_units = 0);

}  // namespace braid
