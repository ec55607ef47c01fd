#include "plan/run_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "config/load.h"
#include "config/reference.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

struct LoadedRun {
  LoadedConfig loaded;
  Graph graph;
  std::optional<ExecutionPlan> plan;
  bool priced = false;
  RunFacts facts() const { return {loaded.config, graph, plan ? &*plan : nullptr, priced}; }
  std::vector<std::string> notes() const { return run_key_notes(loaded.resolved, facts()); }
};

LoadedRun run_of(std::vector<std::string> overrides, const std::string& plan = "") {
  overrides.insert(overrides.begin(), "rollout.samples_per_prompt=2");
  ConfigSources sources;
  sources.overrides = std::move(overrides);
  auto loaded = load_config(sources);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  LoadedRun run{std::move(loaded).value(), {}, {}};
  run.graph = *make_graph(run.loaded.config.algorithm);
  if (!plan.empty()) {
    auto parsed = parse_plan(plan, "p.yaml");
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    run.plan = *parsed;
  }
  return run;
}

std::vector<std::string> notes_of(std::vector<std::string> overrides,
                                  const std::string& plan = "") {
  return run_of(std::move(overrides), plan).notes();
}

constexpr const char* kGrpoPlan =
    "graph: grpo\ndevices: 2\ncalls:\n"
    "  generate: {mesh: all, dp: 2, max_concurrent: 8}\n"
    "  old_logprob: {mesh: all, dp: 2, micro_tokens: 512}\n"
    "  ref_logprob: {mesh: all, dp: 2}\n"
    "  update_actor: {mesh: all, dp: 2, recompute: full}\n";

TEST(RunKeys, EveryKeyOfTheReferenceHasARule) {
  for (const char* algorithm : {"ppo", "sft"}) {
    const LoadedRun run = run_of({cat("algorithm.name=", algorithm)});
    EXPECT_EQ(why_unread("no_such_section.key", run.facts()), kUnknownKey);
    for (const OptionRow& row : option_rows())
      if (row.kind == OptionRow::Kind::kLeaf) {
        EXPECT_NE(why_unread(row.path, run.facts()), kUnknownKey) << row.path;
      }
  }
}

TEST(RunKeys, KeysThatOnlyPlanningReadsAreNamed) {
  EXPECT_THAT(
      notes_of({"algorithm.name=grpo", "model.size=llama2-7b", "plan.train_engine=verl-megatron"}),
      ElementsAre("command line: model.size, plan.train_engine are not read: 'braid plan' and "
                  "'braid simulate' read it"));
  const std::vector<std::string> lengths = {"algorithm.name=grpo", "workload.response_length=20"};
  EXPECT_THAT(notes_of(lengths, kGrpoPlan),
              ElementsAre("command line: workload.response_length is not read: 'braid plan' and "
                          "'braid simulate' read it; a run has the lengths of its data"));
  LoadedRun searched = run_of(lengths, kGrpoPlan);
  searched.priced = true;
  EXPECT_THAT(searched.notes(), IsEmpty());
  EXPECT_THAT(notes_of({"plan.host_memory_gib=1"}),
              ElementsAre("command line: plan.host_memory_gib is not read: no plan is stated; "
                          "train.memory_limit_gib limits what this process takes"));
  EXPECT_THAT(notes_of({"algorithm.name=grpo", "plan.host_memory_gib=1"}, kGrpoPlan), IsEmpty());
}

TEST(RunKeys, WhatThePlanOverrulesIsSaidWithBothValues) {
  EXPECT_THAT(
      notes_of({"algorithm.name=grpo", "train.micro_tokens=512", "rollout.max_concurrent=4",
                "rollout.kv_budget_tokens=4096"},
               kGrpoPlan),
      ElementsAre("command line: rollout.max_concurrent: the plan overrules 4: max_concurrent 8 "
                  "(generate); say in the plan (plan.file or parallel) what is to count",
                  "command line: train.micro_tokens: the plan overrules 512: micro_batches 1 "
                  "(ref_logprob, update_actor); say in the plan (plan.file or parallel) what is to "
                  "count"));
  EXPECT_THAT(notes_of({"algorithm.name=grpo", "train.recompute=false"}, kGrpoPlan),
              ElementsAre("command line: train.recompute: the plan overrules false: recompute full "
                          "(update_actor); say in the plan (plan.file or parallel) what is to "
                          "count"));
  // Said the same twice, said by nobody, and without a plan.
  EXPECT_THAT(notes_of({"algorithm.name=grpo", "train.recompute=true"}, kGrpoPlan), IsEmpty());
  EXPECT_THAT(notes_of({"algorithm.name=grpo"}, kGrpoPlan), IsEmpty());
  EXPECT_THAT(notes_of({"algorithm.name=grpo", "train.micro_tokens=512"}), IsEmpty());
}

// A library's advantages and loss are functions of what they are given, and of no key beside it.
TEST(RunKeys, WhatALibraryTakesThePlaceOfIsNamed) {
  EXPECT_THAT(
      notes_of({"algorithm.name=reinforce", "algorithm.advantages=a.so", "algorithm.kl.in=own",
                "algorithm.gamma=0.9", "algorithm.normalize_advantages=batch",
                "algorithm.whiten_rewards=true", "algorithm.kl.estimator=k3"}),
      UnorderedElementsAre(
          "command line: algorithm.gamma, algorithm.normalize_advantages, "
          "algorithm.whiten_rewards are not read: algorithm.advantages gives them as they "
          "are",
          "command line: algorithm.kl.estimator is not read: algorithm.kl.in is own"));
  EXPECT_THAT(notes_of({"algorithm.name=ppo", "algorithm.loss=a.so", "algorithm.dual_clip=3",
                        "algorithm.gamma=0.9"}),
              ElementsAre("command line: algorithm.dual_clip is not read: algorithm.loss has "
                          "ratios and bounds of its own"));
}

// Keys of the policy's loss and of its advantages under losses that have neither.
TEST(RunKeys, WhatALossOfPairsLeavesOutIsNamed) {
  const std::vector<std::string> keys = {"algorithm.clip_low=0.1",
                                         "algorithm.clip_high=0.3",
                                         "algorithm.ratio_level=sequence",
                                         "algorithm.entropy_coef=0.1",
                                         "algorithm.stop_kl=0.1",
                                         "algorithm.old_logprobs=sampler",
                                         "algorithm.dual_clip=3",
                                         "algorithm.normalize_advantages=batch",
                                         "algorithm.loss_agg=seq_mean_token_mean"};
  for (const char* name : {"online_dpo", "dpo", "kto", "orpo", "rm", "sft"}) {
    std::vector<std::string> given = keys;
    given.push_back(cat("algorithm.name=", name));
    const std::string notes = join(notes_of(given), "\n");
    for (const std::string& key : keys)
      EXPECT_THAT(notes, HasSubstr(key.substr(0, key.find('=')))) << name;
  }
  EXPECT_THAT(notes_of({"algorithm.name=online_dpo", "algorithm.tis_cap=2"}),
              ElementsAre("command line: algorithm.tis_cap is not read: online_dpo learns from "
                          "pairs, not from advantages"));
  EXPECT_THAT(
      notes_of({"algorithm.name=distill", "algorithm.whiten_rewards=true", "teacher.path=t"}),
      ElementsAre("command line: algorithm.whiten_rewards is not read: distill learns "
                  "from the teacher's log-probs"));
}

TEST(RunKeys, WhatOtherKeysSwitchOffIsNamed) {
  const auto note = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), "algorithm.name=grpo");
    const std::vector<std::string> notes = notes_of(std::move(overrides));
    return notes.size() == 1 ? notes.front() : cat(notes.size(), " notes");
  };
  const auto unread = [](const std::string& key, const std::string& why) {
    return cat("command line: ", key, " is not read: ", why);
  };
  EXPECT_EQ(note({"critic.path=a", "optim.critic.lr=1e-4"}),
            "command line: critic.path, optim.critic.lr are not read: grpo has no critic");
  EXPECT_EQ(note({"algorithm.kl.coef=0", "algorithm.kl.estimator=k1"}),
            unread("algorithm.kl.estimator", "algorithm.kl.coef is 0"));
  EXPECT_EQ(note({"algorithm.kl.horizon=5"}),
            unread("algorithm.kl.horizon", "algorithm.kl.controller is fixed"));
  EXPECT_EQ(note({"algorithm.loss_norm_tokens=9"}),
            unread("algorithm.loss_norm_tokens", "algorithm.loss_agg is not constant_norm"));
  EXPECT_EQ(note({"optim.actor.name=sgd", "optim.actor.eps=1e-6"}),
            unread("optim.actor.eps", "sgd has no moments"));
  EXPECT_EQ(note({"optim.actor.min_lr_ratio=0.1"}),
            unread("optim.actor.min_lr_ratio", "the schedule is constant"));
  EXPECT_EQ(note({"train.reduction=native"}),
            unread("train.reduction", "one process has all of every sum"));
  EXPECT_EQ(note({"train.max_skipped_steps=5"}),
            unread("train.max_skipped_steps", "train.on_nonfinite is stop"));
  EXPECT_EQ(note({"eval.prompts=5"}),
            unread("eval.prompts",
                   "no evaluation is asked for (eval.every_steps, eval.at_start); 'braid eval' "
                   "reads it"));
  EXPECT_EQ(note({"log.command_timeout_s=5"}),
            unread("log.command_timeout_s", "no log.command, log.wandb or log.mlflow is set"));
  EXPECT_EQ(note({"cluster={gpu: this-machine}"}),
            unread("cluster.gpu", "no plan is stated, and one process trains"));
  EXPECT_EQ(note({"data.learn=last"}), unread("data.learn", "grpo learns from no given responses"));
  EXPECT_EQ(note({"lora.alpha=32"}), unread("lora.alpha", "lora.rank is 0"));
}

}  // namespace
}  // namespace braid::inline plan
