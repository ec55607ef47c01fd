// Advantages, loss and gradient of one step of each algorithm against an independent computation
// (tools/make_algorithm_goldens.py), from the defaults of its name; and what an unchanged policy
// gives.
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "algo/batch.h"
#include "algo/functions.h"
#include "base/json.h"
#include "config/algorithm_check.h"
#include "config/algorithm_traits.h"
#include "config/options.h"
#include "test_paths.h"

namespace braid::inline algo {
namespace {

using GoldenNumbers = std::vector<double>;
using testing::DoubleNear;
using testing::Pointwise;

constexpr double kOfFloats = 3e-6;  // advantages are kept in f32

const Json& golden_file() {
  static const Json file = [] {
    std::ifstream in(std::string(BRAID_SOURCE_DIR) + "/tests/data/algorithms.json");
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    return *parse_json(text, "algorithms.json");
  }();
  return file;
}

at::Tensor golden_tensor(const char* field) {
  return at::tensor(golden_file()["batch"][field].get<GoldenNumbers>(), at::kDouble);
}

AlgoBatch golden_batch() {
  return {{{"rewards", golden_tensor("rewards")},
           {"old_logprobs", golden_tensor("old_logprobs")},
           {"ref_logprobs", golden_tensor("ref_logprobs")}},
          golden_file()["batch"]["lengths"].get<std::vector<int64_t>>(),
          golden_file()["batch"]["groups"].get<std::vector<int64_t>>()};
}

// What a graph of the algorithm names; the graphs themselves are not below this module.
struct FunctionsOf {
  const char* name;
  const char* advantages;
  const char* loss;
};
void PrintTo(const FunctionsOf& of, std::ostream* out) { *out << of.name; }

class AlgorithmGoldens : public testing::TestWithParam<FunctionsOf> {
 protected:
  static AlgorithmOptions options() {
    Config config;
    const Json& file = golden_file();
    set_name_defaults(GetParam().name, file["batch"]["max_response_length"].get<int64_t>(),
                      &config);
    config.algorithm.kl.coef = expected()["kl_coef"].get<double>();
    config.algorithm.gamma = expected()["gamma"].get<double>();
    config.algorithm.clip_low = expected().value("clip_low", config.algorithm.clip_low);
    config.algorithm.clip_high = expected().value("clip_high", config.algorithm.clip_high);
    EXPECT_TRUE(validate(config.algorithm).ok()) << validate(config.algorithm).message();
    return config.algorithm;
  }
  static const Json& expected() { return golden_file()["cases"][GetParam().name]; }
  static ComputeResult advantages(const AlgoBatch& batch) {
    AlgoState state;
    return find_compute(GetParam().advantages).value()(batch, options(), state).value();
  }
  static LossResult loss(const at::Tensor& logprobs, const AlgoBatch& batch) {
    const auto samples = static_cast<double>(batch.response_lens.size());
    return find_loss(GetParam().loss)
        .value()({logprobs, {}, {}, {}}, batch,
                 {static_cast<double>(token_count(batch)), samples, 3}, options())
        .value();
  }
};

TEST_P(AlgorithmGoldens, StepEqualsAnIndependentComputation) {
  AlgoBatch batch = golden_batch();
  const auto wanted = expected()["advantages"].get<GoldenNumbers>();
  EXPECT_THAT(to_doubles(advantages(batch).fields.at("advantages")),
              Pointwise(DoubleNear(kOfFloats), wanted));
  batch.fields["advantages"] = at::tensor(wanted, at::kDouble);
  at::Tensor logprobs = golden_tensor("logprobs").requires_grad_(true);
  const LossResult result = loss(logprobs, batch);
  EXPECT_NEAR(result.loss.item<double>(), expected()["loss"].get<double>(), 1e-12);
  result.loss.backward();
  EXPECT_THAT(to_doubles(logprobs.grad()),
              Pointwise(DoubleNear(1e-12), expected()["gradient"].get<GoldenNumbers>()));
  EXPECT_GT(result.metrics.at("policy/clipfrac").mean(), 0);
}

// Ratio 1, KL 0, nothing clipped; the gradient is the advantage times the token's weight.
TEST_P(AlgorithmGoldens, UnchangedPolicyHasThePolicyGradient) {
  AlgoBatch batch = golden_batch();
  batch.fields["ref_logprobs"] = batch.fields["old_logprobs"];
  const ComputeResult computed = advantages(batch);
  batch.fields["advantages"] = computed.fields.at("advantages");
  at::Tensor logprobs = golden_tensor("old_logprobs").requires_grad_(true);
  const LossResult result = loss(logprobs, batch);
  EXPECT_EQ(result.metrics.at("policy/ratio_mean").min, 1);
  EXPECT_EQ(result.metrics.at("policy/ratio_mean").max, 1);
  EXPECT_EQ(result.metrics.at("policy/clipfrac").mean(), 0);
  EXPECT_EQ(result.metrics.at("kl/update").mean(), 0);
  const bool in_loss = options().kl.in == "loss";
  EXPECT_EQ((in_loss ? result.metrics : computed.metrics).at("kl/ref_k1").mean(), 0);
  result.loss.backward();
  const GoldenNumbers gradient = to_doubles(logprobs.grad());
  const GoldenNumbers gains = to_doubles(batch.fields["advantages"]);
  const AlgorithmOptions o = options();
  size_t t = 0;
  for (const int64_t length : batch.response_lens) {
    double sum = 0, mean = 0;  // a sequence's ratio spreads its gain over its tokens: sums agree
    const double weight = o.loss_agg == "token_mean"      ? 1.0 / 19
                          : o.loss_agg == "constant_norm" ? 1 / (6 * o.loss_norm_tokens)
                                                          : 1 / (6 * static_cast<double>(length));
    for (int64_t i = 0; i < length; ++i, ++t) {
      sum += gradient[t];
      mean -= gains[t] * weight;
    }
    EXPECT_NEAR(sum, mean, 1e-12);
  }
}

TEST(AlgorithmGoldens, HoldEveryAlgorithmOfTheFile) { EXPECT_EQ(golden_file()["cases"].size(), 9); }

INSTANTIATE_TEST_SUITE_P(Names, AlgorithmGoldens,
                         testing::Values(FunctionsOf{"grpo", "grpo_advantages", "policy"},
                                         FunctionsOf{"dapo", "grpo_advantages", "policy"},
                                         FunctionsOf{"dr_grpo", "grpo_advantages", "policy"},
                                         FunctionsOf{"gspo", "grpo_advantages", "policy"},
                                         FunctionsOf{"cispo", "grpo_advantages", "cispo"},
                                         FunctionsOf{"rloo", "rloo_advantages", "policy"},
                                         FunctionsOf{"reinforce", "reinforce_advantages", "policy"},
                                         FunctionsOf{"reinforce_plus_plus", "reinforce_advantages",
                                                     "policy"},
                                         FunctionsOf{"reinforce_plus_plus_baseline",
                                                     "reinforce_baseline_advantages", "policy"}));

}  // namespace
}  // namespace braid::inline algo
