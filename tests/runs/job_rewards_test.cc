// Evaluation, and rewards that a model gives, in jobs of several ranks: the numbers of one process.
// BRAID_TEST_FULL=1 runs every layout and family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/job_testing.h"
#include "session/tokenizer_testing.h"

namespace braid {
namespace {

class JobRewards : public JobRun {
 protected:
  static std::vector<std::string> evaluated(std::vector<std::string> options) {
    options.insert(options.end(),
                   {"eval.every_steps=1", "eval.at_start=true", "eval.prompts=7",
                    "eval.samples_per_prompt=2", "eval.temperature=1", "data.eval=task:reverse:8"});
    return options;
  }

  // The folder of a critic whose training left it as it was.
  static std::string unchanged_critic() {
    const std::string name = "start-critic";
    if (!path_exists(path(name + "/export")))
      finish(job_command(name, "ppo",
                         {"train.total_steps=1", "optim.critic.lr=1e-30", "train.seed=3"}));
    return name + "/export/critic";
  }

  // The same run in one process, made once for all layouts, and under a plan.
  static void expect_same_run_under(const LayoutCase& layout, const std::string& kind,
                                    const std::vector<std::string>& options) {
    SCOPED_TRACE(cat(layout.name, " ", kind));
    const std::string one = cat("one-", kind), job = cat(kind, "-", layout.name);
    if (!path_exists(path(one + "/export"))) finish(job_command(one, layout.algorithm, options));
    same_kernels(one, job);
    std::vector<std::string> planned = options;
    planned.push_back("plan.file=" + write_plan(layout));
    finish(job_command(job, layout.algorithm, planned));
    if (!HasFatalFailure()) expect_same_metrics(one, job);
  }
};

// The actor in two stages, in slices, on another rank than the first; it generates in its own
// layout or in another one.
TEST_F(JobRewards, AnActorThatIsCutIsEvaluatedAsInOneProcess) {
  const std::vector<LayoutCase> layouts = {
      {"e-stages", "grpo", "1x2", everywhere("grpo", "tp: 2", "pp: 2, micro_batches: 2")},
      {"e-slices", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, zero: 3")},
      {"e-replicas", "grpo", "1x4", everywhere("grpo", "dp: 2, pp: 2", "dp: 2, tp: 2"), true},
      {"e-runs", "grpo", "1x4",
       everywhere("grpo", "dp: 4", "dp: 2, pp: 2, micro_batches: 2", "interleave: 2, zero: 3"),
       true},
      {"e-apart", "grpo", "1x3",
       "  generate: {mesh: \"1,2\", tp: 2}\n  old_logprob: {mesh: 0}\n  ref_logprob: {mesh: 0}\n"
       "  update_actor: {mesh: \"1,2\", pp: 2}\n",
       true},
      {"e-host", "grpo", "1x2",
       everywhere("grpo", "dp: 2", "tp: 2") + "roles:\n  actor: {weights: host, optimizer: host}\n",
       true},
  };
  const std::string replay = "rollout.replay=" + path(recorded("grpo", "") + "/rollouts.jsonl");
  for (const LayoutCase& layout : layouts)
    if (!layout.full || full_tier())
      expect_same_run_under(layout, "evaluated", evaluated({replay, "train.total_steps=2"}));
  const std::vector<std::string> lora = with_model("lora", evaluated({"train.total_steps=2"}));
  if (full_tier()) expect_same_run_under(layouts[2], "evaluated-lora", lora);
}

// Without a call that generates all ranks evaluate, with the weights that they update: seven
// prompts are no even share, so that of ranks with slices one has rounds without samples.
TEST_F(JobRewards, APolicyThatDoesNotGenerateIsEvaluatedAsInOneProcess) {
  const auto layout = [](const std::string& name, const std::string& devices,
                         const std::string& update, bool full = false,
                         const std::string& algorithm = "sft") {
    const std::string reference =
        algorithm == "dpo" ? "  ref_logprob: {mesh: all, dp: 2}\n" : std::string();
    return LayoutCase{name, algorithm, devices, cat(reference, "  update_actor: {", update, "}\n"),
                      full};
  };
  const std::vector<LayoutCase> layouts = {
      layout("e-sft", "1x2", "mesh: all, pp: 2"),
      layout("e-sft-zero", "1x2", "mesh: all, dp: 2, zero: 3"),
      layout("e-sft-runs", "1x4",
             "mesh: all, dp: 2, pp: 2, micro_batches: 2, interleave: 2, zero: 3"),
      layout("e-sft-tensor", "1x2", "mesh: all, tp: 2, sequence_parallel: true", true),
      layout("e-sft-pairs", "1x4", "mesh: all, dp: 4, zero: 3, zero_ranks: 2", true),
      layout("e-sft-both", "1x4", "mesh: all, dp: 2, tp: 2, zero: 3", true),
      layout("e-sft-apart", "1x3", "mesh: \"1,2\", dp: 2, zero: 1", true),
      layout("e-dpo", "1x2", "mesh: all, dp: 2", true, "dpo"),
  };
  for (const LayoutCase& each : layouts)
    if (!each.full || full_tier())
      expect_same_run_under(
          each, cat("evaluated-", each.algorithm),
          evaluated({"train.total_steps=2", "rollout.prompts_per_step=8",
                     each.algorithm == "sft" ? "data.train=task:sort_digits" : "train.seed=1"}));
  const std::vector<std::string> lora =
      with_model("lora", evaluated({"train.total_steps=2", "rollout.prompts_per_step=8",
                                    "data.train=task:sort_digits"}));
  if (full_tier()) expect_same_run_under(layouts[1], "evaluated-sft-lora", lora);
}

// Ranks share a reward model in every way that training and inference know; a rule beside it is
// asked once for each sample. Evaluations ask both too.
TEST_F(JobRewards, ARewardModelScoresInEveryLayoutAsInOneProcess) {
  const auto layout = [](const std::string& name, const std::string& devices,
                         const std::string& reward, bool full = false,
                         const std::string& roles = "") {
    return LayoutCase{
        name, "grpo", devices,
        cat(everywhere("grpo", "dp: 2", "dp: 2"), "  reward: {", reward, "}\n", roles), full};
  };
  const std::vector<LayoutCase> layouts = {
      layout("r-tp2", "1x2", "mesh: all, tp: 2"),
      layout("r-pp2", "1x2", "mesh: all, pp: 2, micro_batches: 2"),
      layout("r-zero3", "1x2", "mesh: all, dp: 2, zero: 3"),
      layout("r-one", "1x2", "mesh: 1", true),
      layout("r-host", "1x2", "mesh: all, tp: 2", true, "roles:\n  reward: {weights: host}\n"),
  };
  for (const char* family : {"", "qwen2", "gpt2"}) {
    if (family[0] != 0 && !full_tier()) continue;
    const std::string scorer = path(recorded("ppo", family) + "/export/critic");
    const std::vector<std::string> options =
        with_model(family, evaluated({"train.total_steps=2", "optim.actor.lr=0.01",
                                      cat("reward=[{type: model, name: learnt, path: ", scorer,
                                          "}, {type: rule, rule: digit_share, weight: 0.5}]")}));
    for (const LayoutCase& each : layouts)
      if (!each.full || full_tier()) expect_same_run_under(each, cat("scored-", family), options);
  }
}

// Its ranks read the texts of their samples, whose tokens are more or fewer than the policy's.
TEST_F(JobRewards, ARewardModelWithATokenizerOfItsOwnScoresAsInOneProcess) {
  const std::string scorer = path("own-scorer");
  std::filesystem::copy(path(recorded("ppo", "") + "/export/critic"), scorer,
                        std::filesystem::copy_options::recursive);
  give_own_tokenizer(scorer);
  // Whitened over the batch: the two rewards of a group may be so near to each other that their
  // rounding is a large share of their spread.
  const std::vector<std::string> options = evaluated(
      {"train.total_steps=2", "optim.actor.lr=0.01", "algorithm.normalize_advantages=batch",
       cat("reward=[{type: model, name: learnt, path: ", scorer, "}]")});
  for (const auto& [name, reward] : std::map<std::string, std::string>{
           {"own-dp2", "dp: 2"}, {"own-tp2", "tp: 2"}, {"own-pp2", "pp: 2, micro_batches: 2"}})
    expect_same_run_under(
        {name, "grpo", "1x2",
         cat(everywhere("grpo", "dp: 2", "dp: 2"), "  reward: {mesh: all, ", reward, "}\n")},
        "own", options);
}

// Two of them, each with a layout of its own and a weight, and a rule beside them.
TEST_F(JobRewards, RewardModelsScoreInLayoutsOfTheirOwnAsInOneProcess) {
  const std::string scorer = path(recorded("ppo", "") + "/export/critic");
  const std::string start = path(unchanged_critic());
  const std::vector<std::string> options =
      evaluated({"train.total_steps=2", "optim.actor.lr=0.01",
                 cat("reward=[{type: model, name: learnt, path: ", scorer,
                     "}, {type: rule, name: digits, rule: digit_share, weight: 0.5}, {type: model, "
                     "name: other, path: ",
                     start, ", weight: -0.25}]")});
  for (const auto& [name, calls] : std::map<std::string, std::string>{
           {"two-tp-pp", "  score_1: {mesh: all, tp: 2}\n  score_2: {mesh: all, pp: 2}\n"},
           {"two-apart", "  score_1: {mesh: 0}\n  score_2: {mesh: 1}\n"},
           {"two-zero3",
            "  score_1: {mesh: all, dp: 2, zero: 3}\n  score_2: {mesh: all, dp: 2}\n"}})
    if (full_tier() || name == "two-tp-pp")
      expect_same_run_under(
          {name, "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2") + calls, false}, "two-scored",
          options);
  int64_t steps = 0;
  for (const Json& row : metrics("one-two-scored")) {
    if (!row.contains("reward/raw_mean")) continue;  // an evaluation
    ++steps;
    const double raw = row["reward/learnt_mean"].get<double>() +
                       0.5 * row["reward/digits_mean"].get<double>() -
                       0.25 * row["reward/other_mean"].get<double>();
    EXPECT_NEAR(row["reward/raw_mean"].get<double>(), raw, 1e-5);
  }
  EXPECT_EQ(steps, 2);
}

// Groups of three over ranks that generate four samples each: what is dropped, the metrics of each
// reward and what samples.jsonl shows are those of one process.
TEST_F(JobRewards, RanksAskAboutTheGroupsThatTheyGenerated) {
  ASSERT_TRUE(make_folder(path("")).ok());
  const std::string python = reward_file(path("drops.py"), "len(solution_str) % 4 == 0");
  const std::vector<std::string> options = {"train.total_steps=2",
                                            "rollout.prompts_per_step=5",
                                            "rollout.samples_per_prompt=3",
                                            "train.minibatches=1",
                                            "log.samples_every=1",
                                            "reward_total.clip=1.5",
                                            cat("reward=[", python, ", on_error: drop}, ",
                                                "{type: rule, rule: digit_share, weight: 0.5}]")};
  std::vector<LayoutCase> layouts = {
      {"asked-dp4", "grpo", "1x4", everywhere("grpo", "dp: 4", "dp: 4")},
      {"asked-tp2", "grpo", "1x4", everywhere("grpo", "dp: 2, tp: 2", "dp: 4"), true}};
  for (const LayoutCase& layout : layouts) {
    if (layout.full && !full_tier()) continue;
    expect_same_run_under(layout, "asked", options);
    if (HasFailure()) return;
    const auto one = read_rows(path("one-asked/samples.jsonl"));
    EXPECT_EQ(one.size(), 6U);
    EXPECT_EQ(one, read_rows(path(cat("asked-", layout.name, "/samples.jsonl"))));
  }
  double dropped = 0;
  for (const Json& row : metrics("one-asked")) dropped += row["reward/error"].get<double>();
  EXPECT_GT(dropped, 0);
}

// A function that compares samples is asked about a whole step by one rank, or about the groups
// that each has: either way it gives what it gives one process.
TEST_F(JobRewards, AFunctionComparesTheSamplesOfAStepOrOfAGroup) {
  ASSERT_TRUE(make_folder(path("")).ok());
  const std::string file = path("compares.py");
  ASSERT_TRUE(write_file_atomic(file,
                                "def compute_scores(data_sources, solution_strs, ground_truths, "
                                "extra_infos):\n"
                                "    longest = max(len(text) for text in solution_strs)\n"
                                "    return [(len(text) + 1) / (longest + 1) / len(solution_strs) "
                                "for text in solution_strs]\n")
                  .ok());
  std::map<std::string, double> mean;
  for (const std::string batch : {"step", "group"}) {
    const std::string name = cat("compared-", batch);
    expect_same_run_under(
        {name, "grpo", "1x4", everywhere("grpo", "dp: 4", "dp: 4")}, name,
        {"train.total_steps=1", "rollout.prompts_per_step=5", "rollout.samples_per_prompt=4",
         "train.minibatches=1",
         cat("reward=[{type: python, path: ", file,
             ", function: compute_scores, signature: verl_batch, batch: ", batch, "}]")});
    if (HasFailure()) return;
    mean[batch] = metrics(cat("one-", name)).front()["reward/raw_mean"].get<double>();
  }
  EXPECT_GT(mean["group"], 2 * mean["step"]);  // of five groups
}

// What fails on one rank alone all know of: its samples are dropped, or the job ends.
TEST_F(JobRewards, ARewardFailsOnOneRank) {
  ASSERT_TRUE(make_folder(path("")).ok());
  const std::string python = reward_file(path("fails.py"), "os.environ['RANK'] == '1'");
  const auto job = [&](const std::string& name, const std::string& on_error) {
    return job_command(name, "grpo",
                       {"train.total_steps=1", "parallel={dp: 2}", "checkpoint.every_steps=1",
                        cat("reward=[", python, ", on_error: ", on_error, "}]")});
  };
  finish(job("fails-drop", "drop"));
  const Json row = metrics("fails-drop").back();
  EXPECT_EQ(row["reward/error"], 4);
  EXPECT_EQ(row["reward/left_out"], 4);
  EXPECT_EQ(row["policy/kept_samples"], 4);
  const CommandOutcome stopped = shell("", job("fails-stop", "stop"));
  EXPECT_EQ(stopped.exit_code, 1) << stopped.output;
  EXPECT_THAT(stopped.output, testing::HasSubstr("rank 1: reward 'length', sample"));
  EXPECT_THAT(stopped.output, testing::HasSubstr("no answer"));
}

// On other ranks than those that generate and train, in groups of their own.
TEST_F(JobRewards, ARewardModelHasRanksOfItsOwn) {
  if (!full_tier()) GTEST_SKIP() << "full tier";
  const std::string scorer = path(recorded("ppo", "") + "/export/critic");
  const std::vector<std::string> options =
      evaluated({"train.total_steps=2", "optim.actor.lr=0.01",
                 cat("reward=[{type: model, name: learnt, path: ", scorer, "}]")});
  for (const auto& [name, reward] : std::map<std::string, std::string>{
           {"ranks-tp", "{mesh: \"2-5\", tp: 2, dp: 2, sequence_parallel: true}"},
           {"ranks-grid", "{mesh: \"1-6\", dp: 3, pp: 2, zero: 3, micro_tokens: 40}"},
           {"ranks-all", "{mesh: \"0-7\", dp: 2, tp: 2, pp: 2, zero: 3}"}}) {
    const std::string rest = ": {mesh: \"0,1\", dp: 2}\n  ";
    expect_same_run_under({name, "grpo", "1x8",
                           cat("  generate", rest, "old_logprob", rest, "ref_logprob", rest,
                               "update_actor", rest, "reward: ", reward, "\n")},
                          "ranks", options);
  }
}

}  // namespace
}  // namespace braid
