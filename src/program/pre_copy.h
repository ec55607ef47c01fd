// Copies of caches ahead of a hand-over (pre-copy live migration, Clark et al., NSDI 2005): when a
// few more samples are left than those with which a generation is handed over, its replicas choose
// who would go on with what, and caches of samples that would move are copied while all go on
// generating. When it is handed over (program/hand_over.h), the replicas that were chosen go on,
// and of a cache moves what came since. Every rank of the generation, the simulator and the
// emulation call these with equal arguments and get equal results. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "program/hand_over.h"

namespace braid::inline program {

// What ranks send, in bytes. The ranks of the generation tell each other how far each of the step's
// samples is and how many tokens its cache has, in a sum that begins with the first count that is
// low enough and is read at the next one; the copies follow. When it is handed over, all ranks of
// the job hear with a sample's progress for whom it was copied, and how much.
inline int64_t told_ahead_bytes(int64_t samples) { return 2 * progress_bytes(samples); }
inline int64_t handed_numbers(const FusedScoring& scoring) { return scoring.pre_copy > 0 ? 3 : 1; }

// The first tokens of a sample's cache: a message from each rank of a replica to its counterpart().
struct CacheCopy {
  int32_t row = 0;
  int32_t from = 0, to = 0;  // replicas
  int64_t tokens = 0;
  friend bool operator==(const CacheCopy&, const CacheCopy&) = default;
};

struct PreCopy {
  std::vector<int32_t> chosen;    // by row: the replica that would go on with it; -1: it has ended
  std::vector<CacheCopy> copies;  // by row
};

// As if the samples that are left were handed over, to as few replicas as have room for `below` of
// them. `cached`: tokens of the cache, by row; of a sample without any nothing is copied.
PreCopy pre_copy(const std::vector<SampleProgress>& samples, const std::vector<int64_t>& cached,
                 const std::vector<SampleRows>& owned, const ReplicaLimits& limits, int64_t below);

}  // namespace braid::inline program
