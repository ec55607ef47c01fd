// Rows as a user's file states them: what is predicted, what is refused, what is never read.
#include "calibrate/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/text.h"
#include "calibrate/test_rows.h"
#include "calibrate/validate.h"
#include "test_paths.h"

namespace braid::inline calibrate {

std::string repository_text(const std::string& path) {
  std::ifstream file(cat(BRAID_SOURCE_DIR, "/", path), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

namespace {

using testing::HasSubstr;

Prediction predict(const Measurement& row) { return predict_row(row, committed_calibration()); }

std::string reason(const Measurement& row) {
  const Prediction prediction = predict(row);
  EXPECT_FALSE(prediction.supported);
  EXPECT_EQ(prediction.predicted, 0);
  return prediction.reason;
}

Measurement collective_row() {
  Measurement row;
  row.id = std::string("collective");
  row.kind = MeasurementKind::kCollective;
  row.gpu = "h100-80g";
  row.n_gpus = 8;
  row.collective = "all_reduce";
  row.bytes = 1 << 30;
  row.metric = MeasuredQuantity::kTimeUs;
  return row;
}

TEST(Predict, EveryKindWithAnInterval) {
  for (const Measurement& row :
       {train_row("t"), generate_row("g"), rl_row("r"), memory_row("m"), collective_row()}) {
    const Prediction prediction = predict(row);
    EXPECT_TRUE(prediction.supported) << prediction.reason;
    EXPECT_EQ(prediction.id, row.id);
    EXPECT_GT(prediction.low, 0);
    EXPECT_LT(prediction.low, prediction.predicted);
    EXPECT_GT(prediction.high, prediction.predicted);
    EXPECT_EQ(prediction.fits.empty(), !row.is_memory);
  }
}

TEST(Predict, MetricsOfOneRunAgree) {
  Measurement row = train_row("t");
  const double seconds = predict(row).predicted;
  row.metric = MeasuredQuantity::kTokensPerSecondPerGpu;
  EXPECT_NEAR(predict(row).predicted, 128 * 4096 / seconds / 8, 1e-6);
  Measurement collective = collective_row();
  const double us = predict(collective).predicted;
  collective.metric = MeasuredQuantity::kBusbw;
  EXPECT_NEAR(predict(collective).predicted, (1 << 30) * 2.0 * 7 / 8 / (us * 1e-6) / 1e9, 1e-6);
}

TEST(Predict, NeverReadsTheMeasuredValue) {
  for (const char* file : {"measurements.csv", "memory.csv"}) {
    const std::string path = cat("examples/measurements/", file);
    const auto rows = parse_measurements(repository_text(path), path);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    for (size_t i = 0; i < rows->size(); ++i) {
      Measurement blank = (*rows)[i], other = (*rows)[i];
      blank.value = blank.peak_memory_gib = std::nullopt;
      other.value = (*rows)[(i + 7) % rows->size()].value;
      other.peak_memory_gib = (*rows)[(i + 7) % rows->size()].peak_memory_gib;
      const Prediction with = predict((*rows)[i]), without = predict(blank),
                       swapped = predict(other);
      ASSERT_EQ(with.predicted, without.predicted) << with.id;
      ASSERT_EQ(with.predicted, swapped.predicted) << with.id;
      ASSERT_EQ(with.low, without.low);
      ASSERT_EQ(with.fits, without.fits);
      ASSERT_EQ(with.reason, without.reason);
    }
  }
}

TEST(Predict, UnknownNamesAreUnsupportedWithTheNearest) {
  Measurement row = train_row("t");
  row.model = "llama3-8";
  EXPECT_THAT(reason(row), HasSubstr("llama3-8b"));
  row = train_row("t");
  row.gpu = "h100";
  EXPECT_THAT(reason(row), HasSubstr("h100"));
  row = rl_row("r");
  row.critic_model = "nobody-1b";
  EXPECT_THAT(reason(row), HasSubstr("nobody-1b"));
}

TEST(Predict, LayoutsLargerThanTheRowAreRefused) {
  Measurement row = generate_row("g");
  row.n_gpus = 1;
  row.tp = 16;
  EXPECT_EQ(reason(row), "dp x tp x pp is 16, but the row has 1 devices");
  row = rl_row("r");
  row.train_gpus = *row.n_gpus + 1;
  EXPECT_THAT(reason(row), HasSubstr("exceed the devices"));
  row = rl_row("r");
  row.gen_tp = 2 * *row.n_gpus;
  EXPECT_THAT(reason(row), HasSubstr("exceed the devices"));
}

TEST(Predict, SizesBeyondAllMeasureAreUnsupported) {
  for (Measurement row : {train_row("t"), generate_row("g"), rl_row("r")}) {
    row.tp = row.pp = row.cp = 1 << 24;
    EXPECT_THAT(reason(row), HasSubstr("but the row has"));
  }
  Measurement row = train_row("t");
  row.seq_len = 1e300;
  EXPECT_EQ(reason(row), "its sizes are out of any range that can be priced");
}

TEST(Predict, NarrowOptimizerStatesNeedLessMemory) {
  Measurement row = memory_row("m");
  const auto peak = [&](const char* optimizer) {
    row.optimizer = optimizer;
    return predict(row).predicted;
  };
  EXPECT_EQ(*parse_optimizer_memory("adamw, 8-bit states"), (OptimizerMemory{2, 2, 0, 0}));
  EXPECT_LT(peak("adamw, 8-bit states"), peak("adamw, 32-bit master weights, 8-bit states"));
  EXPECT_LT(peak("adamw, 32-bit master weights, 8-bit states"),
            peak("adamw, 32-bit master weights and states"));
}

TEST(Predict, TheFirstTokenDoesNotWaitForTheRestOfTheJob) {
  Measurement row = generate_row("g");
  row.phase = "first_token";
  row.metric = MeasuredQuantity::kTimeUs;
  row.concurrency = 1;
  row.output_len = 1;
  row.requests = 1;
  const double alone = predict(row).predicted;
  row.requests = 500;
  row.output_len = 256;
  EXPECT_EQ(predict(row).predicted, alone);
  row.concurrency = 64;
  EXPECT_GT(predict(row).predicted, alone);
}

TEST(Predict, PhasesBelongToTheirKind) {
  Measurement row = train_row("t");
  row.phase = "first_token";
  EXPECT_EQ(reason(row), "phase first_token does not belong to train_step");
  row = generate_row("g");
  row.phase = "train";
  EXPECT_EQ(reason(row), "phase train does not belong to generate");
  row = rl_row("r");
  row.phase = "reshard";
  row.engine = "deepspeed-chat";
  EXPECT_THAT(reason(row), HasSubstr("no phase 'reshard'"));
}

TEST(Predict, EnginesNeverMeasuredGetTheirStackOrTheAverage) {
  EXPECT_EQ(engine_stack("megatron-core-0.12"), "megatron");
  EXPECT_EQ(engine_stack("verl-megatron"), "megatron");
  EXPECT_EQ(engine_stack("transformers+deepspeed"), "torch-eager");
  EXPECT_EQ(engine_stack("my-trainer"), "");
  Measurement row = train_row("t");
  const auto of = [&](const char* engine) {
    row.engine = engine;
    return predict(row);
  };
  const Prediction unknown = of("my-trainer-1.0"), none = of(""), kin = of("megatron-core-0.12"),
                   seen = of("nemo-25.04");
  EXPECT_EQ(unknown.reason, "engine 'my-trainer-1.0' was not measured: default efficiencies");
  EXPECT_EQ(none.reason, "the row does not state its engine: default efficiencies");
  EXPECT_THAT(kin.reason, HasSubstr("default efficiencies of the stack 'megatron'"));
  EXPECT_EQ(seen.reason, "");
  EXPECT_EQ(unknown.predicted, none.predicted);
  EXPECT_NE(unknown.predicted, kin.predicted);
  EXPECT_GT(unknown.high / unknown.low, seen.high / seen.low);
}

TEST(Predict, MissingColumnsAreNamed) {
  Measurement row = train_row("t");
  row.seq_len = std::nullopt;
  EXPECT_EQ(reason(row), "the row does not state seq_len");
  row = train_row("t");
  row.global_batch = std::nullopt;
  EXPECT_EQ(reason(row), "the row does not state global_batch");
  row = train_row("t");
  row.n_gpus = std::nullopt;
  EXPECT_EQ(reason(row), "the row does not state n_gpus");
  row = generate_row("g");
  row.output_len = std::nullopt;
  EXPECT_EQ(reason(row), "the row does not state output_len");
  row = rl_row("r");
  row.output_len = std::nullopt;  // the limit is no substitute
  EXPECT_THAT(reason(row), HasSubstr("output_len (max_output_len is only a limit)"));
  row = rl_row("r");
  row.prompts = std::nullopt;
  EXPECT_THAT(reason(row), HasSubstr("prompts"));
  row = train_row("t");
  row.model = "";
  EXPECT_EQ(reason(row), "the row does not state model");
  row = train_row("t");
  row.gpu = "";
  EXPECT_EQ(reason(row), "the row does not state gpu");
  row = collective_row();
  row.collective = "";
  EXPECT_EQ(reason(row), "the row does not state collective");
  row = collective_row();
  row.bytes = std::nullopt;
  EXPECT_EQ(reason(row), "the row does not state bytes");
  row = memory_row("m");
  row.optimizer = "";
  EXPECT_THAT(reason(row), HasSubstr("optimizer"));
  row = memory_row("m");
  row.offload = "unknown";
  EXPECT_THAT(reason(row), HasSubstr("offloaded"));
}

TEST(Predict, ImpossibleRowsAreRefused) {
  Measurement row = train_row("t");
  row.dp = 3;
  EXPECT_EQ(reason(row), "dp x tp x pp x cp is 6, but the row has 8 devices");
  row = train_row("t");
  row.metric = MeasuredQuantity::kBusbw;
  EXPECT_EQ(reason(row), "metric busbw_gbytes_per_s does not belong to train_step");
  row = train_row("t");
  row.gpu = "a100-80g";
  row.precision = "fp8";
  EXPECT_THAT(reason(row), HasSubstr("does not support fp8"));
  row = generate_row("g");
  row.model = "llama3-70b";
  EXPECT_THAT(reason(row), HasSubstr("do not fit on 1 x h100-80g"));
  row = collective_row();
  row.n_gpus = 1;
  EXPECT_THAT(reason(row), HasSubstr("at least two"));
}

TEST(Predict, UnseenEnginesGetTheDefaultAndAWiderInterval) {
  Measurement row = train_row("t");
  const Prediction seen = predict(row);
  row.engine = "nobodys-engine-1.0";
  const Prediction unseen = predict(row);
  EXPECT_TRUE(unseen.supported);
  EXPECT_GT(unseen.high / unseen.predicted, seen.high / seen.predicted);
  // The default does not depend on which unknown engine it is.
  row.engine = "another-2.0";
  EXPECT_EQ(predict(row).predicted, unseen.predicted);
}

TEST(Predict, MoreWorkTakesLonger) {
  const auto seconds = [](auto change) {
    Measurement row = train_row("t");
    change(&row);
    return predict(row).predicted;
  };
  const double base = seconds([](Measurement*) {});
  EXPECT_GT(seconds([](Measurement* row) { row->seq_len = 8192; }), base);
  EXPECT_GT(seconds([](Measurement* row) { row->global_batch = 256; }), base);
  EXPECT_GT(seconds([](Measurement* row) { row->recompute = "full"; }), base);
  EXPECT_GT(seconds([](Measurement* row) { row->model = "llama3-70b"; }), base);
  EXPECT_LT(seconds([](Measurement* row) { row->precision = "fp8"; }), base);
  EXPECT_LT(seconds([](Measurement* row) {
              row->n_gpus = 16;
              row->dp = 8;
            }),
            base);
}

TEST(Predict, FullerDevicesStopFitting) {
  Measurement row = memory_row("m");
  EXPECT_EQ(predict(row).fits, "yes");
  row.model = "llama3-70b";
  EXPECT_EQ(predict(row).fits, "no");
}

}  // namespace
}  // namespace braid::inline calibrate
