// Lists that are wrong in one place, to see that an emulated step shows it: what a compiler of
// lists might get wrong. Pure functions of the program; a place is found by simulating what breaks
// there, and is plain numbers, so that the ranks can tell each other.
#pragma once

#include <functional>
#include <string>

#include "emulate/emulate.h"

namespace braid::inline emulate {

// Where lists are wrong, and how.
struct FaultPlace {
  enum Kind : int32_t {
    kNowhere,
    kCallStarts,     // a call begins without what its instruction waits for
    kMessagesStart,  // messages before a call go without what they wait for
    kPassesStart,    // forwards and backwards of a call do not wait for what they read
    kListMessages,   // `rank` sends messages `first` and `second` of a reallocation swapped
    kStageMessages,  // `rank` sends the first two activations of a call swapped
  };
  Kind kind = kNowhere;
  CallId call{-1};
  DeviceId rank{-1};
  int32_t entry = -1, first = -1, second = -1;
  double effect = 0;  // of a dropped wait: how far it moves the end of some op, as a share of the
                      // step, by the simulator
};

// The dropped wait that moves the end of some op farthest, or the first two messages that could be
// swapped. kInvalidInput: the lists have no such place, or none that moves an end by more than
// `least`. `right`: the trace of the program under these options.
Result<FaultPlace> find_fault(const Program& program, const PlanningProblem& problem,
                              const Calibration& calibration, const SimOptions& options,
                              const Trace& right, ListFault fault, double least);

struct BrokenLists {
  Program program;
  std::function<void(Expansion*)> change_ops;  // empty: the ops stay as they are
};
// As rank `self` has them.
BrokenLists break_lists(const Program& program, const FaultPlace& place, DeviceId self);

// "update_actor begins without what it waits for".
std::string fault_text(const Program& program, const FaultPlace& place);

}  // namespace braid::inline emulate
