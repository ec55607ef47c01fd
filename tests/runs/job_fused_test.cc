// Jobs whose updates of actor and critic are fused, against the same plan without: bit for bit.
// BRAID_TEST_FULL=1 runs every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

struct FusedCase {
  std::string name, devices;
  std::string actor, critic;  // the layouts of their updates
  std::string family = {};    // of the model, as with_model() has it
  bool full = false;          // in the full tier alone
  std::string roles = {};     // lines below `roles:`
  std::vector<std::string> options = {};
  std::string others = {};  // the layout of all other calls; "" has replicas of whole models
};

std::vector<FusedCase> fused_cases() {
  const std::string recompute = ", recompute: selective";
  return {
      {"opposite", "1x2", "mesh: \"0,1\", pp: 2, micro_batches: 4",
       "mesh: \"1,0\", pp: 2, micro_batches: 4"},
      {"unequal", "1x2", "mesh: \"0,1\", pp: 2, micro_batches: 4",
       "mesh: \"0,1\", pp: 2, micro_batches: 2, stage_layers: \"1,3\"", "lora"},
      {"same", "1x2", "mesh: \"0,1\", pp: 2, micro_batches: 4",
       "mesh: \"0,1\", pp: 2, micro_batches: 4" + recompute, "", true},
      {"interleaved", "1x2", "mesh: \"0,1\", pp: 2, micro_batches: 4, interleave: 2",
       "mesh: \"1,0\", pp: 2, micro_batches: 2, interleave: 2", "", true},
      {"host", "1x2", "mesh: \"0,1\", pp: 2, micro_batches: 2",
       "mesh: \"1,0\", pp: 2, micro_batches: 4", "", true,
       "  actor: {weights: host, optimizer: host, prefetch: true}\n"
       "  critic: {weights: host, optimizer: host, when: after_each_call}\n"},
      {"dropout", "1x2", "mesh: \"0,1\", pp: 2, micro_batches: 4",
       "mesh: \"1,0\", pp: 2, micro_batches: 4", "lora-dropout", true},
      {"bf16",
       "1x2",
       "mesh: \"0,1\", pp: 2, micro_batches: 4",
       "mesh: \"1,0\", pp: 2, micro_batches: 2",
       "",
       true,
       "",
       {"model.dtype=bf16"}},
      {"tied", "1x2", "mesh: \"0,1\", pp: 2, micro_batches: 4",
       "mesh: \"1,0\", pp: 2, micro_batches: 4", "qwen2", true},
      {"copies", "1x4", "mesh: 0-3, pp: 4, micro_batches: 4",
       "mesh: \"1,3,0,2\", dp: 2, pp: 2, micro_batches: 2", "", true},
      {"tp2", "1x4", "mesh: 0-3, tp: 2, pp: 2, micro_batches: 4",
       "mesh: \"2,3,0,1\", tp: 2, pp: 2, micro_batches: 2, sequence_parallel: true", "", true},
      {"groups", "1x4", "mesh: 0-3, dp: 2, pp: 2, micro_batches: 2",
       "mesh: \"2,3,0,1\", dp: 2, pp: 2, micro_batches: 2, zero: 1", "", true},
      {"uneven", "1x4", "mesh: 0-3, pp: 4, micro_batches: 2",
       "mesh: \"3,2,1,0\", pp: 4, micro_batches: 4, recompute: full", "lora", true},
      {"tp_sizes", "1x8", "mesh: 0-7, tp: 4, pp: 2, micro_batches: 4",
       "mesh: \"4,5,6,7,0,1,2,3\", dp: 2, tp: 2, pp: 2, micro_batches: 2", "", true},
      {"eight", "1x8", "mesh: 0-7, tp: 2, pp: 4, micro_batches: 4",
       "mesh: \"2,3,6,7,0,1,4,5\", dp: 2, tp: 2, pp: 2, micro_batches: 2, zero: 1", "", true},
      {"eight_lora", "1x8", "mesh: 0-7, dp: 2, pp: 4, micro_batches: 2",
       "mesh: \"6,7,4,5,2,3,0,1\", dp: 2, pp: 4, micro_batches: 2", "lora", true},
  };
}

class JobFused : public JobRun {
 protected:
  // The case with the passes of its updates fused, or those of one after those of the other.
  static std::string plan_of(const FusedCase& of, bool fused) {
    const int devices = std::stoi(of.devices.substr(2));
    const std::string all = !of.others.empty() ? cat("{", of.others, "}\n")
                                               : cat("{mesh: all, dp: ", std::min(devices, 4),
                                                     devices == 8 ? ", tp: 2}\n" : "}\n");
    std::string text;
    for (const char* call : {"generate", "old_logprob", "ref_logprob", "values"})
      text += cat("  ", call, ": ", all);
    text += cat("  update_actor: {", of.actor, "}\n  update_critic: {", of.critic, "}\n");
    if (!of.roles.empty()) text += "roles:\n" + of.roles;
    if (fused) text += "fusion: {train_schedules: true, units: 2}\n";
    return "plan.file=" +
           write_plan({cat("fused-", of.name, fused ? "-together" : ""), "ppo", of.devices, text});
  }

  // Steps in which every weight of both models learns, replayed from a run in one process.
  static std::string run(const FusedCase& of, bool fused, const std::vector<std::string>& more = {},
                         const std::string& suffix = "") {
    const std::string one = recorded("ppo", of.family);
    const std::string name = cat("fused-", of.name, fused ? "-together" : "-apart", suffix);
    same_kernels(one, name);
    std::vector<std::string> options = {plan_of(of, fused),
                                        "optim.actor.name=adamw",
                                        "optim.critic.name=adamw",
                                        "optim.actor.lr=1e-3",
                                        "optim.critic.lr=1e-3",
                                        "checkpoint.every_steps=5",
                                        "rollout.replay=" + path(one + "/rollouts.jsonl")};
    options.insert(options.end(), of.options.begin(), of.options.end());
    options.insert(options.end(), more.begin(), more.end());
    finish(job_command(name, "ppo", with_model(of.family, options)));
    return name;
  }

  // Weights, moments and metrics.
  static void expect_same_bits(const std::string& a, const std::string& b,
                               const std::string& step = "step-000005") {
    std::map<std::string, std::string> left, right;
    for (auto* side : {&left, &right})
      for (const auto& [file, hash] :
           hashes(path(cat(side == &left ? a : b, "/checkpoints/", step))))
        if (file.ends_with(".safetensors")) (*side)[file] = hash;
    EXPECT_GE(left.size(), 4u);  // weights and moments of both models
    EXPECT_EQ(left, right);
    EXPECT_EQ(metrics(a), metrics(b));
  }
};

TEST_F(JobFused, FusedUpdatesHaveTheBitsOfOnesApart) {
  for (const FusedCase& of : fused_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string apart = run(of, false), fused = run(of, true);
    if (HasFatalFailure()) return;
    expect_same_bits(apart, fused);
  }
}

// The actor stops at the first divergence while the critic goes on; or waits while the critic
// warms up.
TEST_F(JobFused, OneOfTheTwoMayEndBeforeTheOther) {
  const FusedCase of = fused_cases().front();
  for (const std::string option : {"algorithm.stop_kl=1e-9", "critic.warmup_steps=2"}) {
    if (option.starts_with("critic") && !full_tier()) continue;
    SCOPED_TRACE(option);
    const std::vector<std::string> more = {option, "train.epochs_per_rollout=2"};
    const std::string suffix = option.substr(0, 6);
    expect_same_bits(run(of, false, more, suffix), run(of, true, more, suffix));
  }
}

// Where both do not fit beside each other they run apart: said once, and the bits are the same.
TEST_F(JobFused, ShortMemoryRunsThemApart) {
  FusedCase of = fused_cases().front();
  of.name = "short";
  // Passes take the most of a step: no whole model for generation, no moments (the export at the
  // end gathers weights on a rank), and many samples in a micro-batch.
  of.others = "mesh: \"0,1\", pp: 2";
  const auto run = [&](const std::string& name, bool fused, double limit_gib) {
    return shell("", job_command(name, "ppo",
                                 {plan_of(of, fused), "train.rehearse=false", "train.minibatches=1",
                                  "rollout.prompts_per_step=64", "train.total_steps=2",
                                  cat("train.memory_limit_gib=", limit_gib)}));
  };
  const auto peak = [](const std::string& name) {
    const Json predicted = *parse_json(*read_file(path(name + "/predicted.json")), "");
    double most = 0;
    for (const Json& rank : predicted["ranks"])
      most = std::max(most, rank["measured_bytes"].get<double>());
    return most;
  };
  const double ample_gib = 1;
  const CommandOutcome first = run("fused-short-apart", false, ample_gib);
  ASSERT_EQ(first.exit_code, 0) << first.output;
  same_kernels("fused-short-apart", "fused-short-together");
  const CommandOutcome second = run("fused-short-together", true, ample_gib);
  ASSERT_EQ(second.exit_code, 0) << second.output;
  ASSERT_GT(peak("fused-short-together"), 1.02 * peak("fused-short-apart"));
  const std::string said = "from here on their passes run one after the other";
  // Passes declare somewhat more than they are measured to take: from what fused ones took, the
  // limit comes down until both do not fit.
  std::string output, name;
  for (int part = 0; part < 10 && output.find(said) == std::string::npos; ++part) {
    const double bytes = peak("fused-short-together") * (1.04 - 0.01 * part);
    name = cat("fused-short-limited-", part);
    same_kernels("fused-short-apart", name);
    const CommandOutcome end = run(name, true, bytes / (int64_t{1} << 30));
    output = end.output;
    ASSERT_EQ(end.exit_code, 0) << output;
  }
  ASSERT_THAT(output, HasSubstr(said));
  EXPECT_EQ(output.find(said), output.rfind(said)) << "said once";
  EXPECT_THAT(output, testing::Not(HasSubstr("it goes on with micro-batches")));
  for (const char* role : {"actor", "critic"}) {
    const std::string file = cat("/export/", role, "/model.safetensors");
    EXPECT_TRUE(*read_file(path("fused-short-apart" + file)) == *read_file(path(name + file)))
        << role;
  }
}

TEST_F(JobFused, DeathOfARankEndsTheJob) {
  FusedCase of = fused_cases().front();
  const auto child =
      start(job_command("fused-death", "ppo", {plan_of(of, true), "train.total_steps=4000"}));
  ASSERT_TRUE(reaches("fused-death", 2, *child));
  const std::vector<pid_t> ranks = children_of(child->pid());
  ASSERT_EQ(ranks.size(), 2u);
  WatchedRank watched{ranks.back(), {}};
  ASSERT_TRUE(watched.stop_at(
      [](const std::string& at) { return at.find("(passes)") != std::string::npos; }, *child));
  ::kill(ranks.back(), SIGKILL);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("killed by signal 9"));
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "an orphan";
}

// A job that was stopped goes on from its checkpoint, fused or in one process.
TEST_F(JobFused, StoppedJobGoesOn) {
  const FusedCase of = fused_cases().front();
  const std::string whole =
      run(of, true, {"checkpoint.every_steps=1", "checkpoint.keep_last=9"}, "-w");
  const std::string name =
      run(of, true, {"train.total_steps=3", "checkpoint.every_steps=1"}, "-stopped");
  if (HasFatalFailure()) return;
  // run() would begin anew.
  std::vector<std::string> options = {
      plan_of(of, true),
      "optim.actor.name=adamw",
      "optim.critic.name=adamw",
      "optim.actor.lr=1e-3",
      "optim.critic.lr=1e-3",
      "checkpoint.resume=auto",
      "rollout.replay=" + path(recorded("ppo", "") + "/rollouts.jsonl")};
  finish(job_command(name, "ppo", options));
  EXPECT_EQ(steps_complete(name), 5);
  for (const char* role : {"actor", "critic"}) {
    const std::string file = cat("/export/", role, "/model.safetensors");
    EXPECT_EQ(*read_file(path(whole + file)), *read_file(path(name + file))) << role;
  }
}

}  // namespace
}  // namespace braid
