// What ranks that share slices of weights (ZeRO-3) bring together outside of passes, and how long
// it takes: for the simulator and for the evaluator of the search. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::inline sim {

class CallCost;

struct SliceGather {
  double bytes = 0, seconds = 0;
};

// All-gathers of so many bytes, one after the other, among the ranks that share the weights of a
// call. What they are of: program/listed_messages.h.
SliceGather slice_gather(const std::vector<int64_t>& bytes, const CallCost& user);

}  // namespace braid::inline sim
