// Advantages, KL estimators and controller, option checks, metrics.
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <cmath>

#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/gae.h"
#include "algo/kl.h"
#include "algo/statistics.h"
#include "config/algorithm_check.h"
#include "config/algorithm_traits.h"

namespace braid::inline algo {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;
using Numbers = std::vector<double>;

at::Tensor tensor_of(const Numbers& values) { return at::tensor(values, at::kDouble); }

AlgoBatch ppo_batch() {
  return {{{"rewards", tensor_of({1, -0.5, 2})},
           {"old_logprobs", tensor_of({-1, -2, -0.5, -1, -1.5, -0.25})},
           {"ref_logprobs", tensor_of({-1.5, -1.75, -0.5, -2, -1, -0.5})},
           {"values", tensor_of({0.5, 0.25, -1, 1, 0.75, 0.125})}},
          {2, 1, 3},
          {0, 0, 1}};
}

// The definition: A_t = sum over l of (gamma lam)^l delta_{t+l} inside the sample.
Numbers gae_by_definition(const Numbers& rewards, const Numbers& values,
                          const std::vector<int64_t>& begins, double gamma, double lam) {
  Numbers advantages(values.size());
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    for (int64_t t = begins[s]; t < begins[s + 1]; ++t) {
      for (int64_t u = t; u < begins[s + 1]; ++u) {
        const double next = u + 1 < begins[s + 1] ? values[u + 1] : 0;
        const double delta = rewards[u] + gamma * next - values[u];
        advantages[t] += std::pow(gamma * lam, static_cast<double>(u - t)) * delta;
      }
    }
  }
  return advantages;
}

TEST(Gae, EqualsItsDefinition) {
  const std::vector<int64_t> begins = {0, 2, 3, 8, 8, 9};
  Numbers rewards, values;
  for (int i = 0; i < 9; ++i) {
    rewards.push_back(std::sin(i * 1.3));
    values.push_back(std::cos(i * 0.7));
  }
  for (const double lam : {0.0, 0.95, 1.0}) {
    const GaeResult result = gae(rewards, values, begins, 0.9, lam);
    EXPECT_THAT(result.advantages,
                Pointwise(DoubleNear(1e-12), gae_by_definition(rewards, values, begins, 0.9, lam)));
    for (size_t t = 0; t < values.size(); ++t) {
      EXPECT_DOUBLE_EQ(result.returns[t], result.advantages[t] + values[t]);
    }
  }
}

TEST(PpoAdvantages, PutsRewardAtTheLastTokenAndKlOnAll) {
  AlgorithmOptions options;
  options.normalize_advantages = "none";
  options.kl.coef = 0.1;
  AlgoState state;
  const auto result = ppo_advantages(ppo_batch(), options, state).value();
  // Rewards by hand: -0.1 * (old - ref) per token plus the sample's reward at its last token.
  const Numbers rewards = {-0.05, 0.025 + 1, -0.5, -0.1, 0.05, -0.025 + 2};
  const Numbers expected = gae_by_definition(rewards, {0.5, 0.25, -1, 1, 0.75, 0.125}, {0, 2, 3, 6},
                                             options.gamma, options.lam);
  EXPECT_THAT(to_doubles(result.fields.at("advantages")), Pointwise(DoubleNear(1e-6), expected));
  EXPECT_EQ(result.fields.at("advantages").scalar_type(), at::kFloat);
  EXPECT_NEAR(result.metrics.at("kl/ref_k1").mean(), 1.0 / 6, 1e-12);
  EXPECT_NEAR(result.metrics.at("reward/kl_penalty_mean").mean(), 0.1 / 3, 1e-12);
  EXPECT_NEAR(result.metrics.at("reward/total_mean").mean(), (2.5 - 0.1) / 3, 1e-12);
  EXPECT_TRUE(state.empty());
}

TEST(PpoAdvantages, WithoutKlNeedsNoReference) {
  AlgoBatch batch = ppo_batch();
  batch.fields.erase("ref_logprobs");
  AlgorithmOptions options;
  AlgoState state;
  EXPECT_THAT(ppo_advantages(batch, options, state).status().message(),
              HasSubstr("field ref_logprobs is missing"));
  options.kl.coef = 0;
  EXPECT_TRUE(ppo_advantages(batch, options, state).ok());
}

TEST(PpoAdvantages, BatchNormalizationHasMeanZeroAndUnbiasedVarianceOne) {
  AlgorithmOptions options;
  AlgoState state;
  const auto result = ppo_advantages(ppo_batch(), options, state).value();
  const Moments m = moments(to_doubles(result.fields.at("advantages")));
  EXPECT_NEAR(m.mean, 0, 1e-6);
  EXPECT_NEAR(m.variance, 1, 1e-5);
}

TEST(PpoAdvantages, GroupNormalizationWhitensEachGroup) {
  AlgorithmOptions options;
  options.normalize_advantages = "group";
  AlgoState state;
  const auto result = ppo_advantages(ppo_batch(), options, state).value();
  const Numbers all = to_doubles(result.fields.at("advantages"));
  for (const Numbers& group :
       {Numbers(all.begin(), all.begin() + 3), Numbers(all.begin() + 3, all.end())}) {
    EXPECT_NEAR(moments(group).mean, 0, 1e-6);
    EXPECT_NEAR(moments(group).variance, 1, 1e-5);
  }
}

TEST(PpoAdvantages, WhitenedRewardsKeepTheirMean) {
  Numbers rewards = {0, 0, 3, -1, 5};
  const double mean = moments(rewards).mean;
  whiten(rewards, true);
  EXPECT_NEAR(moments(rewards).mean, mean, 1e-12);
  EXPECT_NEAR(moments(rewards).variance, 1, 1e-7);

  AlgorithmOptions options;
  options.kl.coef = 0;
  options.whiten_rewards = true;
  options.normalize_advantages = "none";
  AlgoState state;
  Numbers expected_rewards = {0, 1, -0.5, 0, 0, 2};
  whiten(expected_rewards, true);
  const auto result = ppo_advantages(ppo_batch(), options, state).value();
  EXPECT_THAT(to_doubles(result.fields.at("advantages")),
              Pointwise(DoubleNear(1e-6),
                        gae_by_definition(expected_rewards, {0.5, 0.25, -1, 1, 0.75, 0.125},
                                          {0, 2, 3, 6}, 1, 0.95)));
}

TEST(PpoAdvantages, EmptyResponseIsAnError) {
  AlgoBatch batch = ppo_batch();
  batch.response_lens = {2, 0, 4};
  AlgoState state;
  EXPECT_THAT(ppo_advantages(batch, {}, state).status().message(), HasSubstr("sample 1"));
}

TEST(AdaptiveKl, MovesTheCoefficientTowardsTheTarget) {
  AlgorithmOptions options;
  options.kl.controller = "adaptive";
  options.kl.horizon = 30;
  for (const double target : {0.1, 100.0}) {
    options.kl.target = target;  // the batch has a KL of 1/3 per sequence
    AlgoState state;
    const auto first = ppo_advantages(ppo_batch(), options, state).value();
    EXPECT_DOUBLE_EQ(first.metrics.at("kl/coef").mean(), 0.05);
    const double sign = target < 1 ? 1 : -1;
    EXPECT_NEAR(state.at("kl_coef"), 0.05 * (1 + sign * 0.2 * 3 / 30), 1e-15);
    const auto second = ppo_advantages(ppo_batch(), options, state).value();
    EXPECT_NEAR(second.metrics.at("kl/coef").mean(), 0.05 * (1 + sign * 0.02), 1e-15);
  }
}

TEST(KlEstimators, AgreeWithTheirFormulasAndTensors) {
  for (const char* name : {"k1", "k2", "k3"}) {
    EXPECT_EQ(kl_estimate(name, -1.25, -1.25), 0);
    const double scalar = kl_estimate(name, -1.0, -1.7);
    const at::Tensor tensor = kl_estimate(name, tensor_of({-1.0}), tensor_of({-1.7}));
    EXPECT_DOUBLE_EQ(scalar, tensor.item<double>()) << name;
  }
  EXPECT_DOUBLE_EQ(kl_estimate("k1", -1.0, -1.7), 0.7);
  EXPECT_DOUBLE_EQ(kl_estimate("k2", -1.0, -1.7), 0.245);
  EXPECT_DOUBLE_EQ(kl_estimate("k3", -1.0, -1.7), std::exp(-0.7) - 1 + 0.7);
}

TEST(KlEstimators, K1AndK3AreUnbiased) {
  const Numbers p = {0.5, 0.3, 0.2}, q = {0.2, 0.2, 0.6};
  double exact = 0, k1 = 0, k3 = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    exact += p[i] * std::log(p[i] / q[i]);
    k1 += p[i] * kl_estimate("k1", std::log(p[i]), std::log(q[i]));
    k3 += p[i] * kl_estimate("k3", std::log(p[i]), std::log(q[i]));
  }
  EXPECT_NEAR(k1, exact, 1e-12);
  EXPECT_NEAR(k3, exact, 1e-12);
}

AlgoBatch grpo_batch() {
  return {{{"rewards", tensor_of({1, 0, 3, 3, 2, 3})}}, {1, 2, 1, 1, 1, 2}, {4, 4, 7, 7, 4, 7}};
}

TEST(GrpoAdvantages, AreGroupScores) {
  AlgorithmOptions options = default_options("grpo");
  AlgoState state;
  const auto result = grpo_advantages(grpo_batch(), options, state).value();
  // Group 4 has rewards 1, 0, 2 (unbiased deviation 1); group 7 has 3, 3, 3.
  const double high = 1 / (1 + 1e-4);
  EXPECT_THAT(to_doubles(result.fields.at("advantages")),
              Pointwise(DoubleNear(1e-6), Numbers{0, -high, -high, 0, 0, high, 0, 0}));
  EXPECT_DOUBLE_EQ(result.metrics.at("adv/zero_std_frac").mean(), 0.5);
  EXPECT_DOUBLE_EQ(reported("adv/max", result.metrics.at("adv/max")), high);
  EXPECT_DOUBLE_EQ(reported("adv/min", result.metrics.at("adv/min")), -high);
}

TEST(GrpoAdvantages, OtherNormalizationsScaleByBatchOrNot) {
  AlgorithmOptions options = default_options("grpo");
  AlgoState state;
  options.normalize_advantages = "none";
  const auto raw = grpo_advantages(grpo_batch(), options, state).value();
  EXPECT_THAT(to_doubles(raw.fields.at("advantages")),
              Pointwise(DoubleNear(1e-6), Numbers{0, -1, -1, 0, 0, 1, 0, 0}));
  options.normalize_advantages = "batch";
  const auto scaled = grpo_advantages(grpo_batch(), options, state).value();
  const double unit = 1 / (std::sqrt(moments({1, 0, 3, 3, 2, 3}).variance) + 1e-4);
  EXPECT_NEAR(to_doubles(scaled.fields.at("advantages"))[5], unit, 1e-6);
}

// Each group by itself, with the rewards of all.
TEST(GrpoAdvantages, OfPartsOfAStepAreThoseOfTheWhole) {
  const AlgoBatch whole = {
      {{"rewards", tensor_of({1, 0, 2, 3, 4, 3})}}, {1, 1, 1, 1, 1, 1}, {4, 4, 4, 7, 7, 7}};
  AlgorithmOptions options = default_options("grpo");
  AlgoState state;
  for (const char* normalize : {"batch", "group", "none"}) {
    options.normalize_advantages = normalize;
    const Numbers expected =
        to_doubles(grpo_advantages(whole, options, state)->fields.at("advantages"));
    Numbers found;
    for (const auto& [rewards, group] :
         {std::pair(Numbers{1, 0, 2}, 4), std::pair(Numbers{3, 4, 3}, 7)}) {
      const AlgoBatch part = {
          {{"rewards", tensor_of(rewards)}}, {1, 1, 1}, {group, group, group}, {1, 0, 2, 3, 4, 3}};
      const Numbers of_part =
          to_doubles(grpo_advantages(part, options, state)->fields.at("advantages"));
      found.insert(found.end(), of_part.begin(), of_part.end());
    }
    EXPECT_EQ(found, expected) << normalize;
  }
}

TEST(GrpoAdvantages, GroupOfOneIsAnError) {
  AlgoBatch batch = grpo_batch();
  batch.groups = {4, 4, 7, 7, 4, 9};
  AlgoState state;
  EXPECT_THAT(grpo_advantages(batch, default_options("grpo"), state).status().message(),
              HasSubstr("group 9 has one sample"));
}

AlgoBatch pairs_of_prompts() {
  AlgoBatch batch = ppo_batch();
  batch.groups = {0, 0, 0};
  return batch;
}

TEST(RlooAdvantages, BaselineIsTheMeanOfTheOthers) {
  AlgorithmOptions options = default_options("rloo");
  options.kl.coef = 0.5;
  AlgoState state;
  const auto result = rloo_advantages(pairs_of_prompts(), options, state).value();
  // Totals less half the sum of old - ref: 1 - 0.125, -0.5 - 0, 2 - 0.375.
  const double a = 0.875, b = -0.5, c = 1.625;
  const Numbers expected = {a - (b + c) / 2, a - (b + c) / 2, b - (a + c) / 2,
                            c - (a + b) / 2, c - (a + b) / 2, c - (a + b) / 2};
  EXPECT_THAT(to_doubles(result.fields.at("advantages")), Pointwise(DoubleNear(1e-6), expected));
  EXPECT_NEAR(result.metrics.at("reward/total_mean").mean(), (a + b + c) / 3, 1e-12);
}

TEST(RlooAdvantages, GroupOfOneIsAnError) {
  AlgoState state;
  for (const auto compute : {rloo_advantages, reinforce_baseline_advantages})
    EXPECT_THAT(compute(ppo_batch(), default_options("rloo"), state).status().message(),
                HasSubstr("group 1 has one sample"));
}

TEST(ReinforceAdvantages, AreDiscountedReturnsOfThePenalizedRewards) {
  AlgorithmOptions options = default_options("reinforce");
  options.gamma = 0.5;
  options.kl.coef = 0.1;
  AlgoState state;
  const auto result = reinforce_advantages(ppo_batch(), options, state).value();
  const Numbers kl = {0.5, -0.25, 0, 1, -0.5, 0.25};  // old - ref
  Numbers expected(6);
  expected[1] = 1 - 0.1 * kl[1];
  expected[0] = -0.1 * kl[0] + 0.5 * expected[1];
  expected[2] = -0.5 - 0.1 * kl[2];
  expected[5] = 2 - 0.1 * kl[5];
  expected[4] = -0.1 * kl[4] + 0.5 * expected[5];
  expected[3] = -0.1 * kl[3] + 0.5 * expected[4];
  EXPECT_THAT(to_doubles(result.fields.at("advantages")), Pointwise(DoubleNear(1e-6), expected));
  options.normalize_advantages = "batch";
  const auto whitened = reinforce_advantages(ppo_batch(), options, state).value();
  const Moments m = moments(to_doubles(whitened.fields.at("advantages")));
  EXPECT_NEAR(m.mean, 0, 1e-6);
  EXPECT_NEAR(m.variance, 1, 1e-6);
}

TEST(ReinforceAdvantages, TheBaselineIsTheMeanOfTheGroup) {
  AlgorithmOptions options = default_options("reinforce_plus_plus_baseline");
  options.normalize_advantages = "none";
  AlgoState state;
  const auto result = reinforce_baseline_advantages(pairs_of_prompts(), options, state).value();
  const double mean = 2.5 / 3;
  EXPECT_THAT(to_doubles(result.fields.at("advantages")),
              Pointwise(DoubleNear(1e-6),
                        Numbers{1 - mean, 1 - mean, -0.5 - mean, 2 - mean, 2 - mean, 2 - mean}));
  EXPECT_NEAR(result.metrics.at("reward/total_mean").mean(), mean, 1e-12);
}

TEST(SamplerLogprobs, StandForTheOldPolicy) {
  AlgoBatch batch = ppo_batch();
  batch.fields["sampler_logprobs"] = tensor_of({-3, -1, -2, -5, -4, -6});
  AlgoState state;
  const auto result = sampler_logprobs(batch, {}, state).value();
  EXPECT_EQ(to_doubles(result.fields.at("old_logprobs")), (Numbers{-3, -1, -2, -5, -4, -6}));
  EXPECT_FALSE(sampler_logprobs(ppo_batch(), {}, state).ok());
}

// The return of each token, minus what the greedy response of the prompt is worth.
TEST(RemaxAdvantages, AreReturnsMinusTheGreedyReward) {
  AlgoBatch batch = ppo_batch();
  batch.fields["greedy_rewards"] = tensor_of({0.25, 0.5, -1});
  AlgorithmOptions options = default_options("remax");
  options.kl.coef = 0;
  AlgoState state;
  const ComputeResult result = remax_advantages(batch, options, state).value();
  EXPECT_EQ(to_doubles(result.fields.at("advantages")), (Numbers{0.75, 0.75, -1, 3, 3, 3}));
  EXPECT_DOUBLE_EQ(result.metrics.at("reward/greedy_mean").mean(), -0.25 / 3);
  options.kl.coef = 0.1;  // k1 of each token from here on
  EXPECT_THAT(to_doubles(remax_advantages(batch, options, state)->fields.at("advantages")),
              Pointwise(DoubleNear(1e-6), Numbers{0.75 - 0.1 * (0.5 - 0.25), 0.75 + 0.1 * 0.25, -1,
                                                  3 - 0.1 * (1 - 0.5 + 0.25),
                                                  3 - 0.1 * (-0.5 + 0.25), 3 - 0.1 * 0.25}));
}

// Each token has its own log-ratio; with gamma those behind it too, and the last one the rewards.
TEST(DistillAdvantages, AreTheLogRatiosToTheTeacher) {
  AlgoBatch batch;
  batch.response_lens = {2, 1};
  batch.groups = {0, 1};
  batch.fields = {{"rewards", tensor_of({0, 3})},
                  {"old_logprobs", tensor_of({-1, -2, -0.5})},
                  {"teacher_logprobs", tensor_of({-1.5, -0.5, -0.25})}};
  AlgorithmOptions options = default_options("distill");
  AlgoState state;
  const auto found = [&] {
    const ComputeResult result = distill_advantages(batch, options, state).value();
    EXPECT_DOUBLE_EQ(result.metrics.at("distill/reverse_kl").mean(), (0.5 - 1.5 - 0.25) / 3);
    return to_doubles(result.fields.at("advantages"));
  };
  EXPECT_EQ(found(), (Numbers{-0.5, 1.5, 3.25}));
  options.gamma = 0.5;
  options.kl.coef = 2;
  EXPECT_EQ(found(), (Numbers{-1 + 0.5 * 3, 3, 3.5}));
  batch.fields.erase("teacher_logprobs");
  EXPECT_FALSE(distill_advantages(batch, options, state).ok());
}

TEST(Registry, UnknownNamesListTheKnownOnes) {
  EXPECT_TRUE(find_compute("ppo_advantages").ok());
  EXPECT_THAT(find_compute("ppo_advantage").status().message(),
              HasSubstr("did you mean 'ppo_advantages'?"));
  EXPECT_THAT(find_loss("dpo").status().message(),
              HasSubstr("cispo, cross_entropy, kto, odds_ratio, pairwise, policy, "
                        "policy_and_value, preference, sft, squared_error, value"));
}

TEST(Validate, AcceptsTheDefaults) {
  for (const char* name : {"ppo", "grpo", "sft", "rm", "dapo", "gspo", "cispo", "rloo", "reinforce",
                           "reinforce_plus_plus", "reinforce_plus_plus_baseline"}) {
    EXPECT_TRUE(validate(default_options(name)).ok()) << name;
  }
}

TEST(Validate, NamesKeyAndAllowedValues) {
  AlgorithmOptions options;
  options.loss_agg = "token-mean";
  EXPECT_THAT(validate(options).message(),
              testing::AllOf(HasSubstr("algorithm.loss_agg"), HasSubstr("token-mean"),
                             HasSubstr("token_mean | seq_mean_token_mean")));
  options = {};
  options.kl.estimator = "k4";
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.kl.estimator"));
  options = {};
  options.gamma = std::nan("");
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.gamma"));
  options = {};
  options.dual_clip = 0.5;
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.dual_clip"));
}

TEST(Validate, DrawsAgainOnlyWhereGroupsAreCompared) {
  EXPECT_TRUE(default_options("dapo").dynamic_sampling);
  for (const char* name : {"ppo", "reinforce", "remax", "dpo", "grpo", "rloo", "online_dpo"}) {
    AlgorithmOptions options = default_options(name);
    EXPECT_FALSE(options.dynamic_sampling) << name;
    options.dynamic_sampling = true;
    const Status status = validate(options);
    EXPECT_EQ(status.ok(), compares_groups(options)) << name;
    if (status.ok()) continue;
    EXPECT_THAT(status.message(), testing::HasSubstr("algorithm.dynamic_sampling: "));
  }
}

TEST(Validate, RefusesCombinationsThatWouldBeIgnored) {
  AlgorithmOptions options = default_options("grpo");
  options.kl.in = "reward";
  EXPECT_THAT(validate(options).message(), HasSubstr("kl.in: loss"));
  options = default_options("dapo");
  options.kl.coef = 0.1;
  options.kl.in = "reward";
  EXPECT_THAT(validate(options).message(), HasSubstr("dapo has no per-token rewards"));
  options = default_options("grpo");
  options.kl.in = "own";
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.kl.in: own leaves the penalty to"));
  options.advantages = "a.so";
  EXPECT_EQ(validate(options).message(), "");
  options = default_options("cispo");
  options.dual_clip = 3;
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.dual_clip: cispo"));
  options = {};
  options.kl.in = "loss";
  options.kl.controller = "adaptive";
  EXPECT_THAT(validate(options).message(), HasSubstr("kl.controller"));
  options = {};
  options.tis_cap = 2;
  options.old_logprobs = "sampler";
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.tis_cap"));
  options.old_logprobs = "recompute", options.icepop_high = 5;
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.icepop_high: tis_cap"));
  options.tis_cap = 0, options.icepop_low = 6;
  EXPECT_THAT(validate(options).message(), HasSubstr("algorithm.icepop_low: 6 is above"));
  options.icepop_low = 0.5;
  EXPECT_EQ(validate(options).message(), "");
  options.old_logprobs = "sampler";
  EXPECT_THAT(validate(options).message(), HasSubstr("every weight is 1"));
  options = {};
  options.loss_agg = "constant_norm";
  EXPECT_THAT(validate(options).message(), HasSubstr("loss_norm_tokens"));
}

TEST(Metric, MergeEqualsAddingAll) {
  Metric all, left, right, empty;
  for (const double v : {-3.0, 1.0}) left.add(v, 2), all.add(v, 2);
  for (const double v : {-7.0, -5.0}) right.add(v), all.add(v);
  left.merge(empty);
  left.merge(right);
  EXPECT_DOUBLE_EQ(left.mean(), -16.0 / 6);
  EXPECT_EQ(left.mean(), all.mean());
  EXPECT_EQ(left.min, -7);
  EXPECT_EQ(left.max, 1);
  EXPECT_EQ(empty.mean(), 0);
}

// Parts of any sizes have the deviation of the whole, also about a mean that is large beside it.
TEST(Metric, DeviationsOfPartsAreThatOfTheWhole) {
  Numbers values;
  for (int i = 0; i < 57; ++i) values.push_back(1e6 + std::sin(i * 1.3));
  Metrics whole, merged;
  add_advantage_metrics(whole, values);
  for (const auto& [begin, end] :
       {std::pair(0, 1), std::pair(1, 1), std::pair(1, 20), std::pair(20, 57)}) {
    Metrics part;
    add_advantage_metrics(part, {values.begin() + begin, values.begin() + end});
    merge(merged, part);
  }
  const auto shown = [](const Metrics& of) {
    return reported(kAdvantageStd, of.at(kAdvantageStd));
  };
  EXPECT_EQ(shown(whole), std::sqrt(moments(values).variance));
  EXPECT_NEAR(shown(merged), shown(whole), 1e-8);
  EXPECT_EQ(merged.at("adv/mean").count, 57);
  EXPECT_EQ(reported(kAdvantageStd, distribution({3})), 0);
}

}  // namespace
}  // namespace braid::inline algo
