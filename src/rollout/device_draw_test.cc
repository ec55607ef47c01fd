// Tokens that are drawn where the logits are against those of sample_token(), which reads whole
// rows on the host.
#include "rollout/device_draw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>

namespace braid::inline rollout {
namespace {

constexpr int64_t kWholeVocab = 2500;  // two whole blocks and a part of one

struct Rows {
  std::vector<SamplingOptions> options;
  std::vector<int32_t> prompt = {1}, response;
  std::vector<DrawRow> rows() const {
    std::vector<DrawRow> out;
    for (size_t i = 0; i < options.size(); ++i)
      out.push_back({&options[i], {&prompt, &response, i}});
    return out;
  }
};

Rows rows_at(std::initializer_list<double> temperatures, int64_t each) {
  Rows out;
  for (int64_t i = 0; i < each; ++i)
    for (const double temperature : temperatures) {
      SamplingOptions options;
      options.temperature = temperature;
      options.seed = 7;
      out.options.push_back(options);
    }
  return out;
}

TEST(DeviceDraw, DrawsWhatWholeRowsDraw) {
  const Rows of = rows_at({1, 0.6, 0, 1.5}, 40);
  const std::vector<DrawRow> rows = of.rows();
  at::manual_seed(3);
  const at::Tensor logits = at::randn({std::ssize(rows), kWholeVocab}) * 3;
  ASSERT_TRUE(draws_on_device(rows));
  const auto drawn = draw_on_device(rows, logits);
  std::vector<bool> block(3);
  for (int64_t r = 0; r < std::ssize(rows); ++r) {
    at::Tensor row = logits[r].clone();
    const auto expected =
        sample_token(row.mutable_data_ptr<float>(), kWholeVocab, *rows[r].options, rows[r].context);
    ASSERT_TRUE(expected.ok() && drawn[r].ok());
    EXPECT_EQ(drawn[r]->token, expected->token) << r;
    EXPECT_NEAR(drawn[r]->logprob, expected->logprob, 1e-5) << r;
    block[drawn[r]->token / 1024] = true;
  }
  EXPECT_EQ(block, std::vector<bool>(3, true)) << "the test draws from every block";
}

TEST(DeviceDraw, NamesRowsWithoutADistribution) {
  const Rows of = rows_at({1, 0}, 2);
  const at::Tensor logits = at::randn({4, kWholeVocab});
  logits[1][5] = std::numeric_limits<float>::quiet_NaN();
  logits[2][2499] = std::numeric_limits<float>::infinity();
  const auto drawn = draw_on_device(of.rows(), logits);
  for (const int64_t row : {0, 3}) EXPECT_TRUE(drawn[row].ok()) << row;
  for (const int64_t row : {1, 2}) EXPECT_FALSE(drawn[row].ok()) << row;
}

TEST(DeviceDraw, LeavesChangedDistributionsToTheHost) {
  const auto draws = [](const std::function<void(SamplingOptions&)>& change) {
    Rows of = rows_at({1}, 3);
    change(of.options[1]);
    return draws_on_device(of.rows());
  };
  EXPECT_TRUE(draws([](SamplingOptions&) {}));
  EXPECT_FALSE(draws([](SamplingOptions& with) { with.top_k = 5; }));
  EXPECT_FALSE(draws([](SamplingOptions& with) { with.top_p = 0.9; }));
  EXPECT_FALSE(draws([](SamplingOptions& with) { with.min_p = 0.1; }));
  EXPECT_FALSE(draws([](SamplingOptions& with) { with.repetition_penalty = 1.1; }));
  EXPECT_FALSE(draws([](SamplingOptions& with) { with.min_new_tokens = 1; }));
}

}  // namespace
}  // namespace braid::inline rollout
