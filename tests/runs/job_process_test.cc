// Runs of several ranks as processes of the braid program against the same run in one process, all
// fed the same recorded rollouts. BRAID_TEST_FULL=1 runs every layout.
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/sub.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "device/device.h"
#include "plan/placement.h"
#include "plan/plan_text.h"
#include "plan/validate.h"
#include "runs/job_layouts.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kChange = 1e-3;  // of what training changed
constexpr double kLeastShare = 1e-2;
constexpr double kLeastGradient = 1e-4;  // of the global norm

class JobProcess : public JobRun {
 protected:
  // A run that leaves the weights as they are at the start.
  static std::string unchanged(const std::string& algorithm, const std::string& family) {
    const std::string name = cat("start-", algorithm, "-", family);
    if (!path_exists(path(name + "/export")))
      finish(job_command(name, algorithm,
                         with_model(family, {"train.total_steps=1", "optim.actor.lr=1e-30",
                                             "optim.critic.lr=1e-30", "optim.reward.lr=1e-30"})));
    return name;
  }

  static void expect_equivalent(const LayoutCase& layout, const std::string& family) {
    SCOPED_TRACE(cat(layout.name, " ", family));
    std::vector<std::string> more = layout.more;
    more.push_back("plan.file=" + write_plan(layout));
    expect_equivalent_run(layout.algorithm, family, cat("job-", layout.name, family), more);
  }

  static void expect_equivalent_run(const std::string& algorithm, const std::string& family,
                                    const std::string& job, std::vector<std::string> more) {
    const std::string one = recorded(algorithm, family);
    same_kernels(one, job);
    if (generates(*make_graph(default_options(algorithm_of(algorithm)))))
      more.push_back("rollout.replay=" + path(one + "/rollouts.jsonl"));
    finish(job_command(job, algorithm, with_model(family, more)));
    if (HasFatalFailure()) return;
    expect_same_metrics(one, job);
    const std::string start = unchanged(algorithm, family);
    expect_close(one, job, start, algorithm_of(algorithm) == "rm" ? "reward" : "actor");
    if (algorithm == "ppo") expect_close(one, job, start, "critic");
  }

  // Weights, and what training has changed of them since `start`. The change of a tensor is a
  // difference of rounded weights, and that of some (key biases of gpt2) is rounding alone: it is
  // held against the tensor's own and a share of the whole change.
  static void expect_close(const std::string& a, const std::string& b, const std::string& start,
                           const std::string& role) {
    const Tensors left = weights_of(path(a + "/export/" + role)),
                  right = weights_of(path(b + "/export/" + role)),
                  before = weights_of(path(start + "/export/" + role));
    ASSERT_EQ(left.size(), right.size());
    double whole = 0;
    for (const auto& [name, tensor] : left)
      whole += std::pow((tensor - before.at(name)).norm().item<double>(), 2);
    whole = std::sqrt(whole);
    EXPECT_GT(whole, 0) << role << " has not learned";
    for (const auto& [name, tensor] : left) {
      const double apart = (tensor - right.at(name)).norm().item<double>();
      const double norm = tensor.norm().item<double>();
      const double changed = (tensor - before.at(name)).norm().item<double>();
      EXPECT_LE(apart, kEquivalence * std::max(norm, 1e-4)) << role << " " << name;
      EXPECT_LE(apart, kChange * std::max(changed, kLeastShare * whole)) << role << " " << name;
    }
  }

  static Tensors of_checkpoint(const std::string& run, const std::string& step,
                               const std::string& file) {
    return tensors_of_checkpoint(path(cat(run, "/checkpoints/", step)), file);
  }

  // Of the first update. A tensor whose gradient is rounding alone is held against the whole.
  static void expect_same_gradients(const std::string& a, const std::string& b,
                                    const std::string& role) {
    const Tensors left = of_checkpoint(a, "step-000001", role + ".optimizer"),
                  right = of_checkpoint(b, "step-000001", role + ".optimizer");
    ASSERT_EQ(left.size(), right.size());
    double squares = 0;
    for (const auto& [name, moment] : left)
      if (name.ends_with(".exp_avg")) squares += std::pow(moment.norm().item<double>(), 2);
    ASSERT_GT(squares, 0);
    for (const auto& [name, moment] : left) {
      if (!name.ends_with(".exp_avg")) continue;
      const double norm =
          std::max(moment.norm().item<double>(), kLeastGradient * std::sqrt(squares));
      EXPECT_LE((moment - right.at(name)).norm().item<double>(), kEquivalence * norm) << name;
    }
  }

  // What the updates until a checkpoint changed of the actor, where its moments say that there was
  // a gradient.
  static void expect_same_updates(const std::string& a, const std::string& b,
                                  const std::string& start, const std::string& step) {
    const Tensors before = weights_of(path(start)), left = of_checkpoint(a, step, "actor.weights"),
                  right = of_checkpoint(b, step, "actor.weights"),
                  moments = of_checkpoint(a, step, "actor.optimizer");
    for (const auto& [name, weights] : left) {
      const at::Tensor moment = moments.at(name + ".exp_avg").abs();
      const double rms = moment.norm().item<double>() / std::sqrt(moment.numel());
      const at::Tensor seen = moment > 1e-5 * rms;
      const double changed = ((weights - before.at(name)) * seen).norm().item<double>();
      EXPECT_GT(changed, 0) << step << " " << name;
      EXPECT_LE(((weights - right.at(name)) * seen).norm().item<double>(), kChange * changed)
          << step << " " << name;
    }
  }
};

// Further prompts are drawn alike in every layout: weights for the draws come once, go back to the
// host after them, and samples of all draws are where training wants them.
TEST_F(JobProcess, DrawsFurtherPromptsAsOneProcessDoes) {
  const std::string calls =
      "  generate: {mesh: all, tp: 2}\n  old_logprob: {mesh: 1}\n  ref_logprob: {mesh: all, pp: "
      "2}\n"
      "  update_actor: {mesh: all, pp: 2, micro_batches: 2}\n";
  const std::string roles =
      "roles:\n  actor: {weights: host, optimizer: host, prefetch: true}\n"
      "  reference: {weights: host, when: after_each_call}\n";
  expect_equivalent({"draws-mixed", "dapo", "1x2", calls + roles}, "");
  double most = 0;
  for (const Json& row : metrics("job-draws-mixed"))
    most = std::max(most, row.at("sampling/draws").get<double>());
  EXPECT_GT(most, 1);
}

// Slices are gathered for a copy that one rank has, before the first draw, by ranks that do not
// draw.
TEST_F(JobProcess, SlicesAreThereBeforeTheFirstDraw) {
  expect_equivalent(
      {"draws-slices", "dapo", "1x2",
       "  generate: {mesh: \"0\", dp: 1}\n  old_logprob: {mesh: all, dp: 2, zero: 3}\n"
       "  ref_logprob: {mesh: all, dp: 2}\n  update_actor: {mesh: all, dp: 2, zero: "
       "3}\n"},
      "");
}

// A copy that messages fill is made in a step, by each rank when it comes there.
TEST_F(JobProcess, RanksThatReadForPeersMakeCopiesInAStep) {
  expect_equivalent({"peers",
                     "grpo",
                     "1x2",
                     "  generate: {mesh: \"1\", dp: 1}\n  old_logprob: {mesh: all, dp: 2}\n"
                     "  ref_logprob: {mesh: all, tp: 2}\n  update_actor: {mesh: all, tp: 2}\n",
                     false,
                     {"runtime.load=peers"}},
                    "");
}

TEST_F(JobProcess, EveryLayoutComputesWhatOneProcessDoes) {
  for (const LayoutCase& layout : layouts()) {
    if (layout.full && !full_tier()) continue;
    expect_equivalent(layout, "");
  }
}

// Of generation the new tokens of each replica, which has the samples of a half of the step; of the
// others what each rank was given.
TEST_F(JobProcess, SaysHowEvenTheRanksOfACallWere) {
  const std::string name = "balance";
  const std::string plan =
      write_plan({name, "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, micro_batches: 2")});
  finish(job_command(name, "grpo",
                     {"plan.file=" + plan, "rollout.record=true", "train.total_steps=3"}));
  std::map<int64_t, std::map<int64_t, double>> tokens;  // by step and sample
  for (const Json& row : read_rows(path(name + "/rollouts.jsonl")))
    tokens[row["step"]][row["sample"]] = static_cast<double>(row["response_ids"].size());
  const std::vector<Json> rows = read_rows(path(name + "/metrics.jsonl"));
  ASSERT_EQ(rows.size(), tokens.size());
  auto drawn = tokens.begin();
  for (const Json& row : rows) {
    double halves[2] = {0, 0};
    size_t at = 0;
    for (const auto& [sample, count] : drawn->second)
      halves[2 * at++ / drawn->second.size()] += count;
    ++drawn;
    EXPECT_NEAR(row["perf/imbalance_generate"].get<double>(),
                2 * std::max(halves[0], halves[1]) / (halves[0] + halves[1]), 1e-6);
    for (const char* call : {"old_logprob", "ref_logprob", "update_actor"}) {
      ASSERT_TRUE(row.contains(cat("perf/imbalance_", call))) << row;
      const double uneven = row[cat("perf/imbalance_", call)];
      EXPECT_GE(uneven, 1) << call;
      EXPECT_LT(uneven, 2) << call;
    }
  }
}

// As groups of many ranks are, whatever their size: along a tree, and straight to who needs it.
TEST_F(JobProcess, RanksOverWiresComputeWhatOneProcessDoes) {
  ::setenv("BRAID_MESH_RANKS", "1", 1);
  LayoutCase layout = layout_named("tp2pp2s");
  layout.name = "wires";
  expect_equivalent(layout, "");
  ::unsetenv("BRAID_MESH_RANKS");
}

// More than are in one mesh, so that some groups are over wires and others are not.
TEST_F(JobProcess, TwelveRanksComputeWhatOneProcessDoes) {
  if (!full_tier()) GTEST_SKIP() << "full tier: twelve processes";
  const std::string layout = "dp: 3, tp: 2, pp: 2";
  expect_equivalent({"twelve", "grpo", "1x12", everywhere("grpo", layout, layout)}, "");
}

TEST_F(JobProcess, EveryOrderOfDevicesComputesWhatOneProcessDoes) {
  for (const LayoutCase& layout : orders()) {
    if (layout.full && !full_tier()) continue;
    SCOPED_TRACE(layout.calls);
    expect_equivalent(layout, "");
    if (HasFatalFailure()) return;
  }
  // Heads that share keys, tied embeddings; adapters.
  for (const LayoutCase& layout : orders())
    if (layout.name == "turned" || (full_tier() && layout.name.starts_with("back")))
      for (const char* family : {"qwen2", "lora"}) expect_equivalent(layout, family);
  for (int number = 0; full_tier() && number < 30; ++number)
    expect_equivalent(reordered(random_layout(number)), number % 2 == 0 ? "qwen2" : "");
}

TEST_F(JobProcess, EveryAlgorithmComputesWhatOneProcessDoes) {
  for (const LayoutCase& layout : algorithm_layouts()) {
    if (layout.full && !full_tier()) continue;
    expect_equivalent(layout, "");
    if (full_tier()) expect_equivalent(layout, "lora");
  }
}

// Heads that share keys, biases, norms of queries and keys, norms behind attention, tied
// embeddings, learned positions, windows of some layers, soft caps, joined matrices; a vocabulary
// of 41 words that no number of ranks divides; adapters.
class JobFamily : public JobProcess {
 protected:
  // Two key-value heads that lie in one matrix with the queries.
  static bool cuts_too_small(const LayoutCase& layout) {
    return GetParam() == "phi3" && layout.calls.find("tp: 4") != std::string::npos;
  }

  static void expect_refused(const LayoutCase& layout) {
    SCOPED_TRACE(layout.name);
    std::vector<std::string> more = layout.more;
    more.push_back("plan.file=" + write_plan(layout));
    const Finished run = run_program(
        job_command(cat("refused-", layout.name), layout.algorithm, with_model(GetParam(), more)));
    EXPECT_NE(run.end, "exited with status 0");
    EXPECT_THAT(run.errors, testing::HasSubstr("tensor parallelism over 4 ranks: more ranks than "
                                               "key-value heads"));
  }
};

TEST_P(JobFamily, ComputesWhatOneProcessDoes) {
  if (!full_tier() && GetParam() != "qwen2" && GetParam() != "lora")
    GTEST_SKIP() << "full tier: all layouts of all families";
  for (const LayoutCase& layout : layouts()) {
    if (!full_tier() && layout.name != "mixed") continue;
    cuts_too_small(layout) ? expect_refused(layout) : expect_equivalent(layout, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(All, JobFamily,
                         testing::Values("qwen2", "gpt2", "gemma", "gemma2", "gemma3", "phi3",
                                         "llama3", "mistral", "qwen3", "lora", "lora-some"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(JobProcess, EveryRandomLayoutComputesWhatOneProcessDoes) {
  const int count = full_tier() ? 60 : 2;
  for (int number = 0; number < count; ++number) {
    const LayoutCase layout = random_layout(number);
    SCOPED_TRACE(layout.devices + "\n" + layout.calls);
    expect_equivalent(layout, number % 2 == 0 ? "" : "qwen2");
  }
}

// State that comes layer by layer beside other calls against state that comes before its own.
TEST_F(JobProcess, PrefetchedStatesGiveTheSameBits) {
  std::vector<LayoutCase> cases = {
      {"same", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2")},
      {"sharded", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, zero: 3"), true}};
  for (const LayoutCase& layout : cases) {
    if (layout.full && !full_tier()) continue;
    std::map<bool, std::string> runs;
    for (const bool prefetch : {false, true}) {
      const std::string ahead = prefetch ? ", prefetch: true}\n" : "}\n";
      LayoutCase one = layout;
      one.name = runs[prefetch] = cat("states-", layout.name, prefetch ? "-ahead" : "");
      one.calls +=
          cat("roles:\n  actor: {weights: host, optimizer: host", ahead,
              layout.algorithm == "ppo" ? "  critic: {weights: host, when: after_each_call" + ahead
                                        : "",
              "  reference: {weights: host", ahead);
      if (prefetch) same_kernels(runs[false], one.name);
      finish(job_command(one.name, one.algorithm, {"plan.file=" + write_plan(one)}));
    }
    const Tensors before = weights_of(path(runs[false] + "/export/actor")),
                  after = weights_of(path(runs[true] + "/export/actor"));
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [name, tensor] : before) EXPECT_TRUE(tensor.equal(after.at(name))) << name;
  }
}

// Seven layers in runs of two, one, three and one, of which a stage has two.
TEST_F(JobProcess, RunsOfUnevenLayersComputeWhatOneProcessDoes) {
  const std::string runs = "pp: 2, interleave: 2, stage_layers: \"2,1,3,1\", micro_batches: ";
  LayoutCase layout{"runs", "ppo", "1x2",
                    cat("  generate: {mesh: all, dp: 2}\n  old_logprob: {mesh: all, tp: 2}\n"
                        "  ref_logprob: {mesh: all, pp: 2, stage_layers: \"5,2\"}\n"
                        "  values: {mesh: 1}\n  update_critic: {mesh: all, ",
                        runs, "4}\n  update_actor: {mesh: all, ", runs, "2}\n")};
  expect_equivalent(layout, "qwen2-7");
  if (full_tier()) expect_equivalent(layout, "gpt2-7");
}

// The first stage has nothing to train.
TEST_F(JobProcess, StagesWithoutAdaptersPassGradientsOfNothing) {
  expect_equivalent(layout_named("pp2"), "lora-head");
  if (full_tier()) expect_equivalent(layout_named("interleaved_grid"), "lora-head");
}

// What dropout leaves out does not depend on who computes it.
TEST_F(JobProcess, DropoutLeavesOutTheSameInEveryLayout) {
  const std::set<std::string> quick = {"dp2", "tp2", "pp2"};
  for (const LayoutCase& layout : layouts())
    if (full_tier() || quick.count(layout.name) > 0) expect_equivalent(layout, "lora-dropout");
}

// Groups that ranks and micro-batches cut, and whole samples, against prompts that one process
// computes once.
TEST_F(JobProcess, RanksThatSharePromptsComputeWhatOneProcessDoes) {
  const std::vector<std::string> groups = {"rollout.samples_per_prompt=8",
                                           "rollout.prompts_per_step=2", "train.micro_tokens=64"};
  const auto options = [&](std::vector<std::string> more) {
    more.insert(more.end(), groups.begin(), groups.end());
    return more;
  };
  finish(job_command("groups", "grpo", options({"rollout.record=true"})));
  finish(job_command("groups-start", "grpo",
                     options({"train.total_steps=1", "optim.actor.lr=1e-30"})));
  for (const char* layout : {"dp2", "pp2", "tp2pp2s", "zero1_dp4"})
    for (const char* share : {"auto", "never"}) {
      LayoutCase of_grpo = layout_named(layout);
      if (of_grpo.full && !full_tier()) continue;
      SCOPED_TRACE(cat(layout, " ", share));
      const std::string job = cat("groups-", layout, "-", share);
      same_kernels("groups", job);
      finish(job_command(
          job, "grpo",
          options({"rollout.replay=" + path("groups/rollouts.jsonl"),
                   cat("train.share_prompts=", share), "plan.file=" + write_plan(of_grpo)})));
      expect_same_metrics("groups", job);
      expect_close("groups", job, "groups-start", "actor");
    }
}

TEST_F(JobProcess, StoppedJobGoesOnInOneProcess) {
  const std::string plan = "plan.file=" + write_plan(layout_named("pp2"));
  const auto child = start(job_command("job-stopped", "grpo",
                                       {plan, "train.total_steps=400", "checkpoint.resume=auto"}));
  ASSERT_TRUE(reaches("job-stopped", 2, *child));
  send(*child, SIGTERM);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("stopped by SIGTERM after step"));
  const int64_t done = steps_complete("job-stopped");
  EXPECT_EQ(steps_kept("job-stopped"), done);
  EXPECT_TRUE(path_exists(path("job-stopped/predicted.json")));
  finish(job_command("job-stopped", "grpo",
                     {cat("train.total_steps=", done + 1), "checkpoint.resume=auto"}));
  EXPECT_EQ(steps_complete("job-stopped"), done + 1);
}

// The rank that trains the actor does not hold the critic.
TEST_F(JobProcess, CriticTrainsAloneAtFirstWhereverItIs) {
  const auto run = [](const std::string& name, const std::string& plan) {
    const std::string one = recorded("ppo", "");
    same_kernels(one, name);
    finish(job_command(name, "ppo",
                       {"critic.warmup_steps=2", "train.total_steps=3",
                        "rollout.replay=" + path(one + "/rollouts.jsonl"), plan}));
  };
  run("warm-one", "plan.auto=false");
  run("warm-job", "plan.file=" + write_plan({"warm", "ppo", "1x2",
                                             "  generate: {mesh: all, dp: 2}\n"
                                             "  old_logprob: {mesh: 0}\n  ref_logprob: {mesh: 0}\n"
                                             "  values: {mesh: 1}\n  update_critic: {mesh: 1}\n"
                                             "  update_actor: {mesh: 0}\n"}));
  if (!HasFailure()) expect_same_metrics("warm-one", "warm-job");
}

// A job that goes on has the coefficient that its steps before have left, where the rank that
// computes with it is not the first one, which writes checkpoints, and where several ranks compute
// with it, each for its own samples.
TEST_F(JobProcess, ACoefficientGoesOnWhereverItIsComputed) {
  const std::string one = recorded("ppo", "");
  const auto run = [&](const std::string& name, int steps, const std::string& plan) {
    same_kernels(one, name);
    finish(job_command(
        name, "ppo-adaptive",
        {cat("train.total_steps=", steps), "checkpoint.every_steps=1", "checkpoint.resume=auto",
         "rollout.replay=" + path(one + "/rollouts.jsonl"), plan}));
  };
  run("coefficient-one", 3, "plan.auto=false");
  for (const LayoutCase& job :
       {LayoutCase{"coefficient-apart", "ppo", "1x2",
                   "  generate: {mesh: all, dp: 2}\n"
                   "  old_logprob: {mesh: 0}\n  ref_logprob: {mesh: 0}\n"
                   "  values: {mesh: 1}\n  update_critic: {mesh: 1}\n  update_actor: {mesh: 1}\n"},
        LayoutCase{"coefficient-shared", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2")}}) {
    const std::string plan = "plan.file=" + write_plan(job);
    run(job.name, 2, plan);
    if (!HasFailure()) run(job.name, 3, plan);
    if (HasFailure()) return;
    expect_same_metrics("coefficient-one", job.name);
    const std::vector<Json> rows = metrics(job.name);
    EXPECT_NE(rows[1]["kl/coef"], rows[0]["kl/coef"]);
    EXPECT_NE(rows[2]["kl/coef"], rows[1]["kl/coef"]);
  }
}

// Moments that ranks share are of all of them in a checkpoint: AdamW goes on in one process as it
// does under a plan whose ranks have all of them.
TEST_F(JobProcess, SharedOptimizerStateGoesOnInOneProcess) {
  const std::string one = recorded("grpo", "");
  const std::vector<std::string> adamw = {"optim.actor.name=adamw", "optim.actor.lr=1e-3",
                                          "rollout.replay=" + path(one + "/rollouts.jsonl")};
  const auto run = [&](const std::string& name, std::vector<std::string> options) {
    options.insert(options.begin(), adamw.begin(), adamw.end());
    same_kernels(one, name);
    finish(job_command(name, "grpo", options));
  };
  run("adamw-whole", {});
  const Tensors left = weights_of(path("adamw-whole/export/actor"));
  // The layout of the first three steps and of the last two; "" is one process.
  for (const auto& [first, then] :
       {std::make_pair("zero1_dp4", ""), std::make_pair("zero3_dp3", ""),
        std::make_pair("", "zero3_dp3")}) {
    const std::string name = cat("adamw-", first, "-", then);
    SCOPED_TRACE(name);
    const auto plan = [&](const std::string& layout) {
      return layout.empty() ? "plan.auto=false" : "plan.file=" + write_plan(layout_named(layout));
    };
    run(name, {plan(first), "train.total_steps=3"});
    finish(job_command(name, "grpo",
                       {adamw[0], adamw[1], adamw[2], plan(then), "checkpoint.resume=auto"}));
    EXPECT_EQ(steps_complete(name), 5);
    const Tensors right = weights_of(path(name + "/export/actor"));
    for (const auto& [tensor, values] : left)
      EXPECT_LE((values - right.at(tensor)).norm().item<double>(),
                1e-4 * values.norm().item<double>())
          << tensor;
  }
}

// The gradient of the first update, as its first moments hold it, and what AdamW made of the
// weights in the first and in five. AdamW divides by the gradient's size, so what is nearly zero in
// a tensor may move either way, and is left out.
TEST_F(JobProcess, EveryLayoutHasTheGradientsAndAdamUpdatesOfOneProcess) {
  const std::set<std::string> quick = {"pp2", "zero3"};
  const auto run = [&](const std::string& name, const std::string& algorithm,
                       const std::string& plan) {
    const std::string one = recorded(algorithm, "");
    same_kernels(one, name);
    finish(job_command(
        name, algorithm,
        {"optim.actor.name=adamw", "optim.critic.name=adamw", "optim.actor.lr=1e-3",
         "optim.critic.lr=1e-3", "train.minibatches=1", "checkpoint.every_steps=1",
         "checkpoint.keep_last=5", "rollout.replay=" + path(one + "/rollouts.jsonl"), plan}));
    return name;
  };
  for (const LayoutCase& layout : layouts()) {
    if (!full_tier() && quick.count(layout.name) == 0) continue;
    SCOPED_TRACE(layout.name);
    const std::string one = "adam-one-" + layout.algorithm;
    if (!path_exists(path(one))) run(one, layout.algorithm, "plan.auto=false");
    const std::string job =
        run(cat("adam-job-", layout.name), layout.algorithm, "plan.file=" + write_plan(layout));
    if (HasFailure()) return;
    expect_same_gradients(one, job, "actor");
    for (const char* step : {"step-000001", "step-000005"})
      expect_same_updates(one, job, unchanged(layout.algorithm, "") + "/export/actor", step);
    std::filesystem::remove_all(path(job));
  }
}

// Masters and sums of gradients are f32 whoever owns them: what ranks share changes no more than
// the order of additions does, which moves some weights by one rounding.
TEST_F(JobProcess, NarrowWeightsAreTheSameWhateverRanksShare) {
  const std::string one = recorded("grpo", "");
  const auto run = [&](const std::string& zero) {
    const std::string name = "bf16-" + zero;
    const LayoutCase layout{
        name, "grpo", "1x2",
        everywhere("grpo", "dp: 2", "dp: 2, micro_batches: 2", cat("zero: ", zero))};
    same_kernels(one, name);
    finish(job_command(name, "grpo",
                       {"model.dtype=bf16", "plan.file=" + write_plan(layout),
                        "rollout.replay=" + path(one + "/rollouts.jsonl")}));
    return weights_of(path(name + "/export/actor"));
  };
  const Tensors left = run("0");
  for (const char* zero : {"2", "3"})
    for (const auto& [name, tensor] : run(zero)) {
      const at::Tensor apart = (tensor - left.at(name)).to(at::kFloat);
      EXPECT_LE(apart.norm().item<double>(), 1e-3 * tensor.to(at::kFloat).norm().item<double>())
          << name << " zero " << zero;
    }
}

// Jobs in 16 bits compare what they send with what their ops list, as all jobs here do; they
// generate, also from copies of weights that sequence-parallel calls use, and one of them over a
// vocabulary that ranks share in passes and draws.
TEST_F(JobProcess, NarrowLayoutsSendWhatTheyList) {
  const std::set<std::string> quick = {"mixed", "tp2s_native", "zero3", "tp2"};
  for (const LayoutCase& layout : layouts()) {
    if (!full_tier() && quick.count(layout.name) == 0) continue;
    SCOPED_TRACE(layout.name);
    std::vector<std::string> more =
        with_model(layout.name == "tp2" ? "qwen2-wide" : "", layout.more);
    more.insert(more.end(),
                {"model.dtype=bf16", "train.total_steps=2", "plan.file=" + write_plan(layout)});
    finish(job_command("narrow-" + layout.name, layout.algorithm, more));
  }
}

TEST_F(JobProcess, DeathOfARankEndsTheJobWithAMessage) {
  const std::string plan = "plan.file=" + write_plan(layout_named("dp2"));
  const auto child = start(job_command("job-death", "grpo", {plan, "train.total_steps=4000"}));
  ASSERT_TRUE(reaches("job-death", 2, *child));
  ASSERT_GT(child->pid(), 0);
  const std::vector<pid_t> ranks = children_of(child->pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks.back(), SIGKILL);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("killed by signal 9"));
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
  EXPECT_TRUE(path_exists(path("job-death/report.html")))
      << "what was done is shown: " << end.errors;
}

TEST_F(JobProcess, JobOfAnotherSizeIsRefused) {
  const std::string plan = "plan.file=" + write_plan(layout_named("dp2"));
  std::vector<CommandOutcome> ends(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      ends[rank] = shell(cat("WORLD_SIZE=3 RANK=", rank, " LOCAL_RANK=", rank,
                             " MASTER_ADDR=127.0.0.1 MASTER_PORT=29551"),
                         job_command("job-size", "grpo", {plan}));
    });
  for (std::thread& rank : ranks) rank.join();
  for (const CommandOutcome& end : ends)
    EXPECT_THAT(end.output,
                HasSubstr("error: the plan is for 2 devices, but the environment started 3"));
}

TEST_F(JobProcess, DeviceThatRanksCannotUseIsRefused) {
  const std::string plan = "plan.file=" + write_plan(layout_named("dp2"));
  const CommandOutcome end = shell(
      "",
      job_command("job-device", "grpo",
                  {plan, "device=cuda", "cluster={gpu: h100-80g, nodes: 1, gpus_per_node: 2}"}));
  EXPECT_EQ(end.exit_code, 2) << end.output;
  EXPECT_THAT(end.output, HasSubstr("device: cuda: no CUDA device can be used here"));
  EXPECT_THAT(check_local_devices("cuda:1", 2).message(), HasSubstr("leave the number out"));
}

TEST_F(JobProcess, PlanThatOverrunsMemoryIsRefused) {
  const std::string plan = "plan.file=" + write_plan(layout_named("dp2"));
  const CommandOutcome end =
      shell("", job_command("job-memory", "grpo", {plan, "plan.memory_limit_gib=0.001"}));
  EXPECT_NE(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("plan: device 0 runs out of memory"));
  EXPECT_THAT(end.output, HasSubstr("let 'braid plan' find a plan that fits"));
  EXPECT_FALSE(path_exists(path("job-memory/metrics.jsonl")));
}

TEST_F(JobProcess, SearchesAPlanThatItExecutes) {
  const std::string cluster = "cluster={gpu: this-machine, nodes: 1, gpus_per_node: 2}";
  const std::vector<std::string> evaluates = {"eval.every_steps=1", "data.eval=task:sort_digits"};
  for (const auto& [kind, more] : {std::make_pair("ppo", std::vector<std::string>()),
                                   std::make_pair("ppo-lora", std::vector<std::string>()),
                                   std::make_pair("grpo", evaluates)}) {
    const std::string name = cat("job-auto-", kind);
    std::vector<std::string> options = {"plan.auto=true", cluster, "train.total_steps=2"};
    options.insert(options.end(), more.begin(), more.end());
    finish(job_command(name, kind, options));
    if (HasFatalFailure()) return;
    EXPECT_THAT(*read_file(path(name + "/plan.yaml")), HasSubstr("devices: 1x2"));
    const Json predicted = *parse_json(*read_file(path(name + "/predicted.json")), "");
    EXPECT_EQ(predicted["ranks"].size(), 2u);
  }
  const CommandOutcome none = shell("", job_command("job-auto-none", "ppo", {"plan.auto=true"}));
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_THAT(none.output, HasSubstr("plan.auto: cluster is missing"));
  const CommandOutcome both =
      shell("", job_command("job-auto-both", "ppo", {"plan.auto=true", cluster, "plan.file=p"}));
  EXPECT_THAT(both.output, HasSubstr("plan.auto: plan.file states a plan already"));
}

// A placement says where calls run, and nothing of what they compute.
TEST_F(JobProcess, EveryPlacementTrainsToTheWeightsOfOneProcess) {
  for (const std::string algorithm : {"ppo", "grpo"})
    for (const std::string& name : placement_names())
      for (const int ranks : {4, 2, 8}) {
        const bool quick = ranks == 4 && (name == "interleaved" || name == "disaggregated" ||
                                          (name == "standalone" && algorithm == "ppo"));
        if (!full_tier() && !quick) continue;
        const std::string job = cat("placed-", algorithm, "-", name, ranks);
        SCOPED_TRACE(job);
        if (ranks == 2 && name == "standalone" && algorithm == "ppo") continue;  // three parts
        std::vector<std::string> more = {"placement=" + name,
                                         cat("cluster={nodes: 1, gpus_per_node: ", ranks, "}")};
        // A mini-batch has four sequences.
        if (ranks == 8)
          more.push_back(algorithm == "ppo"
                             ? "parallel={update_actor: {tp: 2}, update_critic: {tp: 2}}"
                             : "parallel={update_actor: {tp: 2}}");
        expect_equivalent_run(algorithm, "qwen2", job, more);
        if (HasFatalFailure()) return;
      }
}

TEST_F(JobProcess, SearchesWithinAPlacement) {
  const std::string cluster = "cluster={nodes: 1, gpus_per_node: 2}";
  const auto plan_of = [&](const std::string& name, std::vector<std::string> options) {
    options.insert(options.end(), {cluster, "train.total_steps=1"});
    finish(job_command(name, "ppo", options));
    return *parse_plan(*read_file(path(name + "/plan.yaml")), name);
  };
  const ExecutionPlan apart =
      plan_of("job-auto-apart", {"plan.auto=true", "placement=disaggregated"});
  EXPECT_EQ(mesh_text(call_plan(apart, "update_actor").mesh), "0");
  EXPECT_EQ(mesh_text(call_plan(apart, "generate").mesh), "1");
  const ExecutionPlan one =
      plan_of("job-auto-call", {"plan.auto=true", "placement={generate: 1, ref_logprob: 0.5}"});
  EXPECT_EQ(mesh_text(call_plan(one, "generate").mesh), "1");
  EXPECT_EQ(mesh_text(call_plan(one, "ref_logprob").mesh), "0");
  plan_of("job-auto-placement", {"placement=auto"});
  const CommandOutcome list =
      shell("", job_command("job-auto-list", "ppo",
                            {"plan.auto=true", "cluster={nodes: 1, gpus_per_node: 3}",
                             "placement={generate: \"0,2\"}"}));
  EXPECT_EQ(list.exit_code, 2) << list.output;
  EXPECT_THAT(list.output, HasSubstr("plan.auto: placement: call generate has the devices 0,2"));
}

TEST_F(JobProcess, SearchesPlansOfEveryAlgorithmThatItExecutes) {
  const std::set<std::string> quick = {"distill", "remax", "kto", "dpo"};
  for (const std::string& algorithm : algorithm_names()) {
    if (quick.count(algorithm) == 0 && !full_tier()) continue;
    SCOPED_TRACE(algorithm);
    const std::string name = "job-auto-one-" + algorithm;
    finish(job_command(name, algorithm,
                       {"plan.auto=true", "train.total_steps=1",
                        "cluster={gpu: this-machine, nodes: 1, gpus_per_node: 2}"}));
    if (HasFatalFailure()) return;
    const std::string plan = *read_file(path(name + "/plan.yaml"));
    EXPECT_THAT(plan, AllOf(HasSubstr("graph: " + algorithm), HasSubstr("devices: 1x2")));
    const Graph graph = *make_graph(default_options(algorithm));
    for (const Call& call : graph.calls)
      EXPECT_EQ(plan.find(cat("  ", call.name, ":")) != std::string::npos, uses_model(call))
          << call.name;
    const Json predicted = *parse_json(*read_file(path(name + "/predicted.json")), "");
    EXPECT_EQ(predicted["ranks"].size(), 2u);
    EXPECT_GT(predicted["step"]["measured_s"].get<double>(), 0);
    EXPECT_GT(predicted["step"]["predicted_s"].get<double>(), 0);
  }
}

TEST_F(JobProcess, ExampleOfAClusterRuns) {
  const CommandOutcome end =
      run_shell(cat("cd ", BRAID_SOURCE_DIR, " && examples/cluster/one_machine.sh ", BRAID_BINARY,
                    " run.dir=", path("job-example"), " train.total_steps=5 2>&1"));
  ASSERT_EQ(end.exit_code, 0) << end.output;
  // Whether the plan is still the best, once steps were measured.
  EXPECT_THAT(end.output, HasSubstr("under measured costs"));
  const Json predicted = *parse_json(*read_file(path("job-example/cluster/predicted.json")), "");
  EXPECT_EQ(predicted["ranks"].size(), 2u);
  EXPECT_GT(predicted["step"]["measured_s"].get<double>(), 0);
  EXPECT_GT(predicted["step"]["predicted_s"].get<double>(), 0);
  for (const Json& rank : predicted["ranks"])
    EXPECT_GT(rank["measured_bytes"].get<double>(), 1 << 20) << predicted;
}

TEST_F(JobProcess, ExampleOfPipelinesRuns) {
  const CommandOutcome end =
      run_shell(cat("cd ", BRAID_SOURCE_DIR, " && ", BRAID_BINARY,
                    " train examples/cluster/grpo.yaml train.total_steps=2 "
                    "plan.file=examples/cluster/pipelines.plan.yaml run.dir=",
                    path("job-pipelines"), " 2>&1"));
  ASSERT_EQ(end.exit_code, 0) << end.output;
  const Json predicted = *parse_json(*read_file(path("job-pipelines/cluster/predicted.json")), "");
  EXPECT_EQ(predicted["ranks"].size(), 4u);
}

}  // namespace
}  // namespace braid
