// Steps of drawing from a part of the vocabulary: logits [begin, begin + count) of a row. The parts
// of a row give the bits that the whole row gives (rollout/sampler.h). Stateless.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "batching/sampling_messages.h"
#include "rollout/sampler.h"

namespace braid::inline rollout {

using WeightLanes = std::array<float, kWeightLanes>;

// Repetition penalty, and the mask of stop tokens below min_new_tokens.
void shape_logits(float* logits, int64_t begin, int64_t count, const SamplingOptions& options,
                  const SamplingContext& context);

// The largest logit; NaN where any is NaN.
float largest_logit(const float* logits, int64_t count);

// Logits become weights exp((logit - top) / temperature). `begin` counts tokens of a vocabulary of
// `vocab`, of which those behind the last whole lane are the last to be summed.
void weigh(float* logits, int64_t begin, int64_t count, int64_t vocab, float top,
           double temperature);

// Sums of weights [begin, end) of a row, blocks from the first to the last. `weights` points at
// `begin`. A block that began before `begin` goes on from its `lanes`; those of a block that does
// not end before `end` are in them afterwards (zeros where there is none).
double sum_blocks(const float* weights, int64_t begin, int64_t end, int64_t vocab,
                  WeightLanes* lanes);

// A place in the running sum of weights: a token, and the sum before it.
struct WeightPlace {
  int64_t index = -1;
  double below = 0;
};
// The first of `count` weights at which the running sum from `below` on passes `target`, or the
// last one above 0; -1 where none is.
template <typename Number>
WeightPlace place_at(const Number* weights, int64_t count, double below, double target) {
  WeightPlace out{-1, below};
  for (int64_t i = 0; i < count; ++i) {
    if (!(weights[i] > 0)) continue;
    out = {i, below};
    below += weights[i];
    if (below > target) break;
  }
  return out;
}

// Order of truncation: by weight, equal ones by id.
struct WeighedToken {
  int64_t token = 0;
  float weight = 0;
  friend bool operator<(const WeighedToken& a, const WeighedToken& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  }
};
// The first tokens of a part in this order, at most `most`, of those with a weight above 0.
std::vector<WeighedToken> heaviest(const float* weights, int64_t begin, int64_t count,
                                   int64_t most);

}  // namespace braid::inline rollout
