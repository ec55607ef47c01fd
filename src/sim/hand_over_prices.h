// When a generation is handed over (program/hand_over.h) with the lengths of one step, and what
// then goes on where. Pure; thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "program/hand_over.h"
#include "program/pre_copy.h"
#include "sim/batching.h"

namespace braid::inline sim {

// The replicas of a generation as they begin: rows of the step, their requests in that order, and
// the limits of each one's engine.
struct ReplicaWork {
  SampleRows rows;
  std::vector<BatchRequest> requests;
  BatchOptions options;
};

struct MovedSample {
  int64_t produced = 0, cached = 0;  // new tokens, and those of the cache that move with it
};

// Caches that are copied ahead of the first hand-over (program/pre_copy.h).
struct PricedCopies {
  PreCopy decided;
  std::vector<int64_t> valid;   // by row: tokens of its copy, where that is of use
  int64_t told_after = 0;       // rounds; -1: none are copied
  std::vector<int64_t> rounds;  // by replica: made when it sends
};

struct PricedHandOver {
  PricedCopies copied = {{}, {}, -1, {}};
  HandOver handed;
  std::vector<int64_t> rounds;                  // by replica: made since the one before
  std::vector<std::vector<BatchRequest>> left;  // by replica: what it goes on with
  std::vector<MovedSample> moved;               // by move
};

// Tokens of the cache with which a replica goes on with requests.
using RoomFor = std::function<int64_t(int replica, const std::vector<BatchRequest>& requests)>;

// All of the step. Counts every kRoundsBetweenTallies rounds what is left; of the first count that
// is at most what `scoring` says the replicas know at the next. `room`: none said, that with which
// they began.
std::vector<PricedHandOver> hand_overs_of(std::vector<ReplicaWork> replicas,
                                          const FusedScoring& scoring, const RoomFor& room = {});

}  // namespace braid::inline sim
