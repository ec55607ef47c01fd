// Generation by replicas of several ranks, as processes of the braid program: the tokens of one
// process. BRAID_TEST_FULL=1 runs every layout and family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/options.h"
#include "runs/job_testing.h"
#include "samples/rollout_file.h"

namespace braid {
namespace {

// Of logits that are sums in another order.
constexpr double kRounding = 1e-4;
constexpr double kGreedyTemperature = kLeastTemperature;

// Layouts of the generate call. Small batches make many rounds, small caches preempt sequences.
std::vector<LayoutCase> layouts_of_generation() {
  return {
      {"g-pp2", "grpo", "1x2", "pp: 2"},
      {"g-dp2pp2", "grpo", "1x4", "dp: 2, pp: 2, max_concurrent: 3, kv_budget_tokens: 128"},
      {"g-tp2pp2", "grpo", "1x4", "tp: 2, pp: 2"},
      {"g-tp2", "grpo", "1x2", "tp: 2, max_concurrent: 2", true},
      {"g-pp4", "grpo", "1x4", "pp: 4, max_concurrent: 2", true},
      {"g-uneven", "grpo", "1x3", "pp: 3, stage_layers: \"2,1,1\"", true},
      {"g-grid", "grpo", "1x8", "dp: 2, tp: 2, pp: 2, max_concurrent: 2", true},
  };
}

class JobGeneration : public JobRun {
 protected:
  static std::vector<std::string> generating(const std::string& family, bool greedy) {
    std::vector<std::string> options = {"rollout.record=true", "rollout.max_response_length=40",
                                        "rollout.samples_per_prompt=4", "train.total_steps=2"};
    if (greedy)  // almost: training scores with the same distribution
      options.insert(options.end(),
                     {cat("rollout.temperature=", kGreedyTemperature), "optim.actor.lr=1e-6"});
    return with_model(family, options);
  }

  static std::map<std::pair<int64_t, int64_t>, RolloutRow> rollouts(const std::string& name) {
    std::map<std::pair<int64_t, int64_t>, RolloutRow> out;
    for (const Json& line : read_rows(path(name + "/rollouts.jsonl"))) {
      const auto row = parse_rollout(line);
      EXPECT_TRUE(row.ok()) << row.status().message();
      if (row.ok()) out[{row->step, row->sample.value}] = *row;
    }
    return out;
  }

  // Weights move from the training call's ranks before the second step.
  static void expect_same_tokens(LayoutCase layout, const std::string& family, bool greedy) {
    SCOPED_TRACE(cat(layout.name, " ", family, greedy ? " greedy" : " sampled"));
    layout.calls = cat("  generate: {mesh: all, ", layout.calls,
                       "}\n  old_logprob: {mesh: 0}\n  ref_logprob: {mesh: 0}\n"
                       "  update_actor: {mesh: \"0,1\", pp: 2}\n");
    const std::string mode = cat(family, greedy ? "-greedy" : "-sampled");
    const std::string one = "tokens-" + mode, job = cat(layout.name, mode);
    if (!path_exists(path(one + "/export")))
      finish(job_command(one, "grpo", generating(family, greedy)));
    same_kernels(one, job);
    std::vector<std::string> options = generating(family, greedy);
    options.push_back("plan.file=" + write_plan(layout));
    finish(job_command(job, "grpo", options));
    if (HasFatalFailure()) return;
    const double rounding = greedy ? kRounding / kGreedyTemperature : kRounding;
    const auto left = rollouts(one), right = rollouts(job);
    ASSERT_EQ(left.size(), 2u * 4 * 4);
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [place, row] : left) {
      const RolloutRow& other = right.at(place);
      EXPECT_EQ(row.response_ids, other.response_ids);
      EXPECT_EQ(row.truncated, other.truncated);
      EXPECT_THAT(other.logprobs, testing::Pointwise(testing::FloatNear(rounding), row.logprobs));
    }
  }
};

TEST_F(JobGeneration, ReplicasOfSeveralRanksDrawTheTokensOfOneProcess) {
  for (const LayoutCase& layout : layouts_of_generation())
    for (const bool greedy : {false, true})
      if (full_tier() || (!layout.full && greedy == (layout.name == "g-tp2pp2")))
        expect_same_tokens(layout, "", greedy);
}

// Tied embeddings, biases, learned positions, scaled embeddings, windows, soft caps, adapters.
TEST_F(JobGeneration, EveryFamilyIsGeneratedByStages) {
  for (const char* family :
       {"qwen2", "gpt2", "gemma", "gemma2", "gemma3", "phi3", "mistral", "qwen3", "lora"})
    for (const LayoutCase& layout : layouts_of_generation())
      if (full_tier() ? !layout.full : family == std::string("qwen2") && layout.name == "g-pp2")
        expect_same_tokens(layout, family, false);
}

// Ranks that draw from parts of a vocabulary.
TEST_F(JobGeneration, PartsOfALargeVocabularyAreDrawnFrom) {
  for (const LayoutCase& layout : layouts_of_generation())
    if (layout.name == "g-tp2" || (full_tier() && layout.name == "g-tp2pp2"))
      for (const bool greedy : {false, true})
        if (full_tier() || !greedy) expect_same_tokens(layout, "qwen2-wide", greedy);
}

}  // namespace
}  // namespace braid
