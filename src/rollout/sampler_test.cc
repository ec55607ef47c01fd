#include "rollout/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/rng.h"

namespace braid::inline rollout {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<int32_t> kNoTokens;

std::vector<float> random_logits(int64_t vocab, uint64_t seed) {
  RandomStream random(seed, 0);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = static_cast<float>(2 * random.normal());
  return logits;
}

Result<SampledToken> draw(std::vector<float> logits, const SamplingOptions& options,
                          uint64_t sample = 0, const std::vector<int32_t>& prompt = kNoTokens,
                          const std::vector<int32_t>& response = kNoTokens) {
  return sample_token(logits.data(), static_cast<int64_t>(logits.size()), options,
                      {&prompt, &response, sample});
}

std::vector<double> softmax(const std::vector<double>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const double logit : logits) p.push_back(std::exp(logit - top));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

void renormalise(std::vector<double>& p, const std::vector<bool>& kept) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += kept[i] ? p[i] : 0;
  for (size_t i = 0; i < p.size(); ++i) p[i] = kept[i] ? p[i] / sum : 0;
}

// The probability of the tokens that come before token i in the order of the sampler.
struct Before {
  double mass = 0;
  int64_t count = 0;
};
Before before(const std::vector<double>& p, size_t i) {
  Before out;
  for (size_t j = 0; j < p.size(); ++j)
    if (p[j] > p[i] || (p[j] == p[i] && j < i)) {
      out.mass += p[j];
      ++out.count;
    }
  return out;
}

// The distribution by its definition, quadratic in the vocabulary and in double precision.
std::vector<double> reference_distribution(const std::vector<float>& logits,
                                           const SamplingOptions& options,
                                           const std::vector<int32_t>& history) {
  std::vector<double> shaped(logits.begin(), logits.end());
  for (size_t i = 0; i < shaped.size(); ++i) {
    const bool seen = std::count(history.begin(), history.end(), static_cast<int32_t>(i)) > 0;
    if (seen && shaped[i] > 0)
      shaped[i] /= options.repetition_penalty;
    else if (seen)
      shaped[i] *= options.repetition_penalty;
    shaped[i] /= options.temperature;
  }
  std::vector<double> p = softmax(shaped);
  std::vector<bool> kept(p.size(), true);
  if (options.top_k > 0)
    for (size_t i = 0; i < p.size(); ++i) kept[i] = before(p, i).count < options.top_k;
  renormalise(p, kept);
  if (options.top_p < 1)
    for (size_t i = 0; i < p.size(); ++i) kept[i] = p[i] > 0 && before(p, i).mass < options.top_p;
  renormalise(p, kept);
  const double top = *std::max_element(p.begin(), p.end());
  for (size_t i = 0; i < p.size(); ++i) kept[i] = p[i] > 0 && p[i] >= options.min_p * top;
  renormalise(p, kept);
  return p;
}

struct Case {
  const char* name;
  SamplingOptions options;
};

std::vector<Case> cases() {
  std::vector<Case> list(8);
  list[0] = {"plain", {}};
  list[1] = {"cold", {}};
  list[1].options.temperature = 0.3;
  list[2] = {"hot", {}};
  list[2].options.temperature = 3;
  list[3] = {"top-k", {}};
  list[3].options.top_k = 5;
  list[4] = {"top-p", {}};
  list[4].options.top_p = 0.7;
  list[5] = {"min-p", {}};
  list[5].options.min_p = 0.1;
  list[6] = {"penalty", {}};
  list[6].options.repetition_penalty = 1.7;
  list[7] = {"all", {}};
  list[7].options.temperature = 1.3;
  list[7].options.top_k = 20;
  list[7].options.top_p = 0.9;
  list[7].options.min_p = 0.05;
  list[7].options.repetition_penalty = 1.2;
  return list;
}

TEST(Sampler, GreedyTakesTheLargestLogitAndTheLowestIdAmongEquals) {
  SamplingOptions options;
  options.temperature = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits = random_logits(61, seed);
    const SampledToken token = *draw(logits, options);
    EXPECT_EQ(token.token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    const auto p = softmax(std::vector<double>(logits.begin(), logits.end()));
    EXPECT_NEAR(token.logprob, std::log(p[token.token]), 1e-6);
  }
  EXPECT_EQ(draw({0, 2, 1, 2}, options)->token, 1);
}

TEST(Sampler, LogprobsAndSupportMatchTheDefinition) {
  const std::vector<int32_t> prompt = {3, 3, 7}, response = {11};
  for (const Case& c : cases())
    for (const int64_t vocab : {61, 3000}) {
      const std::vector<float> logits = random_logits(vocab, 5);
      const auto p = reference_distribution(logits, c.options, {3, 7, 11});
      for (uint64_t sample = 0; sample < 300; ++sample) {
        const SampledToken token = *draw(logits, c.options, sample, prompt, response);
        ASSERT_GT(p[token.token], 0) << c.name << " drew a token outside of its support";
        ASSERT_NEAR(token.logprob, std::log(p[token.token]), 3e-6) << c.name << " " << vocab;
      }
    }
}

// Chi-square against the reference; the bound is mean + 5 standard deviations of its distribution.
TEST(Sampler, FrequenciesFollowTheDistribution) {
  constexpr int kDraws = 20000;
  const std::vector<int32_t> prompt = {1, 2}, response;
  const std::vector<float> logits = random_logits(16, 9);
  for (const Case& c : cases()) {
    const auto p = reference_distribution(logits, c.options, {1, 2});
    std::vector<int> counts(p.size(), 0);
    for (int sample = 0; sample < kDraws; ++sample)
      ++counts[draw(logits, c.options, sample, prompt, response)->token];
    double chi_square = 0, freedom = -1, rare = 0, rare_count = 0;
    const auto add = [&](double expected, double found) {
      if (expected == 0) return;
      chi_square += (found - expected) * (found - expected) / expected;
      ++freedom;
    };
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] * kDraws >= 5) {
        add(p[i] * kDraws, counts[i]);
        continue;
      }
      rare += p[i] * kDraws;
      rare_count += counts[i];
    }
    add(rare, rare_count);
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 1e-9) << c.name;
  }
}

TEST(Sampler, RandomNumberIsKeyedBySeedSampleAndIndex) {
  const std::vector<float> logits(1000, 0.0F);
  SamplingOptions options, reseeded;
  reseeded.seed = 1;
  const int32_t token = draw(logits, options, 4)->token;
  EXPECT_EQ(draw(logits, options, 4)->token, token);
  EXPECT_NE(draw(logits, options, 5)->token, token);
  EXPECT_NE(draw(logits, reseeded, 4)->token, token);
  EXPECT_NE(draw(logits, options, 4, {}, {0})->token, token);
  EXPECT_EQ(token, static_cast<int32_t>(random_unit(0, 4, 0) * 1000));
}

TEST(Sampler, StopTokensAreMaskedBelowMinNewTokens) {
  SamplingOptions options;
  options.temperature = 0;
  options.min_new_tokens = 2;
  options.stop_tokens = {2};
  EXPECT_EQ(draw({0, 1, 5, 0}, options, 0, {}, {0})->token, 1);
  EXPECT_EQ(draw({0, 1, 5, 0}, options, 0, {}, {0, 0})->token, 2);
  options.stop_tokens = {0, 1, 2, 3};
  EXPECT_THAT(draw({0, 1, 5, 0}, options).status().message(), HasSubstr("every token is masked"));
}

TEST(Sampler, LogitsThatAreNotFiniteAreErrors) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    SamplingOptions options;
    options.temperature = temperature;
    for (const size_t place : {size_t{0}, size_t{1}, size_t{60}}) {
      std::vector<float> logits = random_logits(61, 1);
      logits[place] = nan;
      EXPECT_THAT(draw(logits, options).status().message(), HasSubstr("not finite"));
      logits[place] = kInfinity;
      EXPECT_THAT(draw(logits, options).status().message(), HasSubstr("not finite"));
      logits[place] = -kInfinity;  // a token that can never come
      ASSERT_TRUE(draw(logits, options).ok());
      EXPECT_TRUE(std::isfinite(draw(logits, options)->logprob));
    }
  }
}

TEST(Sampler, OptionsWithoutMeaningAreErrorsThatNameThem) {
  const auto message = [](auto change) {
    SamplingOptions options;
    change(options);
    return check_sampling(options, 61).message();
  };
  EXPECT_EQ(message([](SamplingOptions&) {}), "");
  EXPECT_THAT(message([](auto& o) { o.temperature = -1; }), HasSubstr("temperature is -1"));
  EXPECT_THAT(message([](auto& o) { o.temperature = NAN; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& o) { o.top_k = -2; }), HasSubstr("top_k is -2"));
  EXPECT_THAT(message([](auto& o) { o.top_p = 0; }), HasSubstr("top_p is 0"));
  EXPECT_THAT(message([](auto& o) { o.min_p = 2; }), HasSubstr("min_p is 2"));
  EXPECT_THAT(message([](auto& o) { o.repetition_penalty = 0; }), HasSubstr("repetition_penalty"));
  EXPECT_THAT(message([](auto& o) { o.max_new_tokens = 0; }), HasSubstr("max_new_tokens is 0"));
  EXPECT_THAT(message([](auto& o) { o.min_new_tokens = 999; }), HasSubstr("min_new_tokens is 999"));
  EXPECT_THAT(message([](auto& o) { o.stop_tokens = {61}; }), HasSubstr("stop token is 61"));
}

}  // namespace
}  // namespace braid::inline rollout
