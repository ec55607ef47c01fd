// Losses against float64 re-implementations, finite differences, and their split into
// micro-batches.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <set>

#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/own_functions.h"
#include "algo/own_loss.h"

namespace braid::inline algo {
namespace {

using Numbers = std::vector<double>;

at::Tensor double_tensor(const Numbers& values) { return at::tensor(values, at::kDouble); }

// Random samples with fields large enough that every branch of the losses is taken.
struct Case {
  std::vector<int64_t> lens = {3, 1, 5, 2, 4, 4};
  std::vector<int64_t> groups = {0, 0, 1, 1, 2, 2};
  Numbers x, entropy, old_logprobs, ref_logprobs, advantages, values, returns;  // x: model output
  Numbers sampler_logprobs;

  explicit Case(uint64_t seed) {
    uint64_t state = seed;
    const auto draw = [&state] {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<double>(state >> 11) / 9007199254740992.0 * 2 - 1;
    };
    for (int i = 0; i < 19; ++i) {
      x.push_back(-1.5 + draw());
      entropy.push_back(1 + draw());
      old_logprobs.push_back(x.back() + 0.6 * draw());
      ref_logprobs.push_back(x.back() + 0.5 * draw());
      advantages.push_back(2 * draw());
      values.push_back(x.back() + 0.5 * draw());
      returns.push_back(draw());
      sampler_logprobs.push_back(old_logprobs.back() + 0.5 * draw());
    }
  }

  AlgoBatch batch() const {
    return {{{"old_logprobs", double_tensor(old_logprobs)},
             {"ref_logprobs", double_tensor(ref_logprobs)},
             {"advantages", double_tensor(advantages)},
             {"values", double_tensor(values)},
             {"returns", double_tensor(returns)},
             {"sampler_logprobs", double_tensor(sampler_logprobs)},
             {"wanted", double_tensor({1, 0, 1, 1, 0, 1})},
             {"score", double_tensor({0.5, -1, 2, 0, 0.25, 1})},
             {"kl_baseline", double_tensor(Numbers(6, 0.4))}},
            lens,
            groups};
  }
  Denominators totals() const { return {19, 6, 3}; }
};

// Samples [begin, end) as a micro-batch of their own.
AlgoBatch part(const AlgoBatch& batch, size_t begin, size_t end) {
  const auto offsets = sample_begins(batch);
  AlgoBatch result;
  for (const auto& [name, field] : batch.fields) {
    const bool per_sample = field.size(0) == static_cast<int64_t>(batch.groups.size());
    const auto at = [&](size_t sample) {
      return per_sample ? static_cast<int64_t>(sample) : offsets[sample];
    };
    result.fields[name] = field.slice(0, at(begin), at(end));
  }
  result.response_lens.assign(batch.response_lens.begin() + begin,
                              batch.response_lens.begin() + end);
  result.groups.assign(batch.groups.begin() + begin, batch.groups.begin() + end);
  return result;
}

double kl_reference(const std::string& estimator, double logp, double ref) {
  if (estimator == "k1") return logp - ref;
  if (estimator == "k2") return 0.5 * (logp - ref) * (logp - ref);
  return std::exp(ref - logp) - 1 - (ref - logp);
}

double weight_reference(const AlgorithmOptions& o, double length) {
  if (o.loss_agg == "token_mean") return 1.0 / 19;
  if (o.loss_agg == "seq_mean_token_mean") return 1 / length / 6;
  return o.loss_agg == "seq_mean_token_sum" ? 1.0 / 6 : 1.0 / 6 / o.loss_norm_tokens;
}

double ratio_reference(const Case& c, const AlgorithmOptions& o, size_t sample, size_t begin,
                       size_t t) {
  if (o.ratio_level == "token") return std::exp(c.x[t]) / std::exp(c.old_logprobs[t]);
  double product = 1;
  for (size_t i = begin; i < begin + c.lens[sample]; ++i) {
    product *= std::exp(c.x[i]) / std::exp(c.old_logprobs[i]);
  }
  return std::pow(product, 1.0 / static_cast<double>(c.lens[sample]));
}

double policy_reference(const Case& c, const AlgorithmOptions& o) {
  double total = 0;
  size_t begin = 0;
  for (size_t s = 0; s < c.lens.size(); ++s) {
    for (size_t t = begin; t < begin + c.lens[s]; ++t) {
      const double ratio = ratio_reference(c, o, s, begin, t);
      const double bounded = std::min(std::max(ratio, 1 - o.clip_low), 1 + o.clip_high);
      double gain = std::min(ratio * c.advantages[t], bounded * c.advantages[t]);
      if (o.dual_clip > 0 && c.advantages[t] < 0) {
        gain = std::max(gain, o.dual_clip * c.advantages[t]);
      }
      if (o.tis_cap > 0)
        gain *= std::min(std::exp(c.old_logprobs[t]) / std::exp(c.sampler_logprobs[t]), o.tis_cap);
      double loss = -gain - o.entropy_coef * c.entropy[t];
      if (o.kl.in == "loss") {
        loss += o.kl.coef * kl_reference(o.kl.estimator, c.x[t], c.ref_logprobs[t]);
      }
      total += loss * weight_reference(o, static_cast<double>(c.lens[s]));
    }
    begin += c.lens[s];
  }
  return total;
}

// All combinations of the choices of the policy loss.
std::vector<AlgorithmOptions> policy_variants() {
  std::vector<AlgorithmOptions> variants;
  for (const char* agg :
       {"token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant_norm"}) {
    for (const char* level : {"token", "sequence"}) {
      for (const char* estimator : {"k1", "k2", "k3"}) {
        for (const double dual_clip : {0.0, 1.3}) {
          for (const double tis_cap : {0.0, 1.2}) {
            AlgorithmOptions o;
            o.loss_agg = agg;
            o.loss_norm_tokens = 7;
            o.ratio_level = level;
            o.kl = {0.3, estimator, "loss", "fixed", 6, 10000};
            o.clip_low = 0.1;
            o.clip_high = 0.25;
            o.dual_clip = dual_clip;
            o.tis_cap = tis_cap;
            o.entropy_coef = 0.05;
            variants.push_back(o);
          }
        }
      }
    }
  }
  return variants;
}

double cispo_reference(const Case& c, const AlgorithmOptions& o) {
  double total = 0;
  size_t begin = 0;
  for (size_t s = 0; s < c.lens.size(); ++s) {
    for (size_t t = begin; t < begin + c.lens[s]; ++t) {
      const double ratio = ratio_reference(c, o, s, begin, t);
      const double weight = std::min(std::max(ratio, 1 - o.clip_low), 1 + o.clip_high);
      total -=
          weight * c.advantages[t] * c.x[t] * weight_reference(o, static_cast<double>(c.lens[s]));
    }
    begin += c.lens[s];
  }
  return total;
}

LossResult run_policy(const Case& c, const AlgorithmOptions& o, const at::Tensor& x) {
  return policy_loss({x, double_tensor(c.entropy), {}, {}}, c.batch(), c.totals(), o).value();
}

// Compares autograd with central differences of `loss`, element by element.
void expect_gradient(const Numbers& point,
                     const std::function<at::Tensor(const at::Tensor&)>& loss) {
  at::Tensor x = double_tensor(point).requires_grad_(true);
  loss(x).backward();
  const Numbers gradient = to_doubles(x.grad());
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < point.size(); ++i) {
    Numbers up = point, down = point;
    up[i] += kStep;
    down[i] -= kStep;
    const double difference =
        loss(double_tensor(up)).item<double>() - loss(double_tensor(down)).item<double>();
    EXPECT_NEAR(gradient[i], difference / (2 * kStep), 1e-7) << "element " << i;
  }
}

TEST(PolicyLoss, EqualsReferenceInAllVariants) {
  const Case c(1);
  for (const auto& options : policy_variants()) {
    const LossResult result = run_policy(c, options, double_tensor(c.x));
    EXPECT_NEAR(result.loss.item<double>(), policy_reference(c, options), 1e-12)
        << options.loss_agg << " " << options.ratio_level << " " << options.kl.estimator;
  }
}

TEST(PolicyLoss, GradientEqualsFiniteDifferencesInAllVariants) {
  const Case c(2);
  for (const auto& options : policy_variants()) {
    expect_gradient(c.x, [&](const at::Tensor& x) { return run_policy(c, options, x).loss; });
  }
}

// The weight is a constant: finite differences hold it at the point.
TEST(CispoLoss, EqualsReferenceAndItsGradientKeepsClippedTokens) {
  const Case c(13);
  for (const char* level : {"token", "sequence"}) {
    AlgorithmOptions o = default_options("cispo");
    o.ratio_level = level;
    o.clip_low = 0.1;
    o.clip_high = 0.2;
    at::Tensor x = double_tensor(c.x).requires_grad_(true);
    const LossResult result = cispo_loss({x, {}, {}, {}}, c.batch(), c.totals(), o).value();
    EXPECT_NEAR(result.loss.item<double>(), cispo_reference(c, o), 1e-12);
    EXPECT_GT(result.metrics.at("policy/clipfrac").mean(), 0);
    result.loss.backward();
    const Numbers gradient = to_doubles(x.grad());
    for (size_t t = 0; t < c.x.size(); ++t) {
      Case up = c, down = c;  // the ratio stays where both log-probs move
      for (Case* moved : {&up, &down}) {
        const double step = moved == &up ? 1e-6 : -1e-6;
        moved->x[t] += step;
        moved->old_logprobs[t] += step;
      }
      EXPECT_NEAR(gradient[t], (cispo_reference(up, o) - cispo_reference(down, o)) / 2e-6, 1e-7);
      EXPECT_NE(gradient[t], 0);
    }
  }
}

TEST(PolicyLoss, EntropyGradientIsMinusCoefficientTimesWeight) {
  const Case c(3);
  AlgorithmOptions options;
  options.entropy_coef = 0.2;
  expect_gradient(c.entropy, [&](const at::Tensor& entropy) {
    return policy_loss({double_tensor(c.x), entropy, {}, {}}, c.batch(), c.totals(), options)
        .value()
        .loss;
  });
}

TEST(PolicyLoss, UnchangedPolicyHasRatioOneAndNoKl) {
  Case c(4);
  c.old_logprobs = c.ref_logprobs = c.x;
  AlgorithmOptions options = default_options("grpo");
  const LossResult result = run_policy(c, options, double_tensor(c.x));
  EXPECT_EQ(result.metrics.at("policy/ratio_mean").min, 1);
  EXPECT_EQ(reported("policy/ratio_max", result.metrics.at("policy/ratio_max")), 1);
  EXPECT_EQ(result.metrics.at("kl/update").mean(), 0);
  EXPECT_EQ(result.metrics.at("kl/ref_k3").mean(), 0);
  EXPECT_EQ(result.metrics.at("policy/clipfrac").mean(), 0);
}

TEST(PolicyLoss, ClipFractionsCountTheClippedSides) {
  Case c(5);
  c.lens = {3};
  c.groups = {0};
  c.x = {-1, -1, -1};
  c.old_logprobs = {-1.5, -0.5, -1.5};  // ratios e^0.5, e^-0.5, e^0.5
  c.advantages = {1, -1, -1};
  c.entropy = c.ref_logprobs = c.values = c.returns = {0, 0, 0};
  const Metrics metrics = run_policy(c, AlgorithmOptions{}, double_tensor(c.x)).metrics;
  EXPECT_DOUBLE_EQ(metrics.at("policy/clipfrac_high").mean(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.at("policy/clipfrac_low").mean(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.at("policy/clipfrac").mean(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(reported("policy/ratio_max", metrics.at("policy/ratio_max")), std::exp(0.5));
}

TEST(PolicyLoss, SamplerWeightsAreTruncatedAtTheCap) {
  const Case c(12);
  AlgorithmOptions options;
  options.tis_cap = 1.1;
  const LossResult result = run_policy(c, options, double_tensor(c.x));
  double sum = 0;
  for (size_t t = 0; t < c.x.size(); ++t)
    sum += std::min(std::exp(c.old_logprobs[t] - c.sampler_logprobs[t]), 1.1);
  EXPECT_NEAR(result.metrics.at("policy/tis_weight_mean").mean(), sum / 19, 1e-12);
  EXPECT_NEAR(result.loss.item<double>(), policy_reference(c, options), 1e-12);
  AlgoBatch batch = c.batch();
  batch.fields.erase("sampler_logprobs");
  EXPECT_THAT(
      policy_loss({double_tensor(c.x), {}, {}, {}}, batch, c.totals(), options).status().message(),
      testing::HasSubstr("field sampler_logprobs is missing"));
}

// Weights beyond the bounds leave their tokens out; they count in the denominators all the same.
TEST(PolicyLoss, IcePopLeavesOutTokensThatSamplerAndTrainerDisagreeOn) {
  Case c(12);
  AlgorithmOptions options;
  options.icepop_low = 0.9;
  options.icepop_high = 1.2;
  double expected = 0;
  int masked = 0;
  std::vector<bool> outside;
  for (size_t t = 0; t < c.x.size(); ++t) {
    const double weight = std::exp(c.old_logprobs[t] - c.sampler_logprobs[t]);
    outside.push_back(weight < 0.9 || weight > 1.2);
    masked += outside.back() ? 1 : 0;
    const double ratio = std::exp(c.x[t] - c.old_logprobs[t]);
    const double bounded = std::min(std::max(ratio, 0.8), 1.2);
    const double gain = std::min(ratio * c.advantages[t], bounded * c.advantages[t]);
    if (!outside.back()) expected -= weight * gain * weight_reference(options, 0);
  }
  ASSERT_GT(masked, 0);
  ASSERT_LT(masked, 19);
  at::Tensor x = double_tensor(c.x).requires_grad_(true);
  const LossResult result = run_policy(c, options, x);
  EXPECT_NEAR(result.loss.item<double>(), expected, 1e-12);
  EXPECT_DOUBLE_EQ(result.metrics.at("policy/icepop_masked_frac").mean(), masked / 19.0);
  result.loss.backward();
  const Numbers gradient = to_doubles(x.grad());
  for (size_t t = 0; t < c.x.size(); ++t)
    if (outside[t]) {
      EXPECT_EQ(gradient[t], 0) << t;
    }
}

TEST(PolicyLoss, MissingFieldIsNamed) {
  const Case c(6);
  AlgoBatch batch = c.batch();
  batch.fields.erase("advantages");
  const auto result =
      policy_loss({double_tensor(c.x), {}, {}, {}}, batch, c.totals(), AlgorithmOptions{});
  EXPECT_THAT(result.status().message(), testing::HasSubstr("field advantages is missing"));
}

TEST(PolicyLoss, WrongSizeIsNamed) {
  const Case c(6);
  AlgoBatch batch = c.batch();
  batch.fields["old_logprobs"] = double_tensor({1, 2});
  const auto result =
      policy_loss({double_tensor(c.x), {}, {}, {}}, batch, c.totals(), AlgorithmOptions{});
  EXPECT_THAT(result.status().message(), testing::HasSubstr("old_logprobs has 2 elements"));
}

// Sum of the losses and merged metrics over micro-batches of `width` samples, with the gradient.
struct Split {
  double loss = 0;
  Numbers gradient;
  Metrics metrics;
};

Split run_split(const Case& c, LossFn loss, const AlgorithmOptions& options, size_t width) {
  const AlgoBatch whole = c.batch();
  const auto offsets = sample_begins(whole);
  at::Tensor x = double_tensor(c.x).requires_grad_(true);
  Split split;
  for (size_t s = 0; s < c.lens.size(); s += width) {
    const auto cut = [&](const at::Tensor& all) {
      return all.slice(0, offsets[s], offsets[s + width]);
    };
    const ModelOutputs outputs{
        cut(x), cut(double_tensor(c.entropy)), cut(x),
        x.slice(0, static_cast<int64_t>(s), static_cast<int64_t>(s + width))};
    LossResult result = loss(outputs, part(whole, s, s + width), c.totals(), options).value();
    result.loss.backward();
    split.loss += result.loss.item<double>();
    merge(split.metrics, result.metrics);
  }
  split.gradient = to_doubles(x.grad());
  return split;
}

void expect_same(const Split& a, const Split& b) {
  EXPECT_NEAR(a.loss, b.loss, 1e-12);
  EXPECT_THAT(a.gradient, testing::Pointwise(testing::DoubleNear(1e-12), b.gradient));
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (const auto& [name, metric] : a.metrics) {
    EXPECT_NEAR(reported(name, metric), reported(name, b.metrics.at(name)), 1e-12) << name;
  }
}

TEST(Losses, DoNotDependOnTheSplitIntoMicroBatches) {
  const Case c(7);
  const std::vector<AlgorithmOptions> all = policy_variants();
  const std::set<std::string> on_pairs = {"pairwise", "preference", "odds_ratio"};
  const std::set<std::string> of_policies = {"policy", "cispo", "policy_and_value"};
  for (const char* name : {"policy", "cispo", "value", "policy_and_value", "sft", "pairwise",
                           "squared_error", "cross_entropy", "preference", "odds_ratio", "kto"}) {
    const LossFn loss = find_loss(name).value();
    const size_t count = of_policies.count(name) > 0 ? all.size() : 1;  // others do not read them
    for (const auto& options : std::vector(all.begin(), all.begin() + count)) {
      const Split whole = run_split(c, loss, options, 6);
      expect_same(run_split(c, loss, options, 2), whole);
      if (on_pairs.count(name) == 0) expect_same(run_split(c, loss, options, 1), whole);
    }
  }
}

double value_reference(const Case& c, const AlgorithmOptions& o) {
  double total = 0;
  for (size_t t = 0; t < c.x.size(); ++t) {
    double error = std::pow(c.x[t] - c.returns[t], 2);
    if (o.value_clip > 0) {
      const double low = c.values[t] - o.value_clip, high = c.values[t] + o.value_clip;
      error = std::max(error, std::pow(std::min(std::max(c.x[t], low), high) - c.returns[t], 2));
    }
    total += 0.5 * error / 19;
  }
  return o.critic_coef * total;
}

TEST(ValueLoss, EqualsReferenceAndFiniteDifferences) {
  const Case c(8);
  for (const double clip : {0.0, 0.2}) {
    AlgorithmOptions options;
    options.value_clip = clip;
    options.critic_coef = 0.4;
    const auto loss = [&](const at::Tensor& x) {
      return value_loss({{}, {}, x, {}}, c.batch(), c.totals(), options).value().loss;
    };
    EXPECT_NEAR(loss(double_tensor(c.x)).item<double>(), value_reference(c, options), 1e-12);
    expect_gradient(c.x, loss);
  }
}

// Of one model with two heads: the loss is the sum, and each head has the gradient of its own.
TEST(PolicyAndValueLoss, EqualsReferencesAndFiniteDifferences) {
  const Case c(14);
  const Numbers values = Case(15).x;
  Case critic = c;  // whose output is x
  critic.x = values;
  for (AlgorithmOptions options : policy_variants()) {
    options.critic_coef = 0.7;
    options.value_clip = 0.2;
    const auto loss = [&](const at::Tensor& logprobs, const at::Tensor& of_critic) {
      return policy_and_value_loss({logprobs, double_tensor(c.entropy), of_critic, {}}, c.batch(),
                                   c.totals(), options)
          .value();
    };
    const LossResult result = loss(double_tensor(c.x), double_tensor(values));
    EXPECT_NEAR(result.loss.item<double>(),
                policy_reference(c, options) + value_reference(critic, options), 1e-12);
    EXPECT_EQ(result.metrics.count("policy/loss") + result.metrics.count("critic/loss"), 2u);
    // The gradient of either is tried in all variants by itself.
    if (options.loss_agg != "token_mean" || options.ratio_level != "token") continue;
    expect_gradient(c.x, [&](const at::Tensor& x) { return loss(x, double_tensor(values)).loss; });
    expect_gradient(values, [&](const at::Tensor& x) { return loss(double_tensor(c.x), x).loss; });
  }
  const auto without = policy_and_value_loss({double_tensor(c.x), {}, {}, {}}, c.batch(),
                                             c.totals(), AlgorithmOptions());
  EXPECT_THAT(without.status().message(), testing::HasSubstr("values of the critic"));
}

TEST(SftLoss, CountsOnlyUnmaskedTokens) {
  const Case c(9);
  AlgoBatch batch = c.batch();
  Numbers mask(19, 0);
  double expected = 0;
  for (size_t t = 0; t < mask.size(); t += 3) {
    mask[t] = 1;
    expected -= c.x[t] / 7;
  }
  batch.fields["loss_mask"] = double_tensor(mask);
  const auto run = [&](const at::Tensor& x) {
    return sft_loss({x, {}, {}, {}}, batch, {7, 6, 3}, {}).value();
  };
  const LossResult result = run(double_tensor(c.x));
  EXPECT_NEAR(result.loss.item<double>(), expected, 1e-12);
  EXPECT_NEAR(result.metrics.at("sft/loss").mean(), expected, 1e-12);
  EXPECT_EQ(result.metrics.at("sft/loss").count, 7);
  expect_gradient(c.x, [&](const at::Tensor& x) { return run(x).loss; });
}

TEST(PairwiseLoss, EqualsReferenceAndFiniteDifferences) {
  const Case c(10);
  const Numbers scores = {0.5, -0.2, -1, 2, 0.1, 0.3};
  const auto run = [&](const at::Tensor& x) {
    return pairwise_loss({{}, {}, {}, x}, c.batch(), c.totals(), {}).value();
  };
  double expected = 0;
  for (size_t i = 0; i < 6; i += 2) {
    expected -= std::log(1 / (1 + std::exp(scores[i + 1] - scores[i]))) / 3;
  }
  const LossResult result = run(double_tensor(scores));
  EXPECT_NEAR(result.loss.item<double>(), expected, 1e-12);
  EXPECT_DOUBLE_EQ(result.metrics.at("rm/accuracy").mean(), 1.0 / 3);
  expect_gradient(scores, [&](const at::Tensor& x) { return run(x).loss; });
}

TEST(PairwiseLoss, RefusesSamplesThatAreNoPairs) {
  const Case c(11);
  AlgoBatch batch = c.batch();
  batch.groups = {0, 1, 1, 2, 2, 3};
  const auto result =
      pairwise_loss({{}, {}, {}, double_tensor(Numbers(6))}, batch, c.totals(), AlgorithmOptions{});
  EXPECT_THAT(result.status().message(), testing::HasSubstr("samples 0 and 1"));
  EXPECT_FALSE(pairwise_loss({{}, {}, {}, double_tensor({1})}, {{}, {1}, {0}}, {}, {}).ok());
}

TEST(PointwiseLoss, EqualsReferenceAndFiniteDifferences) {
  const Case c(11);
  const Numbers scores = {0.5, -0.2, -1, 2, 0.1, 0.3}, said = {0.5, -1, 2, 0, 0.25, 1};
  const Numbers wanted = {1, 0, 1, 1, 0, 1};
  double squares = 0, entropy = 0, error = 0;
  for (size_t i = 0; i < 6; ++i) {
    squares += (scores[i] - said[i]) * (scores[i] - said[i]) / 6;
    error += std::abs(scores[i] - said[i]) / 6;
    const double p = 1 / (1 + std::exp(-scores[i]));  // that it is wanted
    entropy -= (wanted[i] * std::log(p) + (1 - wanted[i]) * std::log(1 - p)) / 6;
  }
  const std::pair<LossFn, double> cases[] = {{squared_error_loss, squares},
                                             {cross_entropy_loss, entropy}};
  for (const auto& [loss, expected] : cases) {
    const auto run = [&, loss = loss](const at::Tensor& x) {
      return loss({{}, {}, {}, x}, c.batch(), c.totals(), {}).value();
    };
    const LossResult result = run(double_tensor(scores));
    EXPECT_NEAR(result.loss.item<double>(), expected, 1e-12);
    EXPECT_NEAR(result.metrics.at("rm/loss").mean(), expected, 1e-12);
    expect_gradient(scores, [&](const at::Tensor& x) { return run(x).loss; });
    AlgoBatch unrated = c.batch();
    unrated.fields.erase("score"), unrated.fields.erase("wanted");
    EXPECT_FALSE(loss({{}, {}, {}, double_tensor(scores)}, unrated, c.totals(), {}).ok());
  }
  const ModelOutputs outputs{{}, {}, {}, double_tensor(scores)};
  const auto squared = squared_error_loss(outputs, c.batch(), c.totals(), {});
  EXPECT_NEAR(squared->metrics.at("rm/error_abs_mean").mean(), error, 1e-12);
  const auto labelled = cross_entropy_loss(outputs, c.batch(), c.totals(), {});
  EXPECT_DOUBLE_EQ(labelled->metrics.at("rm/accuracy").mean(), 4.0 / 6);
}

// A score of 0 says nothing: half of the wanted and half of the others.
TEST(PointwiseLoss, HasItsKnownValueWhereScoresAreZero) {
  const Case c(11);
  const ModelOutputs outputs{{}, {}, {}, double_tensor(Numbers(6, 0))};
  EXPECT_NEAR(cross_entropy_loss(outputs, c.batch(), c.totals(), {})->loss.item<double>(),
              std::log(2.0), 1e-12);
  EXPECT_NEAR(squared_error_loss(outputs, c.batch(), c.totals(), {})->loss.item<double>(),
              (0.25 + 1 + 4 + 0.0625 + 1) / 6, 1e-12);
}

// Sums, or means, of new - ref over the tokens of each sample.
Numbers log_ratios(const Case& c, const Numbers& x, bool mean) {
  Numbers out;
  size_t begin = 0;
  for (const int64_t length : c.lens) {
    double sum = 0;
    for (size_t t = begin; t < begin + length; ++t) sum += x[t] - c.ref_logprobs[t];
    out.push_back(mean ? sum / static_cast<double>(length) : sum);
    begin += length;
  }
  return out;
}

double log_sigmoid(double x) { return -std::log1p(std::exp(-x)); }

double preference_reference(const AlgorithmOptions& o, double d) {
  if (o.preference_loss == "ipo") return (d - 0.5 / o.beta) * (d - 0.5 / o.beta);
  if (o.preference_loss == "hinge") return std::max(0.0, 1 - o.beta * d);
  const double e = o.label_smoothing;
  const double right = -log_sigmoid(o.beta * d), wrong = -log_sigmoid(-o.beta * d);
  if (o.preference_loss == "robust") return ((1 - e) * right - e * wrong) / (1 - 2 * e);
  return (1 - e) * right + e * wrong;
}

std::vector<AlgorithmOptions> preference_variants() {
  std::vector<AlgorithmOptions> out;
  for (const char* kind : {"sigmoid", "ipo", "hinge", "robust"})
    for (const double smoothing : {0.0, 0.2}) {
      AlgorithmOptions o;
      o.preference_loss = kind;
      o.beta = 0.3;
      if (o.preference_loss == "sigmoid" || o.preference_loss == "robust")
        o.label_smoothing = smoothing;
      out.push_back(o);
    }
  return out;
}

TEST(PreferenceLoss, EqualsReferenceAndFiniteDifferences) {
  const Case c(12);
  for (const AlgorithmOptions& o : preference_variants()) {
    SCOPED_TRACE(o.preference_loss);
    const auto run = [&](const at::Tensor& x) {
      return preference_loss({x, {}, {}, {}}, c.batch(), c.totals(), o).value();
    };
    const Numbers ratios = log_ratios(c, c.x, o.preference_loss == "ipo");
    double expected = 0, accuracy = 0;
    for (size_t i = 0; i < 6; i += 2) {
      expected += preference_reference(o, ratios[i] - ratios[i + 1]) / 3;
      accuracy += ratios[i] > ratios[i + 1] ? 1.0 / 3 : 0;
    }
    const LossResult result = run(double_tensor(c.x));
    EXPECT_NEAR(result.loss.item<double>(), expected, 1e-12);
    EXPECT_NEAR(result.metrics.at("dpo/accuracy").mean(), accuracy, 1e-12);
    EXPECT_NEAR(result.metrics.at("dpo/loss").mean(), expected, 1e-12);
    expect_gradient(c.x, [&](const at::Tensor& x) { return run(x).loss; });
  }
}

// At the begin policy and reference agree: the losses' known values.
TEST(PreferenceLoss, HasItsKnownValueWhereThePolicyIsTheReference) {
  const Case c(13);
  AlgorithmOptions o;
  const auto at_reference = [&](const char* kind) {
    o.preference_loss = kind;
    return preference_loss({double_tensor(c.ref_logprobs), {}, {}, {}}, c.batch(), c.totals(), o)
        ->loss.item<double>();
  };
  EXPECT_NEAR(at_reference("sigmoid"), std::log(2.0), 1e-12);
  EXPECT_NEAR(at_reference("hinge"), 1, 1e-12);
  EXPECT_NEAR(at_reference("ipo"), 25, 1e-12);  // (1 / (2 beta))^2
}

// Pairs may be any two of a group; samples of no pair have no gradient.
TEST(PreferenceLoss, TakesThePairsThatAreNamed) {
  const Case c(14);
  AlgoBatch batch = c.batch();
  batch.groups = {0, 1, 1, 0, 0, 1};
  batch.fields["preferred"] = double_tensor({-1, 0, 0, 0, 1, 0});
  const AlgorithmOptions o;
  const auto run = [&](const at::Tensor& x) {
    return preference_loss({x, {}, {}, {}}, batch, {19, 6, 2}, o).value().loss;
  };
  const Numbers ratios = log_ratios(c, c.x, false);
  EXPECT_NEAR(run(double_tensor(c.x)).item<double>(),
              preference_reference(o, ratios[4] - ratios[0]) / 2, 1e-12);
  expect_gradient(c.x, run);
  batch.fields["preferred"] = double_tensor({0, 0, 0, 0, 0, 0});
  EXPECT_EQ(run(double_tensor(c.x)).item<double>(), 0);
  batch.fields["preferred"] = double_tensor({0, 0, 0, 0, 1, 0});
  EXPECT_THAT(preference_loss({double_tensor(c.x), {}, {}, {}}, batch, {}, o).status().message(),
              testing::HasSubstr("preferred to none"));
}

TEST(OddsRatioLoss, EqualsReferenceAndFiniteDifferences) {
  const Case c(15);
  AlgorithmOptions o;
  o.beta = 0.4;
  Numbers x;  // log-probs are negative
  for (const double value : c.x) x.push_back(value - 1.2);
  Case zero = c;
  zero.ref_logprobs.assign(x.size(), 0);
  const auto run = [&](const at::Tensor& logprobs) {
    return odds_ratio_loss({logprobs, {}, {}, {}}, c.batch(), c.totals(), o).value();
  };
  const Numbers means = log_ratios(zero, x, true);
  const auto log_odds = [&](size_t i) { return means[i] - std::log(1 - std::exp(means[i])); };
  double expected = 0;
  for (size_t i = 0; i < 6; i += 2)
    expected += (-means[i] - o.beta * log_sigmoid(log_odds(i) - log_odds(i + 1))) / 3;
  EXPECT_NEAR(run(double_tensor(x)).loss.item<double>(), expected, 1e-12);
  expect_gradient(x, [&](const at::Tensor& logprobs) { return run(logprobs).loss; });
}

TEST(KtoLoss, EqualsReferenceAndFiniteDifferences) {
  const Case c(16);
  AlgorithmOptions o;
  o.beta = 0.3;
  o.wanted_weight = 0.75, o.unwanted_weight = 1.5;
  const AlgoBatch batch = c.batch();
  const auto run = [&](const at::Tensor& x) {
    return kto_loss({x, {}, {}, {}}, batch, c.totals(), o).value();
  };
  const Numbers ratios = log_ratios(c, c.x, false);
  const Numbers wanted = {1, 0, 1, 1, 0, 1};
  double expected = 0, accuracy = 0;
  for (size_t i = 0; i < 6; ++i) {
    const double gain = wanted[i] > 0 ? ratios[i] - 0.4 : 0.4 - ratios[i];
    expected += (wanted[i] > 0 ? 0.75 : 1.5) * (1 - 1 / (1 + std::exp(-o.beta * gain))) / 6;
    accuracy += gain > 0 ? 1.0 / 6 : 0;
  }
  const LossResult result = run(double_tensor(c.x));
  EXPECT_NEAR(result.loss.item<double>(), expected, 1e-12);
  EXPECT_NEAR(result.metrics.at("kto/loss").mean(), expected, 1e-12);
  EXPECT_NEAR(result.metrics.at("kto/accuracy").mean(), accuracy, 1e-12);
  EXPECT_NEAR(result.metrics.at("kto/unwanted_reward_mean").mean(),
              o.beta * (ratios[1] + ratios[4]) / 2, 1e-12);
  expect_gradient(c.x, [&](const at::Tensor& x) { return run(x).loss; });
}

// Where policy and reference agree, and their baseline is 0, every sample costs half its weight.
TEST(KtoLoss, HasItsKnownValueWhereThePolicyIsTheReference) {
  const Case c(17);
  AlgorithmOptions o;
  o.unwanted_weight = 3;
  AlgoBatch batch = c.batch();
  batch.fields["kl_baseline"] = double_tensor(Numbers(6, 0));
  const auto loss = kto_loss({double_tensor(c.ref_logprobs), {}, {}, {}}, batch, c.totals(), o)
                        ->loss.item<double>();
  EXPECT_NEAR(loss, (4 * 0.5 + 2 * 1.5) / 6, 1e-12);
}

TEST(KtoBaseline, IsTheMeanOfTheSamplesAndNeverBelowZero) {
  AlgoState state;
  AlgoBatch batch = {{{"mismatched_logprobs", double_tensor({-1, -2, -0.5})},
                      {"mismatched_ref_logprobs", double_tensor({-1.5, -2.25, -1.5})}},
                     {2, 1},
                     {0, 1}};
  const auto result = kto_baseline(batch, AlgorithmOptions{}, state);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(to_doubles(result->fields.at("kl_baseline")), testing::ElementsAre(0.875, 0.875));
  std::swap(batch.fields["mismatched_logprobs"], batch.fields["mismatched_ref_logprobs"]);
  EXPECT_EQ(to_doubles(kto_baseline(batch, AlgorithmOptions{}, state)->fields.at("kl_baseline"))[0],
            0);
}

TEST(BestAndWorst, NamesOnePairOfEachGroupWhoseRewardsDiffer) {
  AlgoState state;
  const AlgoBatch batch = {
      {{"rewards", double_tensor({1, 3, 2, 5, 5, 5})}}, {1, 1, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 1}};
  const auto result = best_and_worst(batch, AlgorithmOptions{}, state);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(to_doubles(result->fields.at("preferred")), testing::ElementsAre(-1, 1, 0, 0, 0, 0));
  EXPECT_DOUBLE_EQ(result->metrics.at("adv/zero_std_frac").mean(), 0.5);
}

// -r A, by hand.
OwnLoss plain_own_loss(const OwnLossInput& in) {
  return {.losses_R = -at::exp(in.logprobs_R - in.old_logprobs_R) * in.advantages_R};
}

std::string own_loss_error(OwnLoss (*loss)(const OwnLossInput&),
                           OwnGradient gradient = OwnGradient::kOfTheValue) {
  return check_own_loss("f.so", {.loss = loss, .gradient = gradient}).message();
}

TEST(OwnLoss, IsTriedByFiniteDifferences) {
  EXPECT_EQ(own_loss_error(plain_own_loss), "");
  const auto constant = [](const OwnLossInput& in) -> OwnLoss {
    const at::Tensor weights = at::exp(in.logprobs_R - in.old_logprobs_R).detach();
    return {.losses_R = -weights * in.advantages_R * in.logprobs_R};
  };
  EXPECT_THAT(own_loss_error(constant), testing::HasSubstr("f.so: its gradient is wrong"));
  EXPECT_EQ(own_loss_error(constant, OwnGradient::kWithConstants), "");
}

TEST(OwnLoss, WhatItMayNotGiveIsNamed) {
  const auto one_number = [](const OwnLossInput& in) -> OwnLoss {
    return {.losses_R = plain_own_loss(in).losses_R.sum().reshape({1})};
  };
  EXPECT_THAT(own_loss_error(one_number), testing::HasSubstr("1 losses for 8 tokens"));
  const auto unattached = [](const OwnLossInput& in) -> OwnLoss { return {.losses_R = in.mask_R}; };
  EXPECT_THAT(own_loss_error(unattached), testing::HasSubstr("do not depend on logprobs_R"));
  const auto infinite = [](const OwnLossInput& in) -> OwnLoss {
    return {.losses_R = plain_own_loss(in).losses_R / (in.mask_R - 1)};
  };
  EXPECT_THAT(own_loss_error(infinite), testing::HasSubstr("not finite"));
  const auto nothing = [](const OwnLossInput&) -> OwnLoss { return {}; };
  EXPECT_THAT(own_loss_error(nothing), testing::HasSubstr("gives no losses"));
  const auto throws = [](const OwnLossInput&) -> OwnLoss { throw std::runtime_error("odd"); };
  EXPECT_THAT(own_loss_error(throws), testing::HasSubstr("f.so: odd"));
  const auto taken = [](const OwnLossInput& in) -> OwnLoss {
    OwnLoss out = plain_own_loss(in);
    out.metrics["policy/ratio_mean"] = in.mask_R;
    return out;
  };
  EXPECT_THAT(own_loss_error(taken), testing::HasSubstr("'policy/ratio_mean' has a name of Braid"));
  EXPECT_THAT(find_loss("/none.so").status().message(), testing::HasSubstr("algorithm.loss"));
}

// The reward of a sample at each of its tokens.
OwnAdvantages plain_own_advantages(const OwnAdvantagesInput& in) {
  const at::Tensor lens = at::tensor(in.response_lens, at::kLong);
  return {.advantages_R = at::repeat_interleave(in.rewards_S, lens)};
}

TEST(OwnAdvantages, AreTriedBeforeARunBegins) {
  const auto error = [](OwnAdvantages (*advantages)(const OwnAdvantagesInput&)) {
    return check_own_advantages("f.so", {.advantages = advantages}).message();
  };
  EXPECT_EQ(error(plain_own_advantages), "");
  EXPECT_THAT(error([](const OwnAdvantagesInput& in) -> OwnAdvantages {
                return {.advantages_R = in.rewards_S};
              }),
              testing::HasSubstr("f.so: it gives 8 advantages for 21 tokens"));
  EXPECT_THAT(error([](const OwnAdvantagesInput& in) -> OwnAdvantages {
                return {.advantages_R = in.old_logprobs_R / 0.0};
              }),
              testing::HasSubstr("f.so: an advantage is not finite"));
  EXPECT_THAT(error([](const OwnAdvantagesInput&) -> OwnAdvantages { return {}; }),
              testing::HasSubstr("f.so: it gives no advantages"));
  EXPECT_THAT(
      error([](const OwnAdvantagesInput&) -> OwnAdvantages { throw std::runtime_error("odd"); }),
      testing::HasSubstr("f.so: odd"));
  EXPECT_THAT(error([](const OwnAdvantagesInput& in) -> OwnAdvantages {
                static int calls = 0;
                return {.advantages_R = in.old_logprobs_R + ++calls};
              }),
              testing::HasSubstr("differ from call to call"));
  EXPECT_THAT(error([](const OwnAdvantagesInput& in) -> OwnAdvantages {
                OwnAdvantages out = plain_own_advantages(in);
                out.metrics["adv/mean"] = in.rewards_S;
                return out;
              }),
              testing::HasSubstr("'adv/mean' has a name of Braid"));
  EXPECT_FALSE(is_metric_of_braid("own/mean"));
  EXPECT_THAT(find_compute("/none.so").status().message(),
              testing::HasSubstr("algorithm.advantages: /none.so"));
}

}  // namespace
}  // namespace braid::inline algo
