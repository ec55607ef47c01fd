// Drawing a token from logits: one distribution, shaped by SamplingOptions, for sampling and for
// its log-probs. Stateless; rows are independent and may be processed in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "rollout/engine.h"

namespace braid {

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // under the shaped distribution
};

// What shapes the distribution besides the options: earlier tokens (repetition penalty) and how
// many were generated.
struct SamplingContext {
  const std::vector<int32_t>* prompt_ids = nullptr;
  const std::vector<int32_t>* response_ids = nullptr;
  uint64_t sample = 0;  // with the seed and the token index, the key of the random number
};

// Draws one token of a row of `vocab` logits, which is overwritten. Order: repetition penalty,
// stop-token mask below min_new_tokens, temperature, then top-k, top-p and min-p on the
// probabilities that remain, each renormalised.
SampledToken sample_token(float* logits, int64_t vocab, const SamplingOptions& options,
                          const SamplingContext& context);

}  // namespace braid
