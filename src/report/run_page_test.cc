#include "report/run_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "host/file.h"
#include "report/json_rows.h"
#include "report/testing.h"
#include "test_paths.h"

namespace braid::inline report {
namespace {

Json row_of(int64_t step, const std::string& metric, double value) {
  return {{"step", step}, {metric, value}};
}

RunRecord run_with(const std::string& metric, const std::vector<double>& values) {
  RunRecord run;
  run.name = "run";
  for (size_t i = 0; i < values.size(); ++i)
    run.metrics.push_back(row_of(static_cast<int64_t>(i), metric, values[i]));
  return run;
}

std::vector<std::string> metrics_of(const std::vector<Finding>& all) {
  std::vector<std::string> out;
  for (const Finding& finding : all) out.push_back(finding.metric);
  return out;
}

using Names = std::vector<std::string>;

TEST(RunRecord, ALineThatIsBeingWrittenIsLeftOut) {
  const auto rows = parse_rows("{\"step\":0}\n\n{\"step\":1}\n{\"ste", "f");
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1]["step"], 1);
}

TEST(RunRecord, ABrokenLineIsNamedByItsNumber) {
  const auto rows = parse_rows("{\"step\":0}\n[1]\n", "m.jsonl");
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.status().message().find("m.jsonl:2"), std::string::npos);
  EXPECT_NE(parse_rows("{\n", "m.jsonl").status().message().find("m.jsonl:1"), std::string::npos);
}

TEST(RunRecord, ReadsWhatARunLeaves) {
  const std::string folder = fresh_folder("record");
  const auto write = [&](const char* name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(join_path(folder, name), text).ok());
  };
  write("metrics.jsonl", "{\"step\":0,\"a\":1}\n{\"step\":1,\"a\":null}\n");
  write("samples.jsonl", "{\"step\":1,\"response\":\"x\"}\n");
  write("config.yaml", "data:\n  total_steps: 9\ntrain:\n  seed: 3\n  total_steps: 2\n");
  write("nonfinite_step_1.jsonl", "{}\n");
  const auto run = read_run(folder + "/");
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->metrics.size(), 2u);
  EXPECT_EQ(run->samples.size(), 1u);
  EXPECT_EQ(run->total_steps, 2);
  EXPECT_TRUE(complete(*run));
  EXPECT_TRUE(run->predicted.is_null());
  EXPECT_EQ(metrics_of(findings(*run)), (Names{"a", "skipped"}));
}

TEST(RunRecord, ReadsWhatRanksDidAndWhatWasWarnedOf) {
  const std::string folder = fresh_folder("ranks");
  const auto write = [&](const char* name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(join_path(folder, name), text).ok());
  };
  write("metrics.jsonl", "{\"step\":0}\n");
  write("ranks.jsonl", "{\"step\":0,\"ranks\":[]}\n{\"step\":4,\"ra");
  write("warnings.jsonl", "{\"step\":0,\"text\":\"w\"}\n");
  write("about.json", "{\"ranks\":2}");
  const auto run = read_run(folder);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const Json data = run_page_data({*run})[0];
  EXPECT_EQ(data["ranks"].size(), 1u);
  EXPECT_EQ(data["warnings"][0]["text"], "w");
  EXPECT_EQ(warning_texts(*run), Names{"w"});
  EXPECT_EQ(data["about"]["ranks"], 2);
}

TEST(JsonRows, RowsThatAResumedRunWritesAgainAreDropped) {
  const std::string path = join_path(fresh_folder("rows"), "rows.jsonl");
  EXPECT_EQ(*drop_rows_from(path, 0), -1);
  ASSERT_TRUE(write_file_atomic(path, "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n").ok());
  EXPECT_EQ(*drop_rows_from(path, 2), 1);
  EXPECT_EQ(*read_file(path), "{\"step\":0}\n{\"step\":1}\n");
  ASSERT_TRUE(write_file_atomic(path, "{\"step\":-1}\n{\"step\":0}\n").ok());
  EXPECT_EQ(*drop_rows_from(path, 0), -1);
  EXPECT_EQ(*read_file(path), "") << "an evaluation before an earlier run's first step";
}

TEST(RunRecord, RunsOfOneNameAreToldApartByTheirPaths) {
  EXPECT_EQ(names_apart({"/x/toy", "/x/ppo/"}), (Names{"toy", "ppo"}));
  EXPECT_EQ(names_apart({"/tmp/a/toy", "/tmp/b/toy", "/tmp/b/ppo"}),
            (Names{"a/toy", "b/toy", "ppo"}));
  EXPECT_EQ(names_apart({"/a/x/toy", "/b/x/toy"}), (Names{"a/x/toy", "b/x/toy"}));
  EXPECT_EQ(names_apart({"/toy", "/a/toy"}), (Names{"/toy", "a/toy"}));
  EXPECT_EQ(names_apart({"/a/../b/./toy", "/c/toy"}), (Names{"b/toy", "c/toy"}));
  EXPECT_NE(names_apart({"."}), Names{"."}) << "the folder has a name";
}

TEST(RunRecord, ReadsSeveralWithNamesOfTheirOwn) {
  const std::string folder = fresh_folder("several");
  Names folders;
  for (const char* parent : {"a", "b"}) {
    folders.push_back(cat(folder, "/", parent, "/toy"));
    std::filesystem::create_directories(folders.back());
    ASSERT_TRUE(write_file_atomic(folders.back() + "/metrics.jsonl", "{\"step\":0}\n").ok());
  }
  const auto runs = read_runs(folders);
  ASSERT_TRUE(runs.ok()) << runs.status().message();
  EXPECT_EQ((*runs)[0].name, "a/toy");
  const Json data = run_page_data(*runs);
  EXPECT_EQ(data[1]["name"], "b/toy");
  EXPECT_THAT(read_runs({folders[0], folders[0] + "/"}).status().message(),
              testing::HasSubstr("is given twice"));
}

TEST(RunRecord, SaysWhereNoRunIs) {
  EXPECT_EQ(read_run("/nowhere/at/all").status().code(), Code::kNotFound);
  const auto empty = read_run(fresh_folder("empty"));
  EXPECT_EQ(empty.status().code(), Code::kNotFound);
  EXPECT_NE(empty.status().message().find("metrics.jsonl"), std::string::npos);
}

TEST(Findings, NameWhatIsBeyondTheLimits) {
  const auto found = [](const char* metric, const std::vector<double>& values) {
    return metrics_of(findings(run_with(metric, values)));
  };
  EXPECT_EQ(found("mismatch/logprob_abs_max", {1e-6, 0.2}), Names{"mismatch/logprob_abs_max"});
  EXPECT_EQ(found("mismatch/logprob_abs_max", {1e-6, 1e-5}), Names{});
  // In 16 bits on a GPU log-probs of a row depend on its batch.
  RunRecord halves = run_with("mismatch/logprob_abs_max", {0.01, 0.04});
  halves.config = "model:\n  path: m\n  dtype: bf16\ndevice: cpu\n";
  EXPECT_EQ(metrics_of(findings(halves)), Names{"mismatch/logprob_abs_max"});
  halves.config = "model:\n  path: m\n  dtype: bf16\ndevice: cuda:1\n";
  EXPECT_EQ(metrics_of(findings(halves)), Names{});
  halves.config = "model:\n  path: m\n  dtype: f32\ndevice: cuda\n";
  EXPECT_EQ(metrics_of(findings(halves)), Names{"mismatch/logprob_abs_max"});
  EXPECT_EQ(found("adv/zero_std_frac", {0, 0, 0, 0.9}), Names{"adv/zero_std_frac"});
  EXPECT_EQ(found("adv/zero_std_frac", {0.9, 0.9, 0.9, 0.1}), Names{});
  EXPECT_EQ(found("length/truncated_frac", {0, 0, 0, 0.7}), Names{"length/truncated_frac"});
  EXPECT_EQ(found("policy/entropy", {1, 1, 1, 0.001}), Names{"policy/entropy"});
  EXPECT_EQ(found("reward/raw_mean", {0.5, 0.4, 0.3, 0.2}), Names{"reward/raw_mean"});
  EXPECT_EQ(found("reward/raw_mean", {0.2, 0.3, 0.4, 0.5}), Names{});
  EXPECT_EQ(found("reward/raw_mean", {0.5, 0.2}), Names{}) << "two steps are no trend";
  EXPECT_EQ(found("critic/explained_var", {0, 0, 0, -0.1}), Names{"critic/explained_var"});
}

// What went wrong first is named, and not what followed from it.
TEST(Findings, APolicyThatJumpedHidesWhatFollows) {
  RunRecord run = run_with("kl/ref_k1", {0, 0.3, 0.6, 2.9, 3.0});
  for (Json& row : run.metrics) row["length/truncated_frac"] = row["adv/zero_std_frac"] = 1;
  const std::vector<Finding> found = findings(run);
  EXPECT_EQ(metrics_of(found), Names{"kl/ref_k1"});
  EXPECT_THAT(found[0].text, testing::HasSubstr("jumped by 2.3 nats in step 3"));
  for (Json& row : run.metrics) row["kl/ref_k1"] = 0.1;
  EXPECT_EQ(metrics_of(findings(run)), (Names{"adv/zero_std_frac", "length/truncated_frac"}));
}

TEST(Findings, APolicyThatStaysWhereItWasIsSaidOnceItHadTime) {
  RunRecord run = run_with("kl/ref_k1", std::vector<double>(20, 0.001));
  for (Json& row : run.metrics) row["reward/raw_mean"] = 0.5;
  EXPECT_EQ(metrics_of(findings(run)), Names{"kl/ref_k1"});
  run.metrics.back()["reward/raw_mean"] = 0.9;
  EXPECT_EQ(findings(run), std::vector<Finding>()) << "the reward rose";
  run.metrics.back()["reward/raw_mean"] = 0.5;
  run.metrics.pop_back();
  EXPECT_EQ(findings(run), std::vector<Finding>()) << "too early to say";
}

// A report is one file: it lists the limits itself, as the page does.
TEST(Findings, TheLimitsOfThePageAreThoseOfTheReport) {
  std::string page = *read_file(BRAID_SOURCE_DIR "/docs/reading_a_run.md");
  std::erase(page, '`');
  const std::string report = run_page({run_with("a", {1})}, {});
  ASSERT_FALSE(finding_limits().empty());
  for (const auto& [what, limit] : finding_limits()) {
    EXPECT_THAT(page, testing::HasSubstr(cat("| ", what, " | ", limit, " |\n")));
    EXPECT_NE(report.find(Json::array({what, limit}).dump()), std::string::npos) << what;
  }
  EXPECT_EQ(report.find("docs/"), std::string::npos) << "a path that its reader does not have";
}

TEST(Findings, AStepThatTakesMuchLongerThanPredicted) {
  RunRecord run = run_with("a", {1});
  run.predicted = {{"step", {{"predicted_s", 1.0}, {"measured_s", 4.0}}}};
  EXPECT_EQ(metrics_of(findings(run)), Names{"time/step"});
  EXPECT_THAT(findings(run)[0].text, testing::HasSubstr("'braid profile' measures them"));
  run.config = "cluster:\n  profile: here.json\n";
  EXPECT_THAT(findings(run)[0].text, testing::HasSubstr("measure it again"));
  run.predicted["step"]["measured_s"] = 1.2;
  EXPECT_EQ(findings(run), std::vector<Finding>());
}

TEST(RunPage, DataHasAColumnForEachMetricAndFewSamples) {
  RunRecord run = run_with("reward/raw_mean", {0.5, 0.75});
  for (int64_t i = 0; i < 1000; ++i)
    run.samples.push_back({{"step", i}, {"response", "x"}, {"response_ids", {1, 2, 3}}});
  const Json data = run_page_data({run});
  ASSERT_EQ(data.size(), 1u);
  EXPECT_EQ(data[0]["metrics"]["reward/raw_mean"], Json::parse("[[0,0.5],[1,0.75]]"));
  ASSERT_EQ(data[0]["samples"].size(), 400u);
  EXPECT_EQ(data[0]["samples"][0]["step"], 0);
  EXPECT_EQ(data[0]["samples"][399]["step"], 999);
  EXPECT_EQ(data[0]["samples"][7]["tokens"], 3);
  EXPECT_EQ(data[0]["samples_of"], 1000);
}

TEST(RunPage, WhatARunWroteIsNoPlaceForData) {
  RunRecord run = run_with("a", {1});
  run.samples.push_back({{"step", 0}, {"response", "/*limits*/ /*data*/ <!--refresh-->"}});
  const std::string page = run_page({run}, {});
  EXPECT_NE(page.find("/*limits*/ /*data*/ \\u003c!--refresh-->"), std::string::npos);
}

TEST(RunPage, TextOfSamplesCannotLeaveTheScript) {
  RunRecord run = run_with("a", {1});
  run.samples.push_back({{"step", 0}, {"response", "</script><script>alert(1)</script>"}});
  const std::string page = run_page({run}, {});
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>"), std::string::npos);
  EXPECT_EQ(page.find("http-equiv"), std::string::npos);
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org/2000/svg"))
      << "the page needs nothing from elsewhere";
  EXPECT_NE(run_page({run}, {.refresh_s = 5}).find("content=\"5\""), std::string::npos);
}

}  // namespace
}  // namespace braid::inline report
