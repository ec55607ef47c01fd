#include "rollout/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "nn/kernel_simd.h"

namespace braid {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void penalise_repetition(float* logits, const std::vector<int32_t>& ids, float penalty,
                         std::vector<bool>& seen) {
  for (const int32_t id : ids) {
    if (seen[id]) continue;
    seen[id] = true;
    logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
  }
}

void shape_logits(float* logits, int64_t vocab, const SamplingOptions& options,
                  const SamplingContext& context) {
  if (options.repetition_penalty != 1) {
    std::vector<bool> seen(vocab, false);
    const float penalty = static_cast<float>(options.repetition_penalty);
    penalise_repetition(logits, *context.prompt_ids, penalty, seen);
    penalise_repetition(logits, *context.response_ids, penalty, seen);
  }
  if (static_cast<int64_t>(context.response_ids->size()) < options.min_new_tokens)
    for (const int32_t stop : options.stop_tokens) logits[stop] = kNever;
}

// logits become probabilities before division by their sum; returns that sum and the largest logit.
BRAID_SIMD float exponentiate(float* logits, int64_t vocab, float inverse_temperature,
                              float* top_out) {
  float top = logits[0];
  for (int64_t i = 1; i < vocab; ++i) top = logits[i] > top ? logits[i] : top;
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= vocab; i += 16)
    for (int lane = 0; lane < 16; ++lane) {
      logits[i + lane] = fast_exp((logits[i + lane] - top) * inverse_temperature);
      lanes[lane] += logits[i + lane];
    }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < vocab; ++i) {
    logits[i] = fast_exp((logits[i] - top) * inverse_temperature);
    sum += logits[i];
  }
  *top_out = top;
  return sum;
}

// Keeps the most probable tokens by top-k, top-p and min-p; the others get weight 0. Returns the
// new sum.
float truncate(float* weights, int64_t vocab, float sum, const SamplingOptions& options) {
  std::vector<int32_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return weights[a] > weights[b]; });
  size_t keep = order.size();
  if (options.top_k > 0) keep = std::min<size_t>(keep, options.top_k);
  if (options.top_p < 1) {
    double kept_sum = 0, before = 0;
    for (size_t i = 0; i < keep; ++i) kept_sum += weights[order[i]];
    size_t count = 0;
    while (count < keep && before < options.top_p * kept_sum) before += weights[order[count++]];
    keep = std::max<size_t>(1, count);
  }
  const float least = static_cast<float>(options.min_p) * weights[order[0]];
  while (keep > 1 && weights[order[keep - 1]] < least) --keep;
  for (size_t i = keep; i < order.size(); ++i) {
    sum -= weights[order[i]];
    weights[order[i]] = 0;
  }
  sum = 0;
  for (size_t i = 0; i < keep; ++i) sum += weights[order[i]];
  return sum;
}

SampledToken greedy(const float* logits, int64_t vocab) {
  const int64_t best = std::max_element(logits, logits + vocab) - logits;
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i)
    sum += std::exp(static_cast<double>(logits[i]) - logits[best]);
  return {static_cast<int32_t>(best), static_cast<float>(-std::log(sum))};
}

}  // namespace

SampledToken sample_token(float* logits, int64_t vocab, const SamplingOptions& options,
                          const SamplingContext& context) {
  shape_logits(logits, vocab, options, context);
  if (options.temperature == 0) return greedy(logits, vocab);
  float top = 0;
  float sum = exponentiate(logits, vocab, static_cast<float>(1 / options.temperature), &top);
  if (options.top_k > 0 || options.top_p < 1 || options.min_p > 0)
    sum = truncate(logits, vocab, sum, options);
  const double target =
      random_unit(options.seed, context.sample, context.response_ids->size()) * sum;
  double below = 0;
  int64_t token = -1;
  for (int64_t i = 0; i < vocab; ++i) {
    if (logits[i] == 0) continue;
    token = i;
    below += logits[i];
    if (below > target) break;
  }
  return {static_cast<int32_t>(token), std::log(logits[token]) - std::log(sum)};
}

}  // namespace braid
