// How long a search may take: in work units, and in seconds of a clock that the caller has. Values;
// safe to use from several threads where the clock is.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "optimize/units.h"

namespace braid::optimize {

struct SearchLimits {
  std::optional<double> time_limit_s = {};  // as stated
  int64_t max_units = INT64_MAX;
  int threads = 0;  // 0: one per core

  // A number of units is a limit that gives the same result anywhere: no other is needed then.
  bool counts_units() const { return max_units != INT64_MAX; }
  double limit_s() const { return time_limit_s.value_or(counts_units() ? HUGE_VAL : 10); }
};

// Seconds since some time.
using Clock = std::function<double()>;

// Measures from its construction on; without a clock no time passes.
class Stopwatch {
 public:
  Stopwatch() = default;
  explicit Stopwatch(Clock now) : now_(std::move(now)), begin_s_(now_ ? now_() : 0) {}
  double elapsed_s() const { return now_ ? now_() - begin_s_ : 0; }
  // Another one on the same clock, from now on.
  Stopwatch anew() const { return Stopwatch(now_); }

 private:
  Clock now_;
  double begin_s_ = 0;
};

// Units that stop once `watch` has reached limit_s, but not before the first least_units have
// begun.
UnitOptions unit_options(const SearchLimits& limits, const Stopwatch& watch, double limit_s,
                         int least_units = 0);

}  // namespace braid::optimize
