#include "plan/planned_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/load.h"
#include "config/reference.h"
#include "plan/make_problem.h"

namespace braid::inline plan {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Result<std::string> no_file(const std::string& path) { return not_found(path); }

PlannedKeys keys_of(std::vector<std::string> overrides) {
  for (const char* base : {"model.size=llama2-7b", "cluster={gpu: a100-80g}"})
    overrides.insert(overrides.begin(), base);
  ConfigSources sources;
  sources.overrides = std::move(overrides);
  const auto loaded = load_config(sources);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  const auto problem = make_problem(loaded->config, no_file);
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  return planned_keys(loaded->resolved, *problem);
}

std::vector<std::string> names(const std::vector<PlannedKeys::Entry>& entries) {
  std::vector<std::string> out;
  for (const PlannedKeys::Entry& entry : entries) out.push_back(entry.key);
  return out;
}

TEST(PlannedKeys, EveryKeyOfTheReferenceHasAMeaning) {
  const KeyMeaning unknown = meaning_of_key("no_such_section.key");
  for (const OptionRow& row : option_rows())
    if (row.kind == OptionRow::Kind::kLeaf) {
      EXPECT_NE(meaning_of_key(row.path).why, unknown.why) << row.path;
    }
}

TEST(PlannedKeys, WhatIsSetIsNamedOnceAndDefaultsAreNot) {
  const PlannedKeys keys =
      keys_of({"rollout.max_concurrent=4", "rollout.longest_first=true", "train.micro_tokens=512",
               "lora.targets=[q_proj]", "critic.warmup_steps=3", "optim.actor.lr=1e-5"});
  EXPECT_THAT(names(keys.not_priced),
              ElementsAre("lora.targets", "critic.warmup_steps", "rollout.max_concurrent",
                          "rollout.longest_first", "train.micro_tokens"));
  EXPECT_THAT(names(keys.without_effect), ElementsAre("optim.actor.lr"));
  EXPECT_THAT(keys.read, ElementsAre("model.size", "cluster.gpu"));
}

TEST(PlannedKeys, LimitsOfLengthsCountUntilTheWorkloadStatesLengths) {
  const std::string limit = "rollout.max_response_length=512";
  EXPECT_THAT(keys_of({limit}).read, Contains("rollout.max_response_length"));
  EXPECT_THAT(names(keys_of({limit, "workload.response_length=200"}).without_effect),
              ElementsAre("rollout.max_response_length"));
  EXPECT_THAT(keys_of({limit, "workload.response_length={mean: 200, sigma: 0.5}"}).read,
              Contains("rollout.max_response_length"));
  const char* cut = "workload.response_length={mean: 200, sigma: 0.5, longest: 500}";
  EXPECT_THAT(names(keys_of({limit, cut}).without_effect),
              ElementsAre("rollout.max_response_length"));
}

TEST(PlannedKeys, PromptsAreSharedByGroupsOfBraidsOwnSamples) {
  const char* never = "train.share_prompts=never";
  EXPECT_THAT(keys_of({never, "rollout.samples_per_prompt=2"}).read,
              Contains("train.share_prompts"));
  EXPECT_THAT(names(keys_of({never}).without_effect), Contains("train.share_prompts"));
  EXPECT_THAT(names(keys_of({never, "rollout.samples_per_prompt=2", "plan.train_engine=fsdp"})
                        .without_effect),
              Contains("train.share_prompts"));
}

// A key that other algorithms read is named where this one has no use for it.
TEST(PlannedKeys, WhatTheAlgorithmHasNoUseForIsWithoutEffect) {
  const std::vector<std::string> of_ppo = {"critic.size=llama2-13b", "algorithm.tis_cap=2",
                                           "reference.size=llama2-13b", "algorithm.kl.coef=0.1",
                                           "rollout.samples_per_prompt=2"};
  const auto unused = [&](const char* algorithm) {
    std::vector<std::string> overrides = of_ppo;
    overrides.push_back(cat("algorithm.name=", algorithm));
    return names(keys_of(overrides).without_effect);
  };
  EXPECT_THAT(unused("ppo"), IsEmpty());
  EXPECT_THAT(unused("grpo"), ElementsAre("critic.size"));
  EXPECT_THAT(unused("sft"),
              UnorderedElementsAre("critic.size", "algorithm.tis_cap", "reference.size",
                                   "algorithm.kl.coef", "rollout.samples_per_prompt"));
}

TEST(PlannedKeys, NotesGroupKeysByReason) {
  const auto notes = key_notes(keys_of({"train.micro_tokens=512", "train.recompute=true",
                                        "rollout.ignore_eos=true", "train.seed=3"}));
  ASSERT_EQ(notes.size(), 2);
  EXPECT_THAT(notes, Contains(HasSubstr("train.micro_tokens, train.recompute: not priced (")));
  EXPECT_THAT(notes, Contains(HasSubstr("rollout.ignore_eos: not priced (")));
  EXPECT_THAT(key_notes(keys_of({"train.seed=3"})), IsEmpty());
}

}  // namespace
}  // namespace braid::inline plan
