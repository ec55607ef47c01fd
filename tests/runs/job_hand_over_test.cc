// Jobs that hand a generation over when few samples are left, against the same plan without: what
// they draw, score and learn has the same bits. BRAID_TEST_FULL=1 runs every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::vector<LayoutCase> hand_over_cases() {
  return {
      {"two", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2")},
      {"apart", "ppo", "1x3",
       "  generate: {mesh: \"0,1\", dp: 2}\n"
       "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  ref_logprob: {mesh: \"2\", dp: 1}\n"
       "  values: {mesh: \"2\", dp: 1}\n"
       "  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 2}\n"
       "  update_critic: {mesh: \"1,2\", dp: 2}\n"},
      {"four", "grpo", "1x4",
       "  generate: {mesh: all, dp: 4}\n"
       "  old_logprob: {mesh: all, dp: 2, tp: 2}\n"
       "  ref_logprob: {mesh: all, dp: 2, pp: 2}\n"
       "  update_actor: {mesh: all, dp: 4}\n"},
      {"slices", "grpo", "1x3",  // which a rank gives that does not score
       "  generate: {mesh: all, dp: 3}\n"
       "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  ref_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  update_actor: {mesh: all, dp: 3, zero: 3}\n"},
      {"replicas", "ppo", "1x4", everywhere("ppo", "dp: 2, tp: 2", "dp: 4"), true},
      {"stages", "grpo", "1x4", everywhere("grpo", "dp: 2, pp: 2", "dp: 2, tp: 2"), true},
      {"eight", "ppo", "1x8", everywhere("ppo", "dp: 4, tp: 2", "dp: 4, pp: 2"), true},
  };
}

class JobHandOver : public JobRun {
 protected:
  // When a generation is handed over: fusion.migrate_below_samples. None said: never.
  using Below = std::vector<int64_t>;

  // `how`: more of the plan's fusion.
  static std::string name_of(const LayoutCase& of, const Below& below, const std::string& how) {
    std::string name = cat("hand-over-", of.name);
    for (const int64_t number : below) name += cat("-", number);
    return how.empty() ? name : name + "-other";
  }

  static std::string list_of(const Below& below) {
    std::string out;
    for (const int64_t number : below) out += cat(out.empty() ? "" : ", ", number);
    return below.size() == 1 ? out : cat("[", out, "]");
  }

  static std::vector<std::string> command_of(const LayoutCase& of, const Below& below,
                                             const std::vector<std::string>& more = {},
                                             const std::string& how = "") {
    const std::string name = name_of(of, below, how);
    LayoutCase with = of;
    with.name = name;
    if (!below.empty())
      with.calls += cat("fusion: {migrate_below_samples: ", list_of(below), how, "}\n");
    std::vector<std::string> options = {
        "plan.file=" + write_plan(with),  "optim.actor.name=adamw",
        "optim.critic.name=adamw",        "optim.actor.lr=1e-3",
        "optim.critic.lr=1e-3",           "rollout.record=true",
        "rollout.max_response_length=24", "checkpoint.every_steps=5"};
    options.insert(options.end(), of.more.begin(), of.more.end());
    options.insert(options.end(), more.begin(), more.end());
    return job_command(name, of.algorithm, options);
  }

  static std::string run(const LayoutCase& of, const Below& below,
                         const std::vector<std::string>& more = {}, const std::string& how = "") {
    const std::string name = name_of(of, below, how), whole = name_of(of, {}, "");
    if (!below.empty() && path_exists(path(whole))) same_kernels(whole, name);
    finish(command_of(of, below, more, how));
    return name;
  }

  static std::map<std::string, std::string> state_of(const std::string& name) {
    std::map<std::string, std::string> out;
    for (const auto& [file, hash] : hashes(path(name + "/checkpoints/step-000005")))
      if (file.ends_with(".safetensors")) out[file] = hash;
    return out;
  }

  // Of a metric, over all steps.
  static double sum_of(const std::string& name, const std::string& metric) {
    double out = 0;
    for (const Json& row : metrics(name)) out += row.value(metric, 0.0);
    return out;
  }

  // Samples that went to another replica at the first, second, ... hand-over, over all steps.
  static double migrated(const std::string& name, int number = 1) {
    return sum_of(name, cat("rollout/migrated", number > 1 ? cat("_", number) : ""));
  }

  // How many of a step's samples have to move where so many are left, by their lengths: those that
  // are left are the longest, replicas have equal shares of the samples in order, and as few of
  // them go on as have room in their shares. None can move where one sample is left, or so many
  // that all replicas go on.
  static int64_t to_move(const std::vector<int64_t>& lengths, int64_t left, int64_t replicas) {
    const auto samples = std::ssize(lengths);
    std::vector<int64_t> longest_first(samples), of_replica(replicas, 0);
    std::iota(longest_first.begin(), longest_first.end(), 0);
    std::stable_sort(longest_first.begin(), longest_first.end(),
                     [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
    for (int64_t i = 0; i < left; ++i) {
      int64_t replica = replicas - 1;
      while (samples * replica / replicas > longest_first[i]) --replica;
      ++of_replica[replica];
    }
    std::sort(of_replica.rbegin(), of_replica.rend());
    const int64_t share = (samples + replicas - 1) / replicas, go_on = (left + share - 1) / share;
    return std::accumulate(of_replica.begin() + std::min(go_on, replicas), of_replica.end(),
                           int64_t{0});
  }

  // In each step as many samples moved as had to. Returns how many did.
  static int64_t expect_moves(const std::string& whole, const std::string& handed,
                              const LayoutCase& of) {
    std::vector<std::vector<int64_t>> lengths(metrics(whole).size());  // by step
    for (const Json& row : read_rows(path(whole + "/rollouts.jsonl")))
      lengths.at(row["step"].get<size_t>()).push_back(std::ssize(row["response_ids"]));
    const std::string first = "dp: ";  // of the generation
    const int64_t replicas = std::stoll(of.calls.substr(of.calls.find(first) + first.size()));
    const std::vector<Json> rows = metrics(handed);
    int64_t out = 0;
    for (size_t step = 0; step < rows.size(); ++step) {
      const int64_t left = rows[step]["rollout/handed_over"].get<int64_t>();
      const int64_t moved = rows[step]["rollout/migrated"].get<int64_t>();
      EXPECT_EQ(moved, to_move(lengths[step], left, replicas)) << "step " << step;
      out += moved;
    }
    return out;
  }

  static void expect_same_run(const std::string& whole, const std::string& handed) {
    EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
              *read_file(path(handed + "/rollouts.jsonl")));
    EXPECT_EQ(state_of(whole), state_of(handed));
    EXPECT_GE(state_of(handed).size(), 2u);
    expect_same_metrics(whole, handed);
  }
};

TEST_F(JobHandOver, ChangesNoBit) {
  for (const LayoutCase& of : hand_over_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string whole = run(of, {});
    if (HasFatalFailure()) return;
    for (const int64_t below :
         full_tier() ? std::vector<int64_t>{1, 3, 5, 8} : std::vector<int64_t>{5}) {
      SCOPED_TRACE(below);
      const std::string handed = run(of, {below});
      if (HasFatalFailure()) return;
      expect_same_run(whole, handed);
      EXPECT_TRUE(expect_moves(whole, handed, of) > 0 || below != 5);
    }
  }
}

// With twice the samples, at numbers that nobody chose: with one, and with two, of which the larger
// is the first.
TEST_F(JobHandOver, DrawnNumbersChangeNoBit) {
  if (!full_tier()) GTEST_SKIP() << "full tier";
  const unsigned seed = std::random_device()();
  std::printf("numbers drawn with seed %u\n", seed);
  std::mt19937 random(seed);
  for (LayoutCase of : hand_over_cases()) {
    SCOPED_TRACE(cat(of.name, ", seed ", seed));
    of.name = "drawn-" + of.name;
    of.more = {"rollout.prompts_per_step=8", "rollout.max_response_length=48",
               "data.train=task:sort_digits:16"};
    constexpr int64_t kSamples = 16;
    const std::string whole = run(of, {});
    if (HasFatalFailure()) return;
    int64_t moved = 0;
    for (int draw = 0; draw < 4; ++draw) {
      Below below = {std::uniform_int_distribution<int64_t>(2, kSamples - 1)(random)};
      if (draw % 2 == 1)
        below.push_back(std::uniform_int_distribution<int64_t>(1, below.front() - 1)(random));
      SCOPED_TRACE(list_of(below));
      std::filesystem::remove_all(path(name_of(of, below, "")));
      const std::string handed = run(of, below);
      if (HasFatalFailure()) return;
      expect_same_run(whole, handed);
      moved += expect_moves(whole, handed, of);
    }
    std::printf("%s: %lld samples moved\n", of.name.c_str(), static_cast<long long>(moved));
  }
}

// Weights that rest on the host come to those that score before the generation begins; a reward
// that is a model scores beside the others, in a layout of its own.
TEST_F(JobHandOver, WeightsOnTheHostAndRewardModelsChangeNoBit) {
  const std::string reward = cat("reward=[{type: model, name: learnt, path: ",
                                 path(recorded("ppo", "") + "/export/critic"), "}]");
  const std::string grpo = everywhere("grpo", "dp: 2", "dp: 2"),
                    resting = "roles:\n  reference: {weights: host, prefetch: true}\n";
  for (const LayoutCase& of :
       {LayoutCase{"resting", "grpo", "1x2", grpo + resting},
        LayoutCase{
            "judged", "grpo", "1x2", grpo + "  reward: {mesh: all, dp: 2}\n", false, {reward}},
        LayoutCase{"judged-apart",
                   "ppo",
                   "1x3",
                   hand_over_cases()[1].calls + "  reward: {mesh: \"0,2\", tp: 2}\n" + resting,
                   true,
                   {reward}}}) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string whole = run(of, {});
    if (HasFatalFailure()) return;
    const std::string handed = run(of, {5});
    if (HasFatalFailure()) return;
    expect_same_run(whole, handed);
    EXPECT_GT(expect_moves(whole, handed, of), 0);
  }
}

// Where tokens move without their caches, and replicas take more samples than they had, too.
TEST_F(JobHandOver, TokensAloneMayMove) {
  LayoutCase of = hand_over_cases().front();
  of.name = "tokens";
  const std::string whole = run(of, {});
  const std::string handed = run(of, {6}, {}, ", migrate_to_samples: 8, migrate_cache: false");
  if (HasFatalFailure()) return;
  EXPECT_GT(migrated(handed), 0);
  EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
            *read_file(path(handed + "/rollouts.jsonl")));
  EXPECT_EQ(state_of(whole), state_of(handed));
}

// Where samples are given to replicas by predicted lengths, too; and a run that goes on from a
// checkpoint predicts what the run that went through does.
TEST_F(JobHandOver, PredictedLengthsChangeNoBit) {
  LayoutCase of = hand_over_cases()[2];
  of.name = "predicted";
  const std::vector<std::string> saves = {"checkpoint.every_steps=1", "checkpoint.keep_last=9",
                                          "checkpoint.resume=auto",
                                          "data.train=task:sort_digits:8"};
  const std::string whole = run(of, {}, saves);
  const std::string handed = run(of, {5}, saves, ", predicted_lengths: true");
  if (HasFatalFailure()) return;
  EXPECT_GT(migrated(handed), 0);
  EXPECT_EQ(*read_file(path(whole + "/rollouts.jsonl")),
            *read_file(path(handed + "/rollouts.jsonl")));
  EXPECT_EQ(state_of(whole), state_of(handed));
  const auto row = metrics(handed).back();
  ASSERT_TRUE(row.contains("rollout/length_correlation")) << row;
  of.name = "predicted-again";
  same_kernels(whole, name_of(of, {5}, "other"));
  std::vector<std::string> three = saves;
  three.push_back("train.total_steps=3");
  finish(command_of(of, {5}, three, ", predicted_lengths: true"));
  finish(command_of(of, {5}, saves, ", predicted_lengths: true"));
  if (HasFatalFailure()) return;
  const auto again = metrics(name_of(of, {5}, "other")).back();
  for (const char* name : {"rollout/length_correlation", "rollout/handed_over", "rollout/migrated"})
    EXPECT_EQ(again[name], row[name]) << name;
}

// Beginnings of what is left are scored by those that are free, and the rest at the end, with
// caches that move and with tokens alone, once and again.
// Where each replica of a scorer has a rank that still generates (two replicas of several ranks)
// nobody is free to score any.
TEST_F(JobHandOver, ScoredPrefixesChangeNoBit) {
  double again_tokens = 0;
  for (LayoutCase of : hand_over_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    of.name = "begun-" + of.name;
    of.more = {"rollout.max_response_length=48", "data.train=task:sort_digits:8"};
    const std::string whole = run(of, {});
    if (HasFatalFailure()) return;
    const auto begun = [&](const Below& below, const std::string& how, double* tokens) {
      const std::string handed = run(of, below, {}, ", scored_prefixes: true" + how);
      if (HasFatalFailure()) return;
      expect_same_run(whole, handed);
      double own = 0;
      for (const Json& row : metrics(handed)) own += row.value("rollout/begun_tokens", 0.0);
      EXPECT_TRUE(own == 0 || migrated(handed) > 0);
      *tokens += own;
    };
    double tokens = 0;
    begun({5}, "", &tokens);
    EXPECT_TRUE(tokens > 0 || of.name == "begun-stages");
    if (HasFatalFailure() || !full_tier()) continue;
    begun({6, 3}, ", predicted_lengths: true, migrate_cache: false", &again_tokens);
  }
  EXPECT_TRUE(again_tokens > 0 || !full_tier());
}

// Caches are copied ahead of the first hand-over: alone, where it is handed over again, and where
// beginnings are scored.
TEST_F(JobHandOver, PreCopiesChangeNoBit) {
  for (LayoutCase of : hand_over_cases()) {
    const bool always = of.name == "two" || of.name == "four" || of.name == "stages";
    if (!always && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    of.name = "copied-" + of.name;
    of.more = {"rollout.max_response_length=48", "data.train=task:sort_digits:8"};
    const std::string whole = run(of, {});
    if (HasFatalFailure()) return;
    double copied = 0, in_vain = 0, moved = 0;
    const auto ahead = [&](const Below& below, const std::string& how) {
      const std::string handed = run(of, below, {}, ", pre_copy_below_samples: 7" + how);
      if (HasFatalFailure()) return;
      expect_same_run(whole, handed);
      copied += sum_of(handed, "rollout/pre_copied");
      in_vain += sum_of(handed, "rollout/pre_copied_in_vain");
      moved += migrated(handed);
    };
    ahead({3}, "");
    if (HasFatalFailure()) return;
    ahead({4, 2}, ", scored_prefixes: true");
    if (HasFatalFailure()) return;
    EXPECT_GT(copied, 0);
    EXPECT_GT(copied, in_vain) << "no copy was of use";
    EXPECT_GE(moved, copied - in_vain);
  }
}

// Handed over again when fewer are left: at each number samples moved, but for two replicas, of
// which one goes on after the first or the second. With every other way in which they may move,
// too: to replicas that are given samples by predicted lengths, with caches and with tokens alone.
TEST_F(JobHandOver, AgainChangesNoBit) {
  for (LayoutCase of : hand_over_cases()) {
    const bool two = of.name == "two" || of.name == "stages" || of.name == "replicas";
    if (of.name == "apart" || (of.name != "four" && !full_tier())) continue;
    SCOPED_TRACE(of.name);
    of.name = "again-" + of.name;
    of.more = {"rollout.max_response_length=48", "data.train=task:sort_digits:8"};
    const std::string whole = run(of, {});
    for (const std::string how :
         {"", ", predicted_lengths: true", ", predicted_lengths: true, migrate_cache: false"}) {
      if (how.ends_with("true") && !full_tier()) continue;
      SCOPED_TRACE(how);
      std::filesystem::remove_all(path(name_of(of, two ? Below{7, 3} : Below{6, 3}, how)));
      const std::string handed = run(of, two ? Below{7, 3} : Below{6, 3}, {}, how);
      if (HasFatalFailure()) return;
      expect_same_run(whole, handed);
      if (two) {
        EXPECT_GT(migrated(handed) + migrated(handed, 2), 0);
      } else {
        for (const int number : {1, 2}) EXPECT_GT(migrated(handed, number), 0) << number;
      }
    }
  }
}

// A rank that dies while samples move ends the job, and the job goes on from its last checkpoint.
class JobHandOverDeath : public JobHandOver {
 protected:
  // At a hand-over of a step, from 1 on.
  static void die_at(LayoutCase of, const Below& below, int number, const std::string& how = "") {
    const std::vector<std::string> saves = {"checkpoint.every_steps=1", "checkpoint.keep_last=9",
                                            "checkpoint.resume=auto"};
    of.name = cat("alive-", number);
    const std::string whole = run(of, below, saves, how);
    of.name = cat("death-", number);
    const std::string name = name_of(of, below, how);
    const auto child = start(command_of(of, below, saves, how));
    ASSERT_TRUE(reaches(name, 2, *child));
    const std::vector<pid_t> ranks = children_of(child->pid());
    ASSERT_GE(ranks.size(), 2u);
    WatchedRank watched{ranks.back(), {}};
    std::set<int64_t> places;  // of hand-overs in the list
    ASSERT_TRUE(watched.stop_at(
        [&](const std::string& at) {
          const size_t place = at.find("instruction ");
          if (at.find("(hand_over)") == std::string::npos) return false;
          const int64_t index = std::stoll(at.substr(place + std::strlen("instruction ")));
          places.insert(index);
          return std::ssize(places) >= number && index == *places.rbegin();
        },
        *child));
    ::kill(ranks.back(), SIGKILL);
    EXPECT_EQ(ending(*child).end, "exited with status 1");
    for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
    finish(command_of(of, below, saves, how));
    EXPECT_EQ(state_of(whole), state_of(name));
  }
};

TEST_F(JobHandOverDeath, LosesNothing) {
  if (!full_tier()) GTEST_SKIP() << "a minute of training";
  die_at(hand_over_cases().front(), {5}, 1);
}

TEST_F(JobHandOverDeath, PreCopiesLoseNothing) {
  if (!full_tier()) GTEST_SKIP() << "a minute of training";
  die_at(hand_over_cases().front(), {3}, 1, ", pre_copy_below_samples: 7");
}

TEST_F(JobHandOverDeath, AgainLosesNothing) {
  if (!full_tier()) GTEST_SKIP() << "a minute of training";
  die_at(hand_over_cases()[2], {6, 3}, 2);
}

}  // namespace
}  // namespace braid
