// Jobs that choose what a plan has beside layouts: when a generation is handed over, at the start
// and again, and the parts that a search finds. What they draw and learn has the bits of the same
// plan without. BRAID_TEST_FULL=1 runs every part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::ContainsRegex;

struct PartCase {
  std::string name, algorithm;
  int ranks;
  std::string lengths;            // of responses, as they are foreseen
  std::vector<std::string> more;  // configuration
  std::string chosen;             // what the plan says
  std::string metric = "";        // that says that the part was there; "": none does
  bool full = false;
};

std::vector<PartCase> part_cases() {
  const std::string few = "mean: 6, sigma: 0.8";
  return {
      {"hand-over",
       "grpo",
       2,
       "mean: 12, sigma: 0.5",
       {"rollout.prompts_per_step=8", "parallel={old_logprob: {dp: 2}, ref_logprob: {dp: 2}}"},
       "migrate_below_samples: [1-9]",
       "rollout/migrated"},
      {"ahead", "grpo", 2, few, {"plan.staleness=1"}, "staleness: 1", "staleness/max"},
      {"scoring",
       "grpo",
       2,
       few,
       {"placement=disaggregated"},
       "train_beside_scoring: [1-9]",
       "",
       true},
      {"fused",
       "ppo",
       4,
       few,
       {"parallel={update_actor: {pp: 4}, update_critic: {pp: 4}}", "train.minibatches=1"},
       "train_schedules: true",
       "",
       true},
  };
}

class JobAutoParts : public JobRun {
 protected:
  // What is known of the lengths beforehand; a model that has learnt nothing ends where it happens
  // to, a third of its responses not before the longest.
  static std::vector<std::string> foreseen(std::vector<std::string> options,
                                           const std::string& lengths, int ranks) {
    options.insert(
        options.end(),
        {cat("workload={prompt_length: 20, response_length: {", lengths, ", longest: 48}}"),
         cat("cluster={gpu: this-machine, nodes: 1, gpus_per_node: ", ranks, "}"),
         "rollout.max_response_length=48", "rollout.record=true", "data.train=task:sort_digits:8"});
    return options;
  }

  static double sum_of(const std::string& name, const std::string& metric) {
    double out = 0;
    for (const Json& row : metrics(name)) out += row.value(metric, 0.0);
    return out;
  }

  static void expect_same_bits(const std::string& whole, const std::string& parts) {
    EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
              *read_file(path(parts + "/rollouts.jsonl")));
    EXPECT_EQ(hashes(path(whole + "/export")), hashes(path(parts + "/export")));
  }

  // The plan of a run without its parts, as a file.
  static std::string without_parts(const std::string& name) {
    const std::string file = path(name + ".without.yaml");
    const std::string text = std::regex_replace(*read_file(path(name + "/plan.yaml")),
                                                std::regex("\nfusion: [^\n]*"), "");
    EXPECT_TRUE(write_file_atomic(file, text).ok());
    return file;
  }
};

// The search takes parts that pay by its prices; each runs, and changes no bit. (Rollouts that are
// made ahead are other ones.)
TEST_F(JobAutoParts, SearchedPartsAreExecuted) {
  for (const PartCase& of : part_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string name = "parts-" + of.name, whole = name + "-without";
    std::vector<std::string> options = foreseen(of.more, of.lengths, of.ranks);
    options.emplace_back("train.total_steps=3");
    std::vector<std::string> searched = options;
    searched.emplace_back("plan.auto=true");
    finish(job_command(name, of.algorithm, searched));
    if (HasFatalFailure()) return;
    const std::string plan = *read_file(path(name + "/plan.yaml"));
    EXPECT_THAT(plan, ContainsRegex(of.chosen));
    if (!of.metric.empty()) EXPECT_GT(sum_of(name, of.metric), 0) << of.metric;
    if (plan.find("staleness: ") != std::string::npos) continue;
    std::erase_if(options, [](const std::string& option) {
      return option.starts_with("parallel=") || option.starts_with("placement=");
    });
    options.push_back("plan.file=" + without_parts(name));
    same_kernels(name, whole);
    finish(job_command(whole, of.algorithm, options));
    if (HasFatalFailure()) return;
    expect_same_bits(whole, name);
  }
}

// By the lengths that are stated half of the samples are left when handing over pays; by those that
// come, fewer.
TEST_F(JobAutoParts, TheNumberIsChosenAgainByTheLengthsThatCame) {
  if (!full_tier()) GTEST_SKIP() << "full tier";  // a busy machine may choose late
  LayoutCase of = {"chosen", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, micro_tokens: 60")};
  const auto options = [&](const std::string& plan) {
    return foreseen({"plan.file=" + plan, "train.total_steps=16", "rollout.prompts_per_step=8"},
                    "mean: 12, sigma: 0.5", 2);
  };
  finish(job_command("chosen-never", "grpo", options(write_plan(of))));
  if (HasFatalFailure()) return;
  same_kernels("chosen-never", "chosen-auto");
  of.name = "chosen-auto";
  of.calls += "fusion: {migrate_below_samples: auto}\n";
  const CommandOutcome run = shell("", job_command("chosen-auto", "grpo", options(write_plan(of))));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  expect_same_bits("chosen-never", "chosen-auto");
  EXPECT_GT(sum_of("chosen-auto", "rollout/migrated"), 0);

  const auto said = [&](const std::string& pattern) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(
        run.output, found, std::regex("plan: fusion.migrate_below_samples: auto is " + pattern)))
        << run.output;
    std::vector<int64_t> out;
    for (size_t i = 1; i < found.size(); ++i) out.push_back(std::stoll(found[i].str()));
    return out;
  };
  const std::vector<int64_t> first = said("([0-9]+) here");
  const std::vector<int64_t> then =
      said("([0-9]+) from step ([0-9]+) on, by the lengths of the last steps");
  if (HasFailure()) return;
  EXPECT_NE(then[0], first[0]);
  EXPECT_GT(then[1], 8);
  const std::vector<Json> rows = metrics("chosen-auto");
  double most_before = 0;
  for (size_t step = 0; step < rows.size(); ++step) {
    const bool before = static_cast<int64_t>(step) < then[1] - 1;
    const double left = rows[step]["rollout/handed_over"].get<double>();
    EXPECT_LE(left, static_cast<double>(before ? first[0] : then[0])) << "step " << step;
    if (before) most_before = std::max(most_before, left);
  }
  EXPECT_GT(most_before, static_cast<double>(then[0])) << "the second number would do for all";
}

}  // namespace
}  // namespace braid
