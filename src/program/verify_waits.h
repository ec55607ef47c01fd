// What verify() checks of what the instructions of a list wait for. Pure.
#pragma once

#include "program/program.h"

namespace braid::inline program {

// The calls that each call waits for, as its dependencies are and as all that it waits for is.
struct CallWaits {
  std::vector<std::vector<CallId>> reads, all;
  std::vector<int32_t> shared;   // by call: before which its share stands
  std::vector<int32_t> samples;  // by call: equal numbers work on the same samples
};
CallWaits call_waits(const Graph& graph);

// One list: an instruction of a region waits for the one before it; a call for what it reads and
// for what settles its samples; what moves fields or weights for who makes or changes them; what
// brings or frees memory of a device for the calls that use it; and what comes back from the host
// for its way there.
Status verify_waits(const Program& program, size_t rank, const CallWaits& waits);

}  // namespace braid::inline program
