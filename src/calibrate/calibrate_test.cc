#include "calibrate/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "calibrate/least_squares.h"
#include "calibrate/test_rows.h"

namespace braid::inline calibrate {
namespace {

using testing::HasSubstr;

// Rows whose values are what the model says under `truth`.
std::vector<Measurement> synthetic_rows(const Calibration& truth) {
  std::vector<Measurement> rows;
  for (const char* model : {"llama3-8b", "llama3-70b", "qwen2.5-32b"})
    for (const int micro_batch : {1, 2, 4})
      for (const double length : {2048, 8192}) {
        Measurement row = train_row(cat("t", rows.size()));
        row.model = model;
        row.micro_batch = micro_batch;
        row.seq_len = length;
        row.value = predict_row(row, truth).predicted;
        rows.push_back(row);
      }
  return rows;
}

double worst_error(const std::vector<Measurement>& rows, const Calibration& calibration) {
  double worst = 0;
  for (const Measurement& row : rows)
    worst = std::max(worst, std::abs(*log_error(row, predict_row(row, calibration))));
  return worst;
}

TEST(LeastSquares, StraightLineWithAndWithoutPrior) {
  // value = 2 + 3 x, exact: a wide prior gives the line, a tight one stays at zero.
  const auto solve = [](double spread) {
    LeastSquaresProblem problem;
    problem.residuals = 20;
    problem.noise.assign(20, 0.1);
    problem.prior_spread = {spread, spread};
    problem.residual = [](int i, const std::vector<double>& at) {
      const double x = 0.1 * i;
      return Residual{2 + 3 * x - (at[0] + at[1] * x), {{0, 1.0}, {1, x}}};
    };
    return solve_least_squares(problem);
  };
  const auto free = solve(100), tight = solve(1e-4);
  EXPECT_NEAR(free[0], 2, 1e-3);
  EXPECT_NEAR(free[1], 3, 1e-3);
  EXPECT_NEAR(tight[0], 0, 0.01);
}

TEST(LeastSquares, OutliersCountLittle) {
  LeastSquaresProblem problem;
  problem.residuals = 21;
  problem.noise.assign(21, 0.1);
  problem.prior_spread = {10};
  problem.residual = [](int i, const std::vector<double>& at) {
    return Residual{(i == 20 ? 50.0 : 1.0 + 0.01 * (i % 3)) - at[0], {{0, 1.0}}};
  };
  EXPECT_NEAR(solve_least_squares(problem)[0], 1.01, 0.02);
}

TEST(Calibrate, RecoversWhatMadeTheMeasurements) {
  Calibration truth;
  truth.offsets["matmul_share"] = -0.2;
  truth.offsets["attention_share"] = 0.2;
  const std::vector<Measurement> rows = synthetic_rows(truth);
  EXPECT_GT(worst_error(rows, Calibration{}), 0.1);
  EXPECT_LT(worst_error(rows, fit_calibration(rows)), 0.02);
}

TEST(Calibrate, OrderOfRowsDoesNotMatter) {
  Calibration truth;
  truth.offsets["matmul_share"] = 0.15;
  std::vector<Measurement> rows = synthetic_rows(truth);
  const Calibration once = fit_calibration(rows);
  std::reverse(rows.begin(), rows.end());
  const Calibration again = fit_calibration(rows);
  for (const auto& [name, offset] : once.offsets)
    EXPECT_NEAR(offset, again.offsets.count(name) ? again.offsets.at(name) : 0, 2e-3) << name;
}

TEST(Calibrate, UnseenRowsAreNotInTheFitThatPredictsThem) {
  std::vector<Measurement> rows = synthetic_rows(Calibration{});
  const auto part = [](const Measurement& row) { return row.id == "t0" ? "left out" : "kept"; };
  const double before = predict_unseen(rows, part, {})[0].predicted;
  *rows[0].value *= 100;
  EXPECT_DOUBLE_EQ(predict_unseen(rows, part, {})[0].predicted, before);
}

TEST(Calibrate, FoldsKeepGroupsAndConfigurationsTogether) {
  const auto fold = folds_by_configuration(5);
  Measurement a = train_row("a"), b = train_row("b");
  b.engine = "megatron-bridge-26.04";
  b.value = 3;
  EXPECT_EQ(fold(a), fold(b));
  a.group = "g";
  b.group = "g";
  b.tp = 8;
  EXPECT_EQ(fold(a), fold(b));
  std::set<std::string> names;
  for (int length = 1; length < 200; ++length) {
    Measurement row = train_row("x");
    row.seq_len = 100 * length;
    names.insert(fold(row));
  }
  EXPECT_EQ(names.size(), 5u);
}

TEST(Calibration, JsonBothWays) {
  Calibration calibration;
  calibration.offsets = {{"matmul_share", 0.25}, {"matmul_share@engine:vllm", -0.5}};
  calibration.intervals = {{"train_step/seen", 0.2}};
  calibration.engines = {"vllm-0.6.3"};
  const auto read = calibration_from_json(calibration_json(calibration));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, calibration);
  EXPECT_THAT(calibration_source(calibration), HasSubstr("\"matmul_share@engine:vllm\": -0.5"));
}

TEST(Calibration, ErrorsNameTheEntry) {
  const auto failure = [](const char* text) {
    return calibration_from_json(Json::parse(text)).status().message();
  };
  EXPECT_EQ(failure(R"({"offsets": {"speed": 1}})"), "offsets: unknown efficiency 'speed'");
  EXPECT_EQ(failure(R"({"offsets": {"matmul_share": 99}})"),
            "offsets: 'matmul_share' is out of range");
  EXPECT_EQ(failure(R"({"offsets": {"matmul_share": "x"}})"),
            "offsets: 'matmul_share' must be a number");
  EXPECT_EQ(failure("[]"), "a calibration must be a JSON object");
  EXPECT_THAT(failure(R"({"ofsets": {}})"),
              HasSubstr("unknown key 'ofsets' (did you mean 'offsets'"));
  EXPECT_THAT(failure("{}"), HasSubstr("missing key 'offsets'"));
}

TEST(Calibration, NothingDependsOnASingleModel) {
  std::set<std::string> levels;
  for (const auto& [name, offset] : committed_calibration().offsets) {
    const size_t at = name.find('@');
    if (at == std::string::npos) continue;
    const size_t colon = name.find(':', at);
    levels.insert(name.substr(at + 1, colon - at - 1));
  }
  EXPECT_THAT(levels,
              testing::IsSubsetOf({"arch", "gpu", "precision", "stack", "engine", "release"}));
}

TEST(Calibration, OffsetsMultiply) {
  Calibration calibration;
  calibration.offsets = {{"matmul_share", std::log(0.5)},
                         {"matmul_share@arch:hopper", std::log(1.5)},
                         {"matmul_share@engine:nobody", std::log(4.0)}};
  const GpuSpec gpu = *find_gpu("h100-80g");
  const double prior =
      resolve_efficiency({}, efficiency_key(gpu, Precision::kBf16, "")).matmul_share;
  EXPECT_NEAR(
      resolve_efficiency(calibration, efficiency_key(gpu, Precision::kBf16, "vllm")).matmul_share,
      0.75 * prior, 1e-12);
}

}  // namespace
}  // namespace braid::inline calibrate
