#include "rollout/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "base/text.h"
#include "nn/kernels/simd.h"
#include "rollout/token_weights.h"

namespace braid::inline rollout {
namespace {

constexpr int64_t kLanes = kWeightLanes;
constexpr int64_t kBlock = kWeightBlock;  // summed in f32 before the sum goes on in f64

// A block of logits becomes weights exp((logit - top) / temperature); returns their sum.
BRAID_SIMD float exponentiate_block(float* logits, int64_t count, float top,
                                    float inverse_temperature) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      logits[i + lane] = fast_exp((logits[i + lane] - top) * inverse_temperature);
      lanes[lane] += logits[i + lane];
    }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < count; ++i) {
    logits[i] = fast_exp((logits[i] - top) * inverse_temperature);
    sum += logits[i];
  }
  return sum;
}

double exponentiate(float* logits, int64_t vocab, float top, double temperature) {
  const auto inverse = static_cast<float>(1 / temperature);
  double sum = 0;
  for (int64_t begin = 0; begin < vocab; begin += kBlock)
    sum += exponentiate_block(logits + begin, std::min(kBlock, vocab - begin), top, inverse);
  return sum;
}

// Order of truncation: by weight, equal ones by id.
struct Heavier {
  const float* weights;
  bool operator()(int32_t a, int32_t b) const {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  }
};

// How many of the first `limit` tokens of `order` are needed, heaviest first, to reach the weight
// `wanted`; those come to the front. Each round halves the tokens among which the border may lie.
size_t select_nucleus(const float* weights, std::vector<int32_t>& order, size_t limit,
                      double wanted) {
  const auto begin = order.begin();
  size_t inside = 0, most = limit;
  double before = 0;  // weight of the first `inside` tokens, less than wanted
  while (most - inside > 1) {
    const size_t middle = inside + (most - inside) / 2;
    std::nth_element(begin + inside, begin + middle, begin + most, Heavier{weights});
    double weight = before;
    for (size_t i = inside; i < middle; ++i) weight += weights[order[i]];
    if (weight >= wanted) {
      most = middle;
    } else {
      inside = middle;
      before = weight;
    }
  }
  return most;
}

// Tokens up to this weight all together weigh less than top-p leaves out.
float least_in_nucleus(int64_t vocab, double sum, const SamplingOptions& options) {
  const bool bounded = options.top_p < 1 && options.top_k == 0;
  return bounded ? static_cast<float>(0.5 * (1 - options.top_p) * sum / static_cast<double>(vocab))
                 : 0;
}

// Keeps the most probable tokens by top-k, top-p and min-p; the others get weight 0. Returns the
// new sum.
double truncate(float* weights, int64_t vocab, double sum, const SamplingOptions& options) {
  const float light = least_in_nucleus(vocab, sum, options);
  std::vector<int32_t> order;
  for (int64_t i = 0; i < vocab; ++i) {
    if (weights[i] > light)
      order.push_back(static_cast<int32_t>(i));
    else
      weights[i] = 0;
  }
  size_t keep = order.size();
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(keep)) {
    keep = static_cast<size_t>(options.top_k);
    std::partial_sort(order.begin(), order.begin() + options.top_k, order.end(), Heavier{weights});
    sum = 0;
    for (size_t i = 0; i < keep; ++i) sum += weights[order[i]];
  }
  if (options.top_p < 1) keep = select_nucleus(weights, order, keep, options.top_p * sum);
  const auto least = static_cast<float>(options.min_p);  // the largest weight is exp(0) = 1
  double kept_sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    float& weight = weights[order[i]];
    if (i >= keep || weight < least) weight = 0;
    kept_sum += weight;
  }
  return kept_sum;
}

SampledToken greedy(float* logits, int64_t vocab) {
  const int64_t best = std::max_element(logits, logits + vocab) - logits;
  const double sum = exponentiate(logits, vocab, logits[best], 1);
  return {static_cast<int32_t>(best), static_cast<float>(-std::log(sum))};
}

}  // namespace

Status check_sampling(const SamplingOptions& options, int64_t vocab) {
  const auto wrong = [](const char* name, auto value, const char* wanted) {
    return invalid_input(cat(name, " is ", value, "; it must be ", wanted));
  };
  const bool draws = options.temperature >= 1e-6 && std::isfinite(options.temperature);
  if (options.temperature != 0 && !draws)
    return wrong("temperature", options.temperature, "0 (greedy) or at least 1e-6");
  if (options.top_k < 0) return wrong("top_k", options.top_k, "0 (off) or larger");
  if (!(options.top_p > 0 && options.top_p <= 1))
    return wrong("top_p", options.top_p, "above 0 and at most 1 (off)");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    return wrong("min_p", options.min_p, "from 0 (off) to 1");
  if (!(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty)))
    return wrong("repetition_penalty", options.repetition_penalty, "above 0; 1 is off");
  if (options.max_new_tokens < 1)
    return wrong("max_new_tokens", options.max_new_tokens, "at least 1");
  if (options.min_new_tokens < 0 || options.min_new_tokens > options.max_new_tokens)
    return wrong("min_new_tokens", options.min_new_tokens, "from 0 to max_new_tokens");
  for (const int32_t stop : options.stop_tokens)
    if (stop < 0 || stop >= vocab) return wrong("stop token", stop, "inside the vocabulary");
  return ok_status();
}

Status no_distribution(float top) {
  return Status(Code::kDataLoss,
                std::isnan(top) || top > 0
                    ? "the model gave a logit that is not finite; check its weights and dtype"
                    : "every token is masked or has probability 0; check stop tokens and weights");
}

Result<SampledToken> sample_token(float* logits, int64_t vocab, const SamplingOptions& options,
                                  const SamplingContext& context) {
  shape_logits(logits, 0, vocab, options, context);
  const float top = largest_logit(logits, vocab);
  if (!std::isfinite(top)) return no_distribution(top);
  if (options.temperature == 0) return greedy(logits, vocab);
  double sum = exponentiate(logits, vocab, top, options.temperature);
  if (options.top_k > 0 || options.top_p < 1 || options.min_p > 0)
    sum = truncate(logits, vocab, sum, options);
  const double target =
      random_unit(options.seed, context.sample, context.response_ids->size()) * sum;
  const int64_t token = place_at(logits, vocab, 0, target).index;
  const double logprob = std::log(static_cast<double>(logits[token])) - std::log(sum);
  return SampledToken{static_cast<int32_t>(token), static_cast<float>(logprob)};
}

}  // namespace braid::inline rollout
