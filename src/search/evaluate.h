// The cheap evaluator of execution plans: step time and memory of a choice of options.
//
// Calls start in the order of the graph, each as soon as the calls that it waits for have ended and
// its devices are free, the devices of each pipeline stage for themselves: a pipeline fills while
// the one before drains. A call takes its own time as in the simulation, after its fields have
// arrived; its weights move from their home layout meanwhile, from when its devices are free, and
// where they are slices (ZeRO-3) those of its home, which then compute nothing either; to load and
// unload what stays on the host adds to the call. Memory of a device is what stays there
// (home weights, optimizer states) and the most that one call adds (copies of weights in another
// layout, loaded state, gradients, activations, KV cache). Both grow with every duration and every
// byte, which pruning and bounds rely on. Pure functions; thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "search/space.h"

namespace braid::inline search {

// Plans that need too much memory come after all that fit, the less over the limit the better.
struct PlanCost {
  int64_t excess_bytes = 0;  // on the fullest device or host, over what it has
  int64_t time_us = 0;
  friend auto operator<=>(const PlanCost&, const PlanCost&) = default;
};

// A choice with its options looked up; calls and roles that are not assigned have no effect.
struct Assignment {
  std::vector<const PlanOption*> option;  // per call; null: open
  std::vector<int> stay;                  // per role, index into RoleSpace::stays; -1: open
};

// Seconds of one call beyond its own time: weights in, fields in, load and unload. Parts that
// depend on open calls or roles count as 0.
int64_t overhead_us(const PlanSpace& space, const Assignment& plan, int call);

// What calls wait for beyond their own time. Free moves give a cheap lower bound of the evaluator;
// with nothing but the calls themselves it is one of the simulator as well, in which whatever comes
// and goes may hide behind other calls.
enum class Moves { kPriced, kFree, kNone };

// Time from the start of the first call of a segment to the end of its last; open calls run for
// open_us (per call) on devices of their own.
int64_t segment_us(const PlanSpace& space, const Assignment& plan, int segment,
                   const std::vector<int64_t>& open_us, Moves moves = Moves::kPriced);

// Bytes over capacity on the fullest device, counting assigned calls and roles only; 0 if it fits.
int64_t excess_bytes(const PlanSpace& space, const Assignment& plan);
// Bytes needed on a device while everything that the assignment puts there is at its peak.
double device_bytes(const PlanSpace& space, const Assignment& plan, int32_t device);

// Start and end of every call, for tables. REQUIRES: everything is assigned.
struct CallTiming {
  int64_t start_us = 0, end_us = 0;
};
std::vector<CallTiming> timeline(const PlanSpace& space, const Assignment& plan);

PlanCost evaluate(const PlanSpace& space, const Assignment& plan);
Assignment assignment_of(const PlanSpace& space, const Choice& choice);

}  // namespace braid::inline search
