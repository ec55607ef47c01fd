// Where a run is: the counters and the algorithm's state that change from step to step beside
// weights and optimizers. Random numbers are functions of seed, sample id and step, so this is all
// the state that generators have. A value; one thread.
#pragma once

#include <cstdint>

#include "algo/algorithm.h"

namespace braid::inline algo {

struct RunPosition {
  int64_t step = 0;         // steps completed
  int64_t cursor = 0;       // prompts (or pairs) of the data that were drawn
  int64_t tokens_seen = 0;  // prompt and response tokens of all steps
  // Adaptive KL coefficient, running statistics: of a job on the ranks that compute with them, and
  // after each step on the first one.
  AlgoState algo;
};

}  // namespace braid::inline algo
