// Drawing a token from logits: one distribution, shaped by SamplingOptions, for sampling and for
// its log-probs. Stateless; rows are independent and may be processed in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "rollout/engine.h"

namespace braid::inline rollout {

// What shapes the distribution besides the options: earlier tokens (repetition penalty) and how
// many were generated.
struct SamplingContext {
  const std::vector<int32_t>* prompt_ids = nullptr;
  const std::vector<int32_t>* response_ids = nullptr;
  uint64_t sample = 0;  // with the seed and the token index, the key of the random number
};

// An error names the first option whose value has no meaning for a model with `vocab` tokens.
Status check_sampling(const SamplingOptions& options, int64_t vocab);

// Draws one token of a row of `vocab` logits, which is overwritten. Order: repetition penalty,
// stop-token mask below min_new_tokens, temperature, then top-k, top-p and min-p on the
// probabilities that remain, each renormalised. Temperature 0 takes the most probable token (the
// lowest id among equals) and gives its log-prob at temperature 1. A logit that is NaN or +inf, or
// a row without any finite logit, is an error. REQUIRES: check_sampling(options, vocab) is ok and
// the ids of the context are below vocab.
Result<SampledToken> sample_token(float* logits, int64_t vocab, const SamplingOptions& options,
                                  const SamplingContext& context);

// Why a row cannot be drawn from whose largest logit, or NaN, is not finite.
Status no_distribution(float top);

}  // namespace braid::inline rollout
