// Jobs of several ranks whose reference moves (reference.sync_every, reference.ema) against the
// same run in one process. BRAID_TEST_FULL=1 runs every layout.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/job_testing.h"

namespace braid {
namespace {

class JobReference : public JobRun {
 protected:
  static std::vector<std::string> moving(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"reference.sync_every=2", "reference.ema=0.25"});
    return more;
  }

  // A run in one process that records what it generates, and keeps its last checkpoint.
  static std::string one(const std::string& algorithm) {
    const std::string name = "moving-one-" + algorithm;
    std::vector<std::string> more;
    if (generates(*make_graph(default_options(algorithm)))) more.push_back("rollout.record=true");
    if (!path_exists(path(name + "/export")))
      finish(job_command(name, algorithm, moving(std::move(more))));
    return name;
  }

  static std::vector<std::string> replaying(const std::string& algorithm, const LayoutCase& layout,
                                            std::vector<std::string> more = {}) {
    if (generates(*make_graph(default_options(algorithm))))
      more.push_back("rollout.replay=" + path(one(algorithm) + "/rollouts.jsonl"));
    more.push_back("plan.file=" + write_plan(layout));
    return moving(std::move(more));
  }

  static Tensors reference_of(const std::string& run, const std::string& group = "weights") {
    return tensors_of_checkpoint(path(run + "/checkpoints/step-000005"), "reference." + group);
  }

  static void expect_close(const Tensors& left, const Tensors& right) {
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left)
      EXPECT_LE((tensor - right.at(name)).norm().item<double>(),
                kEquivalence * std::max(tensor.norm().item<double>(), 1e-4))
          << name;
  }

  static void expect_equal(const Tensors& left, const Tensors& right) {
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left) EXPECT_TRUE(tensor.equal(right.at(name))) << name;
  }
};

std::vector<LayoutCase> reference_layouts() {
  std::vector<LayoutCase> out = {
      {"ref_dp2", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2"), true},
      {"ref_tp2", "grpo", "1x2", everywhere("grpo", "tp: 2", "tp: 2"), true},
      {"ref_pp2", "grpo", "1x2", everywhere("grpo", "dp: 2", "pp: 2, micro_batches: 2"), true},
      {"ref_zero3", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2, zero: 3")},
      {"ref_mixed", "ppo", "1x2",
       "  generate: {mesh: all, tp: 2}\n  old_logprob: {mesh: all, dp: 2}\n"
       "  ref_logprob: {mesh: all, pp: 2}\n  values: {mesh: all, tp: 2}\n"
       "  update_critic: {mesh: all, pp: 2}\n  update_actor: {mesh: all, dp: 2}\n"},
      {"ref_zero3_mixed", "grpo", "1x4",
       "  generate: {mesh: all, tp: 2, dp: 2}\n  old_logprob: {mesh: 1-3, dp: 3, zero: 3}\n"
       "  ref_logprob: {mesh: all, dp: 2, pp: 2, zero: 3}\n"
       "  update_actor: {mesh: all, dp: 2, tp: 2, zero: 1}\n"},
      {"ref_host", "grpo", "1x2",
       everywhere("grpo", "dp: 2", "tp: 2") +
           "roles:\n  actor: {weights: host, optimizer: host}\n" +
           "  reference: {weights: host, prefetch: true}\n"},
      {"ref_order", "ppo", "1x4",
       "  generate: {mesh: \"2,0,3,1\", dp: 2, tp: 2}\n"
       "  old_logprob: {mesh: \"3,1,2,0\", tp: 2, pp: 2}\n"
       "  ref_logprob: {mesh: \"1,3\", tp: 2}\n  values: {mesh: \"2,3,0\", dp: 3}\n"
       "  update_critic: {mesh: \"3,2,1,0\", dp: 2, pp: 2, micro_batches: 2, zero: 2}\n"
       "  update_actor: {mesh: \"1,0,3,2\", tp: 2, pp: 2, micro_batches: 2}\n",
       true},
      // Calls of one reference in two layouts, of which the run moves both.
      {"ref_kto", "kto", "1x2",
       "  mismatched_logprob: {mesh: all, dp: 2}\n  mismatched_ref_logprob: {mesh: all, tp: 2}\n"
       "  ref_logprob: {mesh: all, pp: 2}\n  update_actor: {mesh: all, dp: 2, zero: 1}\n"},
      {"ref_dpo", "dpo", "1x2", everywhere("dpo", "dp: 2", "pp: 2, micro_batches: 2"), true}};
  return out;
}

TEST_F(JobReference, EveryLayoutMovesItAsOneProcessDoes) {
  for (const LayoutCase& layout : reference_layouts()) {
    if (layout.full && !full_tier()) continue;
    SCOPED_TRACE(layout.name);
    const std::string whole = one(layout.algorithm), job = "job-" + layout.name;
    same_kernels(whole, job);
    finish(job_command(job, layout.algorithm, replaying(layout.algorithm, layout)));
    if (HasFatalFailure()) return;
    expect_same_metrics(whole, job);
    expect_close(reference_of(whole), reference_of(job));
  }
}

// Where every call has one rank, and the actor's is not the reference's, nothing is summed in
// another order: what comes over is the same bits.
TEST_F(JobReference, OnRanksOfItsOwnItHasTheBitsOfOneProcess) {
  const LayoutCase layout{
      "ref_disjoint", "ppo", "1x2",
      "  generate: {mesh: 1}\n  old_logprob: {mesh: 1}\n  ref_logprob: {mesh: 0}\n"
      "  values: {mesh: 0}\n  update_critic: {mesh: 0}\n  update_actor: {mesh: 1}\n"};
  for (const std::string dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const std::string whole = one("ppo"), single = "bits-one-" + dtype, job = "bits-job-" + dtype;
    const std::vector<std::string> more = {"model.dtype=" + dtype};
    const LayoutCase alone{"ref_alone", "ppo", "1x1", everywhere("ppo", "dp: 1", "dp: 1")};
    for (const auto& [name, plan] : {std::pair(single, &alone), std::pair(job, &layout)}) {
      same_kernels(whole, name);
      finish(job_command(name, "ppo", replaying("ppo", *plan, more)));
    }
    if (HasFatalFailure()) return;
    expect_equal(reference_of(single), reference_of(job));
    if (dtype == "bf16")
      expect_equal(reference_of(single, "optimizer"), reference_of(job, "optimizer"));
  }
}

// A job that is left between two moves goes on under its own plan with the same bits, and under
// another, in slices, no farther from the job that was not left than one that had the other plan
// from its first step: how far bf16 rounds apart depends on the processor.
TEST_F(JobReference, GoesOnUnderTheSamePlanAndAnother) {
  const LayoutCase sliced{"ref_sliced", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2, zero: 3")},
      cut{"ref_cut", "ppo", "1x2", everywhere("ppo", "tp: 2", "tp: 2")};
  const std::vector<std::string> narrow = {"model.dtype=bf16"};
  const auto run = [&](const std::string& name, const LayoutCase& layout,
                       std::vector<std::string> more) {
    more.insert(more.end(), narrow.begin(), narrow.end());
    same_kernels(one("ppo"), name);
    finish(job_command(name, "ppo", replaying("ppo", layout, std::move(more))));
  };
  run("left-never", sliced, {});
  run("left-cut", cut, {});
  for (const auto& [then, exact] : {std::pair(&sliced, true), std::pair(&cut, false)}) {
    const std::string name = "left-" + then->name;
    SCOPED_TRACE(name);
    run(name, sliced, {"train.total_steps=3"});
    run(name, *then, {"checkpoint.resume=auto"});
    if (HasFatalFailure()) return;
    EXPECT_EQ(steps_complete(name), 5);
    const Tensors left = reference_of("left-never", "optimizer"),
                  right = reference_of(name, "optimizer");
    if (exact) {
      expect_equal(left, right);
      expect_equal(reference_of("left-never"), reference_of(name));
      continue;
    }
    ASSERT_EQ(left.size(), right.size());
    const Tensors other = reference_of("left-cut", "optimizer");
    for (const auto& [tensor, values] : left)  // of weights in 16 bits
      EXPECT_LE(
          (values - right.at(tensor)).norm().item<double>(),
          1e-3 * values.norm().item<double>() + (values - other.at(tensor)).norm().item<double>())
          << tensor;
  }
}

// A rank that dies while weights come over ends the job, which goes on from its last checkpoint to
// the bits of one that nobody touched: a half-moved reference is in none.
TEST_F(JobReference, DeathWithinAMoveLosesNothing) {
  if (!full_tier()) GTEST_SKIP() << "a minute of training";
  const LayoutCase layout{"ref_death", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2, zero: 3")};
  const auto job = [&](const std::string& name) {
    same_kernels(one("ppo"), name);
    return job_command(name, "ppo",
                       replaying("ppo", layout,
                                 {"checkpoint.every_steps=1", "checkpoint.keep_last=9",
                                  "checkpoint.resume=auto"}));
  };
  finish(job("death-never"));
  const auto child = start(job("death-within"));
  ASSERT_TRUE(reaches("death-within", 2, *child));
  const std::vector<pid_t> ranks = children_of(child->pid());
  ASSERT_EQ(ranks.size(), 2u);
  WatchedRank watched{ranks.back(), {}};
  ASSERT_TRUE(watched.stop_at(
      [](const std::string& at) { return at.find("call sync_reference") != std::string::npos; },
      *child));
  ::kill(ranks.back(), SIGKILL);
  EXPECT_EQ(ending(*child).end, "exited with status 1");
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
  EXPECT_LT(steps_complete("death-within"), 5);
  finish(job("death-within"));
  if (HasFatalFailure()) return;
  expect_equal(reference_of("death-never"), reference_of("death-within"));
  EXPECT_EQ(metrics("death-never"), metrics("death-within"));
}

TEST_F(JobReference, OneOfOtherSizesIsRefusedByItsKey) {
  const std::string whole = one("ppo");
  const CommandOutcome end = shell(
      "", job_command(
              "other-sizes", "ppo",
              with_model("qwen2", moving({"plan.auto=false",
                                          "reference.path=" + path(whole + "/export/actor")}))));
  EXPECT_NE(end.exit_code, 0);
  EXPECT_THAT(end.output, testing::HasSubstr("reference"));
  EXPECT_THAT(end.output, testing::HasSubstr("sync_every"));
}

}  // namespace
}  // namespace braid
