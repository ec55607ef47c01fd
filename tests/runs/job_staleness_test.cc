// Jobs whose rollouts are older than the weights that learn from them: what a run that was killed
// goes on with, also of samples that steps leave to the next, ranks that are held up, what is
// refused. BRAID_TEST_FULL=1 also runs four ranks, and looks at what is learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "base/testing.h"
#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

// Of three seeds the largest difference was 0.026 in one run and 0.035 in another, which is too
// uncertain to judge by.
constexpr int kSeeds = 5;

class JobStaleness : public JobRun {
 protected:
  static std::vector<std::string> stale(int64_t staleness, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"placement=disaggregated", "cluster={nodes: 1, gpus_per_node: 2}",
                             cat("plan.staleness=", staleness), "algorithm.tis_cap=2",
                             "rollout.max_response_length=12", "train.threads=1"});
    return more;
  }

  // A job that is killed after its second step goes on as `one`, which nobody touched.
  void expect_killed_goes_on(const std::string& one, const std::string& killed,
                             std::vector<std::string> options) {
    same_kernels(one, killed);
    const auto child = start(command(killed, "grpo", options));
    ASSERT_TRUE(reaches(killed, 2, *child));
    for (const pid_t rank : children_of(child->pid())) ::kill(rank, SIGKILL);
    ending(*child);
    ASSERT_LT(steps_kept(killed), 4) << "it had ended before it was killed";
    options.emplace_back("checkpoint.resume=auto");
    finish(command(killed, "grpo", options));
    if (!HasFatalFailure()) expect_same_run(one, killed);
  }

  static double most_stale(const std::string& name) {
    double most = 0;
    for (const Json& row : metrics(name)) most = std::max(most, row["staleness/max"].get<double>());
    return most;
  }

  // The mean reward of the last third of a run.
  static double last_reward(const std::string& name) {
    const std::vector<Json> rows = metrics(name);
    double sum = 0;
    const size_t first = rows.size() - rows.size() / 3;
    for (size_t i = first; i < rows.size(); ++i) sum += rows[i]["reward/raw_mean"].get<double>();
    return sum / static_cast<double>(rows.size() - first);
  }

  // What the quickstart's task teaches with these options, by seed; `age`: of the oldest samples.
  std::vector<double> learnt(const std::string& kind, double age,
                             const std::vector<std::string>& options) {
    const std::string examples = cat(BRAID_SOURCE_DIR, "/examples/quickstart/");
    if (!path_exists(path("stale-sft/export")))
      finish({BRAID_BINARY, "train", examples + "sft.yaml", "run.dir=" + folder_,
              "run.name=stale-sft", cat("model.config=", examples, "model/config.json"),
              cat("tokenizer.path=", examples, "model")});
    std::vector<double> out;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const std::string name = cat("stale-", kind, "-", seed);
      std::vector<std::string> words = {BRAID_BINARY, "train", examples + "grpo.yaml"};
      words.insert(words.end(),
                   {"run.dir=" + folder_, "run.name=" + name, "train.threads=1",
                    "model.path=" + path("stale-sft/export/actor"), cat("train.seed=", seed)});
      words.insert(words.end(), options.begin(), options.end());
      finish(words);
      if (age > 0) {
        EXPECT_EQ(most_stale(name), age);
      }
      out.push_back(last_reward(name));
    }
    RecordProperty(cat("reward_", kind), cat(mean(out)));
    return out;
  }

  // Within twice what synchronous seeds differ by.
  static void expect_as_much(const std::vector<double>& older,
                             const std::vector<double>& synchronous) {
    const auto [low, high] = std::minmax_element(synchronous.begin(), synchronous.end());
    EXPECT_NEAR(mean(older), mean(synchronous), 2 * (*high - *low));
    RecordProperty("spread", cat(*high - *low));
  }

  static double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
};

// The rollouts that wait are in the checkpoint, with the versions of their weights.
TEST_F(JobStaleness, AKilledJobGoesOnWithTheRolloutsThatWaited) {
  const std::string one = "stale-whole", killed = "stale-killed";
  finish(command(one, "grpo", stale(2, {"checkpoint.keep_last=4"})));
  if (HasFatalFailure()) return;
  EXPECT_EQ(most_stale(one), 2);
  const Json numbers = *checkpoint_numbers(path(one + "/checkpoints/step-000002"));
  EXPECT_EQ(numbers["steps_ahead"]["steps"].size(), 2u);
  EXPECT_EQ(numbers["steps_ahead"]["steps"][0]["counts"]["weights_version"][0], 0);
  EXPECT_EQ(numbers["steps_ahead"]["steps"][1]["counts"]["weights_version"][0], 1);
  expect_killed_goes_on(one, killed, stale(2));
}

// Two replicas leave samples to the next step, which a checkpoint has with what drew them.
TEST_F(JobStaleness, AKilledJobGoesOnWithTheSamplesThatItCarries) {
  const std::string one = "carried-whole", killed = "carried-killed";
  const auto carrying = [](std::vector<std::string> more) {
    more.insert(more.end(),
                {"parallel={dp: 2}", "cluster={nodes: 1, gpus_per_node: 2}", "rollout.in_flight=2",
                 "algorithm.tis_cap=2", "rollout.max_response_length=12",
                 "rollout.max_concurrent=3", "train.threads=1"});
    return more;
  };
  finish(command(one, "grpo", carrying({"checkpoint.keep_last=4"})));
  if (HasFatalFailure()) return;
  EXPECT_EQ(most_stale(one), 1);
  const Json numbers = *checkpoint_numbers(path(one + "/checkpoints/step-000002"));
  const Json& carried = numbers["carried_samples"]["progress"];
  EXPECT_GT(carried.size(), 0u);
  EXPECT_EQ(carried.size(), numbers["carried_samples"]["samples"]["samples"].size());
  expect_killed_goes_on(one, killed, carrying({}));
}

// A rank of its own draws ahead, and leaves samples to its next generation: a checkpoint has what
// waits and what is carried.
TEST_F(JobStaleness, AKilledJobGoesOnWithTheSamplesThatItCarriesAndThoseThatWaited) {
  const std::string one = "both-whole", killed = "both-killed";
  const auto both = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"rollout.in_flight=1.5", "rollout.max_concurrent=3"});
    return stale(1, std::move(more));
  };
  finish(command(one, "grpo", both({"checkpoint.keep_last=4"})));
  if (HasFatalFailure()) return;
  EXPECT_EQ(most_stale(one), 2);  // one ahead, and carried for one
  for (const Json& row : metrics(one)) EXPECT_GT(row["rollout/carried_samples"].get<double>(), 0);
  const Json numbers = *checkpoint_numbers(path(one + "/checkpoints/step-000002"));
  EXPECT_EQ(numbers["steps_ahead"]["steps"].size(), 1u);
  EXPECT_GT(numbers["carried_samples"]["progress"].size(), 0u);
  expect_killed_goes_on(one, killed, both({}));
}

// Under costs that were measured another plan is looked for that goes on with what waits: one with
// this staleness, on whatever devices.
TEST_F(JobStaleness, AJobGoesOnUnderAnotherPlanWithTheRolloutsThatWaited) {
  const std::string one = "stale-stays", moved = "stale-moves";
  std::vector<std::string> options = stale(1, {"train.total_steps=8", "checkpoint.keep_last=8"});
  const CommandOutcome end = shell("", command(one, "grpo", options));
  ASSERT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("under measured costs"));
  EXPECT_THAT(end.output, Not(HasSubstr("no search under measured costs")));
  if (const std::string better = path(one + "/better_plan.yaml"); path_exists(better)) {
    EXPECT_THAT(*read_file(better), HasSubstr("staleness: 1"));
  }
  same_kernels(one, moved);
  const auto child = start(command(moved, "grpo", options));
  ASSERT_TRUE(reaches(moved, 2, *child));
  for (const pid_t rank : children_of(child->pid())) ::kill(rank, SIGKILL);
  ending(*child);
  ASSERT_LT(steps_kept(moved), 8) << "it had ended before it was killed";
  options.push_back("placement={update_actor: 1, generate: 0, old_logprob: 0, ref_logprob: 0}");
  options.push_back("checkpoint.resume=auto");
  finish(command(moved, "grpo", options));
  if (!HasFatalFailure()) expect_same_metrics(one, moved);
}

// Ranks are stopped at random, in turn and together.
TEST_F(JobStaleness, RanksThatAreHeldUpDoNotMakeRolloutsOlder) {
  const std::vector<std::string> steps = {"train.total_steps=12", "checkpoint.every_steps=0"};
  finish(command("stale-undisturbed", "grpo", stale(1, steps)));
  if (HasFatalFailure()) return;
  same_kernels("stale-undisturbed", "stale-held");
  const auto child = start(command("stale-held", "grpo", stale(1, steps)));
  ASSERT_TRUE(reaches("stale-held", 1, *child));
  const std::vector<pid_t> ranks = children_of(child->pid());
  ASSERT_EQ(ranks.size(), 2u);
  std::mt19937 random(7);
  for (int stops = 0; stops < 20 && !child->wait(deadline_in(0)).ok(); ++stops) {
    const pid_t rank = ranks[random() % 2];
    ::kill(rank, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    ::kill(rank, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
  }
  EXPECT_EQ(ending(*child).end, "exited with status 0");
  EXPECT_EQ(metrics("stale-held"), metrics("stale-undisturbed"));
  EXPECT_EQ(most_stale("stale-held"), 1);
}

TEST_F(JobStaleness, WhatIsNotThereIsRefusedByItsKey) {
  const auto refused = [&](const std::vector<std::string>& more) {
    const CommandOutcome end = shell("", command("stale-refused", "grpo", more));
    EXPECT_NE(end.exit_code, 0) << end.output;
    return end.output;
  };
  EXPECT_THAT(refused(stale(1, {"algorithm.dynamic_sampling=true"})),
              HasSubstr("algorithm.dynamic_sampling"));
  EXPECT_THAT(refused(stale(1, {"rollout.replay=rollouts.jsonl"})), HasSubstr("rollout.replay"));
  std::vector<std::string> shared = stale(1);
  shared.push_back("placement=colocated");
  EXPECT_THAT(refused(shared), HasSubstr("share devices"));
}

// Layouts change roundings alone.
TEST_F(JobStaleness, FourRanksLearnAsTwo) {
  if (!full_tier()) GTEST_SKIP() << "full tier";
  finish(job_command("stale-two", "grpo", stale(1)));
  std::vector<std::string> four = stale(1, {"parallel={generate: {dp: 2}, update_actor: {tp: 2}}"});
  four.push_back("cluster={nodes: 1, gpus_per_node: 4}");
  same_kernels("stale-two", "stale-four");
  finish(job_command("stale-four", "grpo", four));
  if (HasFatalFailure()) return;
  expect_same_metrics("stale-two", "stale-four");
  const Tensors two = weights_of(path("stale-two/export/actor"));
  for (const auto& [name, tensor] : weights_of(path("stale-four/export/actor"))) {
    const double error = (tensor - two.at(name)).norm().item<double>();
    EXPECT_LE(error, kEquivalence * two.at(name).norm().item<double>()) << name;
  }
}

// The quickstart's task: rollouts that are one step or four old teach what those of the present
// weights do, within twice what seeds differ by.
TEST_F(JobStaleness, OlderRolloutsTeachAsMuch) {
  if (!full_tier()) GTEST_SKIP() << "full tier";
  const auto ahead = [&](int64_t staleness) {
    return learnt(
        cat("ahead-", staleness), static_cast<double>(staleness),
        {"placement=disaggregated", "cluster={nodes: 1, gpus_per_node: 2}",
         cat("plan.staleness=", staleness), cat("algorithm.tis_cap=", staleness > 0 ? 2 : 0)});
  };
  const std::vector<double> synchronous = ahead(0);
  for (const int64_t staleness : {1, 4}) expect_as_much(ahead(staleness), synchronous);
}

// As do responses that a step leaves to the next, in one process and by ranks that generate ahead.
TEST_F(JobStaleness, CarriedResponsesTeachAsMuch) {
  if (!full_tier()) GTEST_SKIP() << "full tier";
  const std::string few = "rollout.max_concurrent=64";
  const std::vector<double> waiting = learnt("waiting", 0, {few});
  expect_as_much(learnt("carried", 1, {few, "rollout.in_flight=2", "algorithm.tis_cap=2"}),
                 waiting);
  expect_as_much(learnt("carried_ahead", 2,
                        {few, "rollout.in_flight=2", "algorithm.tis_cap=2", "plan.staleness=1",
                         "placement=disaggregated", "cluster={nodes: 1, gpus_per_node: 2}"}),
                 waiting);
}

}  // namespace
}  // namespace braid
