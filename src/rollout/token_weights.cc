#include "rollout/token_weights.h"

#include <algorithm>
#include <limits>

#include "nn/kernels/simd.h"

namespace braid::inline rollout {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

BRAID_SIMD void weigh_lanes(float* logits, int64_t count, float top, float inverse_temperature) {
  for (int64_t i = 0; i + kWeightLanes <= count; i += kWeightLanes)
    for (int64_t lane = 0; lane < kWeightLanes; ++lane)
      logits[i + lane] = fast_exp((logits[i + lane] - top) * inverse_temperature);
}

BRAID_SIMD void weigh_singly(float* logits, int64_t count, float top, float inverse_temperature) {
  for (int64_t i = 0; i < count; ++i) logits[i] = fast_exp((logits[i] - top) * inverse_temperature);
}

// Behind it the last block sums singly.
int64_t end_of_lanes(int64_t vocab) { return vocab / kWeightLanes * kWeightLanes; }

}  // namespace

void shape_logits(float* logits, int64_t begin, int64_t count, const SamplingOptions& options,
                  const SamplingContext& context) {
  const auto here = [&](int32_t id) { return id >= begin && id < begin + count; };
  if (options.repetition_penalty != 1) {
    std::vector<bool> seen(count, false);
    const auto penalty = static_cast<float>(options.repetition_penalty);
    for (const std::vector<int32_t>* ids : {context.prompt_ids, context.response_ids})
      for (const int32_t id : *ids) {
        if (!here(id) || seen[id - begin]) continue;
        seen[id - begin] = true;
        float& logit = logits[id - begin];
        logit = logit > 0 ? logit / penalty : logit * penalty;
      }
  }
  if (static_cast<int64_t>(context.response_ids->size()) < options.min_new_tokens)
    for (const int32_t stop : options.stop_tokens)
      if (here(stop)) logits[stop - begin] = kNever;
}

BRAID_SIMD float largest_logit(const float* logits, int64_t count) {
  float top = logits[0];
  int32_t unordered = 0;
  for (int64_t i = 0; i < count; ++i) {
    unordered |= static_cast<int32_t>(logits[i] != logits[i]);
    top = logits[i] > top ? logits[i] : top;
  }
  return unordered != 0 ? std::numeric_limits<float>::quiet_NaN() : top;
}

// Whole lanes of the part through one loop, and what is beside them through a copy of a lane, so
// that a token's weight is that of the whole row.
void weigh(float* logits, int64_t begin, int64_t count, int64_t vocab, float top,
           double temperature) {
  const auto inverse = static_cast<float>(1 / temperature);
  const int64_t end = begin + count, singly = std::clamp(end_of_lanes(vocab), begin, end);
  const auto beside = [&](int64_t from, int64_t to) {
    float lane[kWeightLanes] = {};
    std::copy(logits + (from - begin), logits + (to - begin), lane);
    weigh_lanes(lane, kWeightLanes, top, inverse);
    std::copy(lane, lane + (to - from), logits + (from - begin));
  };
  const int64_t first = std::min((begin + kWeightLanes - 1) / kWeightLanes * kWeightLanes, singly);
  const int64_t last = std::max(singly / kWeightLanes * kWeightLanes, first);
  if (first > begin) beside(begin, first);
  weigh_lanes(logits + (first - begin), last - first, top, inverse);
  if (singly > last) beside(last, singly);
  weigh_singly(logits + (singly - begin), end - singly, top, inverse);
}

double sum_blocks(const float* weights, int64_t begin, int64_t end, int64_t vocab,
                  WeightLanes* lanes) {
  double sum = 0;
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / kWeightBlock * kWeightBlock;
    const int64_t whole = std::min(block + kWeightBlock, vocab), stop = std::min(whole, end);
    if (at == block) *lanes = {};
    const int64_t singly =
        std::clamp(block + (whole - block) / kWeightLanes * kWeightLanes, at, stop);
    for (; at < singly && at % kWeightLanes != 0; ++at)
      (*lanes)[at % kWeightLanes] += weights[at - begin];
    for (; at + kWeightLanes <= singly; at += kWeightLanes)
      for (int64_t lane = 0; lane < kWeightLanes; ++lane)
        (*lanes)[lane] += weights[at - begin + lane];
    for (; at < singly; ++at) (*lanes)[at % kWeightLanes] += weights[at - begin];
    if (stop < whole) break;
    float of_block = 0;
    for (const float lane : *lanes) of_block += lane;
    for (; at < stop; ++at) of_block += weights[at - begin];
    sum += of_block;
    *lanes = {};
  }
  return sum;
}

std::vector<WeighedToken> heaviest(const float* weights, int64_t begin, int64_t count,
                                   int64_t most) {
  std::vector<WeighedToken> out;
  for (int64_t i = 0; i < count; ++i)
    if (weights[i] > 0) out.push_back({begin + i, weights[i]});
  const auto kept = std::min<int64_t>(most, std::ssize(out));
  std::partial_sort(out.begin(), out.begin() + kept, out.end());
  out.resize(kept);
  return out;
}

}  // namespace braid::inline rollout
