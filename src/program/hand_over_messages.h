// What ranks tell each other of a generation from its first hand-over to its last
// (program/hand_over.h), message by message: how many samples are left, and, when it is handed over
// again, how far each is. The runtime sends these messages and no others; the simulator prices
// them, and emulated ranks send them. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "program/hand_over.h"
#include "program/layout.h"

namespace braid::inline program {

// Numbers from a rank to another: those of counts by replica, of progress by Telling::rows.
struct ToldMessage {
  DeviceId from, to;
  Interval numbers;
  int64_t bytes() const { return progress_bytes(numbers.size()); }
  friend bool operator==(const ToldMessage&, const ToldMessage&) = default;
};

// A count: the ranks that speak for replicas which went on tell all other ranks of those what is
// left of their replica. They read it at the next count, so that nobody passes it on between.
std::vector<ToldMessage> counts_told(const CallPlacement& generate, const HandOver& before);

// How far the samples are that were left: a rank that speaks for a replica knows it of its own. All
// ranks of the job stand in one tree (base/tree_place.h), first those that speak, then the others
// that generate, then all that are free: what is known goes up to the first, and from there down to
// all. So those that generate wait for each other alone, and no rank has more than a few messages.
// Who is free passes it on when it comes to the hand-over.
struct Telling {
  SampleRows rows;                    // of which there are numbers: replica by replica
  std::vector<ToldMessage> messages;  // in an order in which each rank can do its own
};
Telling progress_told(const CallPlacement& generate, const HandOver& before, int64_t ranks);

}  // namespace braid::inline program
