#include "scoring/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace braid::inline scoring {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Json response(int64_t number, Json total, int tokens, const char* finish = "stop") {
  return {{"sample", number},
          {"response_ids", std::vector<int>(tokens, 1)},
          {"finish", finish},
          {"rewards", {{"gold", total}}},
          {"total", total}};
}

TEST(Compare, MeansAreByPrompt) {
  EvalConfig eval;
  eval.samples_per_prompt = 2;
  eval.pass_threshold = 1;
  EvalReport report;
  report.samples = {response(0, 1, 4), response(1, 0, 2), response(2, nullptr, 3, "length"),
                    response(3, 1, 3)};
  const PromptMeans means = prompt_means(report, eval);
  EXPECT_EQ(means.at("eval/accuracy"), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(means.at("eval/reward_mean"), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(means.at("eval/gold_mean"), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(means.at("eval/response_mean"), (std::vector<double>{3, 3}));
  EXPECT_EQ(means.at("eval/truncated_frac"), (std::vector<double>{0, 0.5}));
  const std::vector<double>& both = means.at("eval/pass_at_2");
  EXPECT_EQ(both[0], 1);
  EXPECT_TRUE(std::isnan(both[1])) << "one of the two was not scored";
}

// Differences 1, 0, 1, 0: mean 1/2, variance 1/3, standard error sqrt(1/3/4).
TEST(Compare, TheStandardErrorIsThatOfPairs) {
  const PairedDifference found = paired_difference({1, 1, 1, 0, 5}, {0, 1, 0, 0, kNone});
  EXPECT_EQ(found.prompts, 4);
  EXPECT_DOUBLE_EQ(found.mean, 0.5);
  EXPECT_DOUBLE_EQ(found.standard_error, std::sqrt(1.0 / 12));
  EXPECT_EQ(paired_difference({3}, {1}).standard_error, 0);
  EXPECT_EQ(paired_difference({kNone}, {1}).prompts, 0);
}

}  // namespace
}  // namespace braid::inline scoring
