// Jobs of several ranks whose actor is the critic too (critic.shared_trunk) against the same run in
// one process. BRAID_TEST_FULL=1 runs every layout.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/job_testing.h"

namespace braid {
namespace {

// The lines of a plan in which every call has one layout.
std::string trunk(const std::string& generate, const std::string& passes,
                  const std::string& trains = "") {
  std::string out = cat("  generate: {mesh: all, ", generate, "}\n");
  for (const char* call : {"old_logprob", "ref_logprob", "values"})
    out += cat("  ", call, ": {mesh: all, ", passes, "}\n");
  return out +
         cat("  update_actor: {mesh: all, ", passes, trains.empty() ? "" : ", ", trains, "}\n");
}

std::vector<LayoutCase> trunk_layouts() {
  return {{"trunk_dp2", "ppo", "1x2", trunk("dp: 2", "dp: 2"), true},
          {"trunk_tp2", "ppo", "1x2", trunk("tp: 2", "tp: 2")},
          {"trunk_tp2s", "ppo", "1x2", trunk("tp: 2", "tp: 2, sequence_parallel: true"), true},
          {"trunk_pp2", "ppo", "1x2", trunk("dp: 2", "pp: 2, micro_batches: 2")},
          {"trunk_zero3", "ppo", "1x2", trunk("dp: 2", "dp: 2, zero: 3")},
          {"trunk_zero2", "ppo", "1x2", trunk("dp: 2", "dp: 2, micro_batches: 2", "zero: 2"), true},
          {"trunk_mixed", "ppo", "1x2",
           "  generate: {mesh: all, tp: 2}\n  old_logprob: {mesh: all, dp: 2}\n"
           "  ref_logprob: {mesh: all, pp: 2}\n  values: {mesh: 1}\n"
           "  update_actor: {mesh: all, pp: 2, micro_batches: 2}\n"},
          {"trunk_grid", "ppo", "1x8",
           trunk("dp: 4, tp: 2", "dp: 2, tp: 2, pp: 2, micro_batches: 2", "zero: 1"), true},
          {"trunk_host", "ppo", "1x2",
           trunk("dp: 2", "tp: 2") + "roles:\n  actor: {weights: host, optimizer: host}\n", true}};
}

class JobTrunk : public JobRun {
 protected:
  static std::vector<std::string> with_trunk(const std::string& family,
                                             std::vector<std::string> more) {
    more.push_back("critic.shared_trunk=true");
    return with_model(family, std::move(more));
  }

  static std::string one(const std::string& family) {
    const std::string name = "trunk-one-" + family;
    if (!path_exists(path(name + "/export")))
      finish(job_command(name, "ppo", with_trunk(family, {"rollout.record=true"})));
    return name;
  }

  static void expect_equivalent(const LayoutCase& layout, const std::string& family) {
    SCOPED_TRACE(cat(layout.name, " ", family));
    const std::string whole = one(family), job = cat("job-", layout.name, family);
    same_kernels(whole, job);
    finish(job_command(job, "ppo",
                       with_trunk(family, {"plan.file=" + write_plan(layout),
                                           "rollout.replay=" + path(whole + "/rollouts.jsonl")})));
    if (HasFatalFailure()) return;
    expect_same_metrics(whole, job);
    const Tensors left = weights_of(path(whole + "/export/actor")),
                  right = weights_of(path(job + "/export/actor"));
    ASSERT_EQ(left.size(), right.size());
    EXPECT_EQ(left.count("score.weight"), 1u);
    for (const auto& [name, tensor] : left)
      EXPECT_LE((tensor - right.at(name)).norm().item<double>(),
                kEquivalence * std::max(tensor.norm().item<double>(), 1e-4))
          << name;
  }
};

TEST_F(JobTrunk, EveryLayoutComputesWhatOneProcessDoes) {
  for (const LayoutCase& layout : trunk_layouts()) {
    if (layout.full && !full_tier()) continue;
    expect_equivalent(layout, "");
  }
}

// Tied embeddings; adapters beside the head.
TEST_F(JobTrunk, EveryFamilyComputesWhatOneProcessDoes) {
  for (const LayoutCase& layout : trunk_layouts())
    for (const char* family : {"qwen2", "lora"})
      if (full_tier() || layout.name == "trunk_mixed") expect_equivalent(layout, family);
}

// A job that is left goes on in one process.
TEST_F(JobTrunk, StoppedJobGoesOnInOneProcess) {
  const std::string whole = one(""), job = "trunk-left";
  const std::string replay = "rollout.replay=" + path(whole + "/rollouts.jsonl");
  const LayoutCase sliced{"trunk_sliced", "ppo", "1x2", trunk("dp: 2", "dp: 2, zero: 3")};
  same_kernels(whole, job);
  finish(job_command(
      job, "ppo",
      with_trunk("", {"plan.file=" + write_plan(sliced), replay, "train.total_steps=3"})));
  finish(job_command(job, "ppo", with_trunk("", {replay, "checkpoint.resume=auto"})));
  if (!HasFatalFailure()) expect_same_metrics(whole, job);
}

TEST_F(JobTrunk, SearchesAPlanThatItExecutes) {
  finish(job_command("trunk-auto", "ppo",
                     with_trunk("", {"plan.auto=true", "train.total_steps=1",
                                     "cluster={gpu: this-machine, nodes: 1, gpus_per_node: 2}"})));
}

}  // namespace
}  // namespace braid
