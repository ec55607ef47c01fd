// `braid profile --ranks N`: what ranks of one machine that measure side by side have in common,
// and what communication between them costs. One thread.
#pragma once

#include "comm/world.h"
#include "pricing/profile.h"
#include "profile/bench.h"

namespace braid::inline profile {

// Collectives and sends among the ranks of a world, each as training calls it: groups of 2, 4, ...
// neighbours and of all ranks. Adds to `profile` times of collectives, and latency and rate of a
// send as efficiencies.
Status measure_communication(World& world, Profile* profile);

// Times and rates become the mean of all ranks'.
Status average_over_ranks(World& world, Profile* profile);

}  // namespace braid::inline profile
