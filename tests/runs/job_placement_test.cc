// Jobs under placements that have names: what they train, which bits separate devices change (none,
// where each call keeps its layout), and how many bytes of weights and optimizer a rank holds.
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/placement.h"
#include "runs/job_testing.h"

namespace braid {
namespace {

class JobPlacement : public JobRun {
 protected:
  static void expect_same_bits(const std::string& a, const std::string& b,
                               const std::string& role) {
    const Tensors left = weights_of(path(a + "/export/" + role)),
                  right = weights_of(path(b + "/export/" + role));
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left)
      EXPECT_TRUE(tensor.equal(right.at(name))) << role << " " << name;
  }

  // By rank what each owner of memory held at most, in bytes, in the last step of a short run; on
  // four ranks, in f32, with AdamW.
  static std::vector<std::map<std::string, int64_t>> held_under(
      const std::string& job, const std::vector<std::string>& options) {
    std::vector<std::string> more = {"cluster={nodes: 1, gpus_per_node: 4}", "train.total_steps=2",
                                     "optim.actor.name=adamw", "optim.critic.name=adamw",
                                     "report.recorded_steps=2"};
    more.insert(more.end(), options.begin(), options.end());
    finish(job_command(job, "ppo", more));
    if (HasFatalFailure()) return {};
    std::vector<std::map<std::string, int64_t>> out;
    const std::string rows = *read_file(path(job + "/ranks.jsonl"));
    const Json row = *parse_json(rows.substr(rows.rfind('\n', rows.size() - 2) + 1), job);
    for (const Json& rank : row["ranks"])
      out.push_back(rank["memory"].get<std::map<std::string, int64_t>>());
    return out;
  }

  static int64_t parameters_of(const std::string& job, const std::string& role) {
    int64_t out = 0;
    for (const auto& [name, tensor] : weights_of(path(job + "/export/" + role)))
      out += tensor.numel();
    return out;
  }
};

// The same calls in the same layouts, once all on two devices and once with training on two and
// generation and scoring on two others: nothing is summed in another order, so no bit differs.
TEST_F(JobPlacement, SeparateDevicesChangeNoBit) {
  for (const std::string algorithm : {"ppo", "grpo"}) {
    if (algorithm == "ppo" && !full_tier()) continue;
    for (const std::string layout : {"dp: 2", "tp: 2"}) {
      SCOPED_TRACE(cat(algorithm, " ", layout));
      const std::string cut = layout.substr(0, 2);
      LayoutCase together{cat("together-", algorithm, cut), algorithm, "1x2",
                          everywhere(algorithm, layout, layout)};
      LayoutCase apart{cat("apart-", algorithm, cut), algorithm, "1x4", ""};
      AlgorithmOptions options = default_options(algorithm);
      if (options.kl.coef == 0) options.kl.coef = 0.01;
      for (const Call& call : make_graph(options)->calls)
        if (uses_model(call))
          apart.calls +=
              cat("  ", call.name, ": {mesh: ", call.kind == CallKind::kTrainStep ? "0-1" : "2-3",
                  ", ", layout, "}\n");
      const std::string kernels = recorded(algorithm, "");
      for (const LayoutCase* each : {&together, &apart}) {
        same_kernels(kernels, each->name);
        finish(job_command(each->name, algorithm, {"plan.file=" + write_plan(*each)}));
        if (HasFatalFailure()) return;
      }
      EXPECT_EQ(metrics(together.name), metrics(apart.name));
      expect_same_bits(together.name, apart.name, "actor");
      if (algorithm == "ppo") expect_same_bits(together.name, apart.name, "critic");
    }
  }
}

// Weights of the generation come over behind their update and not when the next step begins:
// whole, in slices, of adapters; with evaluations in between, and in a run that goes on from a
// checkpoint.
TEST_F(JobPlacement, WeightsThatComeOverBesideTrainingChangeNoBit) {
  const std::string apart =
      "  generate: {mesh: 2-3, tp: 2}\n"
      "  old_logprob: {mesh: 2-3, tp: 2}\n"
      "  ref_logprob: {mesh: 2-3, dp: 2}\n"
      "  values: {mesh: 2-3, dp: 2}\n"
      "  update_critic: {mesh: 0-1, dp: 2}\n";
  const LayoutCase cases[] = {
      {"stages", "ppo", "1x4", apart + "  update_actor: {mesh: 0-1, pp: 2, micro_batches: 2}\n"},
      {"sliced", "ppo", "1x4", apart + "  update_actor: {mesh: 0-1, dp: 2, zero: 3}\n", true},
      {"adapters", "ppo-lora", "1x4", apart + "  update_actor: {mesh: 0-1, dp: 2}\n", true},
      {"offloaded", "ppo", "1x4",
       apart + "  update_actor: {mesh: 0-1, dp: 2}\nroles:\n  actor: {weights: host}\n", true}};
  for (const LayoutCase& of : cases) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const auto run = [&](bool early, const std::vector<std::string>& more) {
      LayoutCase with = of;
      with.name = cat("sync-", of.name, early ? "-early" : "-late");
      if (early) with.calls += "fusion: {sync_beside_training: true}\n";
      std::vector<std::string> options = {"plan.file=" + write_plan(with),
                                          "optim.actor.name=adamw",
                                          "optim.actor.lr=1e-3",
                                          "checkpoint.every_steps=2",
                                          "checkpoint.resume=auto",
                                          "train.total_steps=4",
                                          "eval.every_steps=1",
                                          "data.eval=task:sort_digits",
                                          "eval.prompts=4"};
      options.insert(options.end(), of.more.begin(), of.more.end());
      options.insert(options.end(), more.begin(), more.end());
      finish(job_command(with.name, of.algorithm, options));
      return with.name;
    };
    const std::string late = run(false, {});
    if (HasFatalFailure()) return;
    same_kernels(late, cat("sync-", of.name, "-early"));
    run(true, {"train.total_steps=2"});
    const std::string early = run(true, {});
    if (HasFatalFailure()) return;
    EXPECT_EQ(metrics(late), metrics(early));
    EXPECT_EQ(hashes(path(late + "/export")), hashes(path(early + "/export")));
  }
}

int64_t of_all(const std::vector<std::map<std::string, int64_t>>& held, const std::string& owner) {
  int64_t out = 0;
  for (const auto& rank : held)
    if (const auto found = rank.find(owner); found != rank.end()) out += found->second;
  return out;
}

// What research says of placements (arXiv 2312.11819): P parameters take b P bytes on each rank
// that has them whole and b P / N on each of N that have them in slices (ZeRO-3), where AdamW in
// f32 has 8 P more and gradients 4 P. So a frozen model on half of the devices takes half of the
// memory where it is replicated, and as much as before where it is sliced.
TEST_F(JobPlacement, MemoryOfAFrozenModelHalvesOnHalfOfTheDevicesUnlessItIsSliced) {
  const std::string owner = "weights of reference";
  const auto all = held_under("place-all", {"placement=colocated"}),
             half = held_under("place-half", {"placement=interleaved"}),
             all_cut = held_under("place-all-cut", {"placement=colocated",
                                                    "parallel={ref_logprob: {dp: 4, zero: 3}}"}),
             half_cut = held_under("place-half-cut", {"placement=interleaved",
                                                      "parallel={ref_logprob: {dp: 2, zero: 3}}"});
  if (HasFatalFailure()) return;
  const int64_t whole = 4 * parameters_of("place-all", "actor");
  EXPECT_EQ(of_all(all, owner), 4 * whole);
  EXPECT_EQ(of_all(half, owner), 2 * whole);
  EXPECT_EQ(of_all(all_cut, owner), whole);
  EXPECT_EQ(of_all(half_cut, owner), whole);
}

TEST_F(JobPlacement, TrainingAndInferenceApartHoldWhatTheFormulasSay) {
  const auto held = held_under("place-apart", {"placement=disaggregated"}),
             cut = held_under("place-apart-cut", {"placement=disaggregated",
                                                  "parallel={update_actor: {dp: 2, zero: 3}, "
                                                  "update_critic: {dp: 2, zero: 3}}"});
  if (HasFatalFailure()) return;
  const int64_t actor = 4 * parameters_of("place-apart", "actor"),
                critic = 4 * parameters_of("place-apart", "critic");
  const auto of = [](const std::map<std::string, int64_t>& rank, const std::string& name) {
    const auto found = rank.find(name);
    return found == rank.end() ? int64_t{0} : found->second;
  };
  for (size_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const bool trains = rank < 2;
    EXPECT_EQ(of(held[rank], "weights of actor"), trains ? actor : 0);
    EXPECT_EQ(of(held[rank], "weights of actor in another layout"), trains ? 0 : actor);
    EXPECT_EQ(of(held[rank], "optimizer"), trains ? 2 * (actor + critic) : 0);
    EXPECT_EQ(of(held[rank], "gradients"), trains ? actor + critic : 0);
    EXPECT_EQ(of(held[rank], "weights of reference"), trains ? 0 : actor);
    if (trains) {
      EXPECT_EQ(of(cut[rank], "optimizer"), actor + critic);
    }
  }
}

}  // namespace
}  // namespace braid
