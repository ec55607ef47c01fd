// Runs numbered work units on several threads so that the outcome depends on nothing but how many
// units ran.
//
// A UnitSource gives out units 0, 1, 2, ... and takes their results back in the same order. Between
// the two lies a window: unit u starts knowing the results of units 0 .. u - window (exactly these,
// whatever the number of threads), so that window units can be under way at once. Work on a unit
// must be a pure function of what start() stored for it.
#pragma once

#include <cstdint>
#include <functional>

namespace braid::optimize {

// The most units under way at once; also the most threads that find work. Part of the outcome's
// definition, so not an option.
inline constexpr int kUnitWindow = 16;

// start and finish are never called concurrently with one another; run is called concurrently with
// everything and may touch only what belongs to its unit (unit % kUnitWindow numbers a slot that is
// free) and constants.
class UnitSource {
 public:
  virtual ~UnitSource() = default;
  // Units of this source under way at once, 1 to kUnitWindow; a constant. A small window lets units
  // know more of the results before them, a large one feeds more threads.
  virtual int window() const { return kUnitWindow; }
  // Prepares a unit, in order of unit. False: nothing to do with the results so far; if units are
  // under way, it is asked again after the next result.
  virtual bool start(int64_t unit) = 0;
  virtual void run(int64_t unit) = 0;
  // Takes the result, in order of unit. elapsed_s: when the work on the unit ended, by the caller's
  // clock.
  virtual void finish(int64_t unit, double elapsed_s) = 0;
};

struct UnitOptions {
  int threads = 1;                    // changes speed only
  int64_t max_units = INT64_MAX;      // the reproducible limit
  std::function<bool()> stop;         // asked before each unit; never concurrently; empty: never
  std::function<double()> elapsed_s;  // the caller's clock, as stop; empty: always 0
};

struct UnitReport {
  int64_t units = 0;       // completed; every started unit completes
  bool exhausted = false;  // the source had nothing left to do
};

// REQUIRES: threads >= 1. Exceptions of the source are not caught.
UnitReport run_units(UnitSource& source, const UnitOptions& options);

}  // namespace braid::optimize
