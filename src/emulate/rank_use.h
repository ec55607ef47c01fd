// What a rank of an emulated job takes of its machine: nothing of it should grow with the job.
#pragma once

#include <vector>

#include "comm/world.h"

namespace braid::inline emulate {

struct RankUse {
  double calls = 0;           // of c10d
  double messages = 0;        // those of them that are sends and receives
  double round_calls = 0;     // and those in rounds of generation, of which alike ones are one
  double calls_of_each = 0;   // calls of a rank that executes each of them, as real ranks do
  double given = 0;           // bytes of the tensors that it gave to them
  double received = 0;        // and of those that it got from them
  double store_requests = 0;  // its own, neither the watchdog's nor Gloo's
  double open_files = 0;      // at the time
  double wired_to = 0;        // ranks, at the time (World::wired_to())
  double peak_bytes = 0;      // resident, the most so far
  double cpu_s = 0;           // of all its threads
};
inline constexpr int64_t kNumbersOfUse = 11;

// Of this process so far.
RankUse use_so_far(const World& world);
// Calls, messages, bytes and requests since then; of the rest `now`.
RankUse use_since(const RankUse& before, const RankUse& now);
// Of all ranks, in their order. All call it.
Result<std::vector<RankUse>> gather_use(Communicator& everyone, const RankUse& own);

}  // namespace braid::inline emulate
