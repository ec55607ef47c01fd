// What ranks that share a vocabulary tell each other to draw a token for each row of a batch
// (rollout/shared_draw.h): for who sends it, lists it and prices it. Pure.
#pragma once

#include <cstdint>
#include <limits>

namespace braid::inline batching {

// A row's weights are summed in blocks of so many tokens of the vocabulary. Where a rank has fewer
// than two, whole logits are no more to send.
inline constexpr int64_t kWeightBlock = 1024;
inline constexpr int64_t kWeightLanes = 16;  // partial sums of a block
inline constexpr int64_t kFewestShared = 2 * kWeightBlock;

inline bool shares_draws(int64_t vocab, int64_t ranks) {
  return ranks > 1 && vocab / ranks >= kFewestShared;
}

// What the sampling options of a batch's rows ask for.
struct SamplingNeeds {
  int64_t candidates = 0;  // the most probable tokens of each rank (top-k, top-p)
  bool scans = true;       // some row draws from all tokens, by the sums of their weights
  friend bool operator==(const SamplingNeeds&, const SamplingNeeds&) = default;
};

// Numbers that a rank tells the others of a row, in their order: largest logit and whether one is
// not finite, f32, of which all take the largest; sums of the lanes of its open block, f32; sums of
// its blocks and of its weights, number of those above 0, and token and weight of each candidate,
// f64; where a row scans, what the rank found in its share, f64.
//
// A rank that lacks memory says so in their place, and what is drawn is of no use: it has a sum of
// blocks below 0, finds a token that there is not, and of logits, where ranks gather them, gives
// the least number first.
inline constexpr int64_t kTopNumbers = 2;
inline constexpr int64_t kSumNumbers = 3;
inline constexpr int64_t kFoundNumbers = 3;
inline constexpr double kLacksInSums = -1, kLacksInFound = -2;
inline constexpr float kLacksInLogits = std::numeric_limits<float>::lowest();
inline int64_t sum_numbers(const SamplingNeeds& needs) {
  return kSumNumbers + 2 * needs.candidates;
}

}  // namespace braid::inline batching
