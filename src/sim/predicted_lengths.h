// What a run knows of the lengths of responses before it draws them: those of earlier responses to
// the same prompts (fusion.predicted_lengths). The simulator draws it. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/simulate.h"

namespace braid::inline sim {

// A prediction of each sample's new tokens, the same for all of `copies` in a row, which have one
// prompt: the best that can be made from what correlates so with the mean over the prompt's
// responses. A correlation of 0 predicts the mean of all prompts, of 1 the prompt's. A function of
// the seed. REQUIRES: 0 to 1.
std::vector<int64_t> predicted_lengths(const SampleLengths& lengths, int64_t copies,
                                       double correlation, uint64_t seed);

}  // namespace braid::inline sim
