#include "foreign/logs/log_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "calibrate/refit.h"
#include "calibrate/test_rows.h"

namespace braid::inline calibrate {
namespace {

using testing::HasSubstr;

std::vector<LoggedStep> read(const std::string& text, LogFormat format) {
  const auto steps = parse_step_log(text, format, "log");
  EXPECT_TRUE(steps.ok()) << steps.status().message();
  return steps.ok() ? *steps : std::vector<LoggedStep>{};
}

TEST(LogImport, VerlConsole) {
  const auto steps = read(
      "INFO loading\n"
      "(TaskRunner pid=7) step:1 - timing_s/gen:12.5 - timing_s/old_log_prob:2.0 - timing_s/ref:1.5"
      " - timing_s/update_actor:np.float64(8.25) - timing_s/values:0.5 - timing_s/update_critic:4"
      " - timing_s/step:30.0 - response_length/mean:812.5 - response_length/max:2048.0 -"
      " prompt_length/mean:100.0 - perf/max_memory_allocated_gb:40.5 -"
      " perf/max_memory_reserved_gb:61.0\n",
      LogFormat::kVerl);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].line, 2);
  EXPECT_EQ(steps[0].generate_s, 12.5);
  EXPECT_EQ(steps[0].logprob_s, 3.5);
  EXPECT_EQ(steps[0].train_s, 8.25);
  EXPECT_EQ(steps[0].critic_s, 4.5);
  EXPECT_EQ(steps[0].total_s, 30);
  EXPECT_EQ(steps[0].output_len, 812.5);
  EXPECT_EQ(steps[0].max_output_len, 2048);
  EXPECT_EQ(steps[0].prompt_len, 100);
  EXPECT_EQ(steps[0].peak_memory_gib, 61);
  EXPECT_FALSE(steps[0].reshard_s);
}

TEST(LogImport, JsonLinesFlatAndNested) {
  const auto verl =
      read(R"({"step": 1, "data": {"timing_s/gen": 3, "timing_s/step": 9}})", LogFormat::kVerl);
  ASSERT_EQ(verl.size(), 1u);
  EXPECT_EQ(verl[0].generate_s, 3);
  const auto nemo =
      read(R"({"timing": {"train": {"generation": 5, "policy_training": 7, "total_step_time": 20, )"
           R"("policy_and_reference_logprobs": 2}}, "train": {"mean_gen_tokens_per_sample": 900}})",
           LogFormat::kNemoRl);
  ASSERT_EQ(nemo.size(), 1u);
  EXPECT_EQ(nemo[0].generate_s, 5);
  EXPECT_EQ(nemo[0].train_s, 7);
  EXPECT_EQ(nemo[0].logprob_s, 2);
  EXPECT_EQ(nemo[0].output_len, 900);
}

TEST(LogImport, VerlMemoryBelowTheActor) {
  const auto steps = read(
      "step:0 - val-core/gsm8k/acc/mean@1:0.5\n"
      "(TaskRunner pid=9) step:1 - actor/perf/max_memory_allocated_gb:24.5 -"
      " actor/perf/max_memory_reserved_gb:27.5 - timing_s/gen:74.02 - timing_s/step:96.551\n",
      LogFormat::kVerl);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].line, 2);
  EXPECT_EQ(steps[0].peak_memory_gib, 27.5);
  EXPECT_EQ(steps[0].total_s, 96.551);
}

TEST(LogImport, NemoConsole) {
  const auto steps = read(
      "========================= Step 1/100 =========================\n"
      "\u2022 Loss: 0.1032\n"
      "  \u2022 Mean Generation Length: 812.5000\n"
      "  \u2022 Total step time: 66.55s\n"
      "  \u2022 generation: 32.52s (48.9%)\n"
      "  \u2022 policy_training: 25.05s (37.6%)\n"
      "  \u2022 policy_and_reference_logprobs: 4.78s (7.2%)\n"
      "  \u2022 prepare_for_generation/total: 1.25s (1.9%)\n"
      "  \u2022 Total step time: 60.00s\n"
      "  \u2022 exposed_generation: 20.00s (33.3%)\n"
      "  \u2022 Policy KL: oops\n",
      LogFormat::kNemoRl);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].line, 4);
  EXPECT_EQ(steps[0].total_s, 66.55);
  EXPECT_EQ(steps[0].generate_s, 32.52);
  EXPECT_EQ(steps[0].train_s, 25.05);
  EXPECT_EQ(steps[0].logprob_s, 4.78);
  EXPECT_EQ(steps[0].reshard_s, 1.25);
  EXPECT_EQ(steps[0].output_len, 812.5);
  EXPECT_EQ(steps[1].generate_s, 20);
  EXPECT_FALSE(steps[1].output_len || steps[1].train_s);
}

TEST(LogImport, NemoDumpByStep) {
  const std::string dump =
      R"({"timing/train/generation": {"1": 12, "2": 11, "10": 9},
          "timing/train/policy_training": {"1": 5, "2": 4},
          "train/mean_gen_tokens_per_sample": {"2": 700},
          "train/loss": {"1": null}})";
  const auto steps = read(dump, LogFormat::kNemoRl);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1].generate_s, 11);
  EXPECT_EQ(steps[1].train_s, 4);
  EXPECT_EQ(steps[1].output_len, 700);
  EXPECT_EQ(steps[2].generate_s, 9);
  EXPECT_EQ(parse_step_log(R"({"timing/train/generation": {"3": -2}})", LogFormat::kNemoRl, "log")
                .status()
                .message(),
            "log: step 3: 'timing/train/generation|timing/train/exposed_generation' is -2; a time "
            "or size must be finite and not negative");
}

TEST(LogImport, BraidMetrics) {
  const auto steps = read(
      R"({"step":0,"time/generate":0.95,"time/old_logprob":0.125,"time/ref_logprob":0.0625,)"
      R"("time/step":2.25,"time/update_actor":0.5,"time/update_critic":0.25,"time/values":0.25,)"
      R"("length/prompt_mean":11.5,"length/response_mean":5.25,"reward/mean":null})"
      "\n\n",
      LogFormat::kBraid);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].generate_s, 0.95);
  EXPECT_EQ(steps[0].logprob_s, 0.1875);
  EXPECT_EQ(steps[0].critic_s, 0.5);
  EXPECT_EQ(steps[0].output_len, 5.25);
}

TEST(LogImport, ErrorsNameTheLine) {
  const auto failure = [](const std::string& text) {
    const auto steps = parse_step_log(text, LogFormat::kBraid, "log");
    EXPECT_EQ(steps.status().code(), Code::kInvalidInput);
    return steps.status().message();
  };
  EXPECT_THAT(failure("{\"time/step\": 1}\n{\"time/step\": \n"), HasSubstr("log:2"));
  EXPECT_EQ(failure("{\"time/step\": -1}\n"),
            "log:1: 'time/step' is -1; a time or size must be finite and not negative");
  EXPECT_THAT(failure("nothing here\n"), HasSubstr("no step with phase times"));
  EXPECT_EQ(parse_log_format("trl").status().message(),
            "unknown log format 'trl'; use verl, nemo-rl or braid");
}

// Steps of a machine that is slower than the committed calibration says by known factors, with
// lengths that change from step to step.
std::vector<LoggedStep> logged_steps(int count) {
  std::vector<LoggedStep> steps;
  for (int i = 0; i < count; ++i) {
    LoggedStep step;
    step.output_len = 600 + 150 * (i % 4);
    step.prompt_len = 256;
    step.max_output_len = 4096;
    Measurement row = rl_row("r");
    row.output_len = step.output_len;
    const auto phase = [&](const char* name) {
      row.phase = name;
      return predict_row(row, committed_calibration()).predicted;
    };
    step.generate_s = 1.5 * phase("generate");
    step.train_s = 0.75 * phase("train");
    step.logprob_s = 2 * phase("logprob");
    step.total_s = *step.generate_s + *step.train_s + *step.logprob_s;
    steps.push_back(step);
  }
  return steps;
}

TEST(Refit, RecoversTheFactorsOfAMachine) {
  const auto report = refit_from_log(logged_steps(8), rl_row("w"), committed_calibration());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->priced);
  EXPECT_NEAR(report->factors.at("generate"), 1.5, 1e-6);
  EXPECT_NEAR(report->factors.at("train"), 0.75, 1e-6);
  EXPECT_NEAR(report->factors.at("logprob"), 2, 1e-6);
  const RefitError& train = report->errors.at("train");
  EXPECT_EQ(train.steps, 5);
  EXPECT_NEAR(train.before_pct, 100 * (1 / 0.75 - 1), 1e-4);
  EXPECT_NEAR(train.after_pct, 0, 1e-4);
  // The refitted calibration prices the workload as it was logged.
  Measurement row = rl_row("w");
  row.phase = "generate";
  EXPECT_NEAR(predict_row(row, report->calibration).predicted /
                  predict_row(row, committed_calibration()).predicted,
              1.5, 0.01);
}

TEST(Refit, TheUsedStepsAreTheFirstThree) {
  std::vector<LoggedStep> steps = logged_steps(6);
  for (size_t i = kRefitSteps; i < steps.size(); ++i) *steps[i].generate_s *= 10;
  const auto report = refit_from_log(steps, rl_row("w"), committed_calibration());
  ASSERT_TRUE(report.ok());
  EXPECT_NEAR(report->factors.at("generate"), 1.5, 1e-6);
  EXPECT_NEAR(report->errors.at("generate").after_pct, 90, 1e-4);
}

TEST(Refit, WithoutAWorkloadTimesGrowWithLengths) {
  std::vector<LoggedStep> steps;
  for (int i = 0; i < 6; ++i) {
    LoggedStep step;
    step.output_len = 100.0 * (i + 1);
    step.prompt_len = 0;
    step.train_s = 0.5 * (i + 1);
    steps.push_back(step);
  }
  const auto report = refit_from_log(steps, std::nullopt, committed_calibration());
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->priced);
  EXPECT_NEAR(report->errors.at("train").after_pct, 0, 1e-9);
  EXPECT_GT(report->errors.at("train").before_pct, 70);  // the first step's time for all
  EXPECT_EQ(report->calibration, committed_calibration());
}

TEST(Refit, NeedsAStepToCheckAndAWorkloadThatCanBePriced) {
  EXPECT_EQ(
      refit_from_log(logged_steps(3), rl_row("w"), committed_calibration()).status().message(),
      "the log has 3 steps; 3 to fit and at least one to check are needed");
  Measurement unknown = rl_row("w");
  unknown.model = "nobody-1b";
  EXPECT_THAT(refit_from_log(logged_steps(4), unknown, committed_calibration()).status().message(),
              HasSubstr("workload: "));
}

}  // namespace
}  // namespace braid::inline calibrate
