// Checkpoints that the ranks of a job write together, each its share: under another plan, with
// another number of ranks, with a damaged file, written beside the steps or before the next one.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Plans of as many ranks as their first letter says; "" is one process.
LayoutCase plan_of(const std::string& name) {
  if (name == "2_last")
    return {"save_2_last", "grpo", "1x2",
            "  generate: {mesh: all, dp: 2}\n  old_logprob: {mesh: all, dp: 2}\n"
            "  ref_logprob: {mesh: 1}\n  update_actor: {mesh: all, dp: 2}\n"};
  const std::string generates = "dp: " + name.substr(0, 1);
  const std::map<std::string, std::string> passes = {
      {"2_pp", "pp: 2, micro_batches: 2"},
      {"2_tp", "tp: 2"},
      {"4_mixed", "dp: 2, tp: 2"},
      {"3_zero3", "dp: 3, zero: 3"},
      {"4_pp", "dp: 2, pp: 2, micro_batches: 2"},
      {"8_all", "dp: 2, tp: 2, pp: 2, micro_batches: 2"}};
  const std::map<std::string, std::string> zero = {
      {"4_mixed", "zero: 1"}, {"4_pp", "zero: 3"}, {"8_all", "zero: 2"}};
  const auto found = zero.find(name);
  return {"save_" + name, "grpo", "1x" + name.substr(0, 1),
          everywhere("grpo", generates, passes.at(name), found == zero.end() ? "" : found->second)};
}

class JobCheckpoint : public JobRun {
 protected:
  static std::vector<std::string> options(const std::string& plan,
                                          const std::vector<std::string>& more) {
    std::vector<std::string> out = {
        "optim.actor.name=adamw", "optim.actor.lr=1e-3",
        "rollout.replay=" + path(recorded("grpo", "") + "/rollouts.jsonl"),
        plan.empty() ? "plan.auto=false" : "plan.file=" + write_plan(plan_of(plan))};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

  static std::vector<std::string> saving(const std::string& name, const std::string& plan,
                                         const std::vector<std::string>& more) {
    same_kernels(recorded("grpo", ""), name);
    return job_command(name, "grpo", options(plan, more));
  }

  static Tensors model_of(const std::string& name) {
    return weights_of(path(name + "/export/actor"));
  }

  static void flip_last_byte(const std::string& file) {
    std::string bytes = *read_file(file);
    bytes.back() ^= 1;
    std::ofstream(file, std::ios::binary) << bytes;
  }
};

// The weights that come back under another plan and number of ranks are the bits that were saved,
// and the run goes on as one that never stopped.
TEST_F(JobCheckpoint, GoesOnWithAnyNumberOfRanks) {
  finish(saving("any-whole", "", {}));
  const Tensors whole = model_of("any-whole");
  const std::pair<const char*, const char*> changes[] = {
      {"2_pp", "4_mixed"}, {"4_mixed", "3_zero3"}, {"8_all", "2_pp"},
      {"4_pp", ""},        {"", "4_pp"},           {"3_zero3", "4_pp"}};
  for (const auto& [from, to] : changes) {
    const std::string name = cat("any-", from, "-", to);
    SCOPED_TRACE(name);
    finish(saving(name, from, {"train.total_steps=3"}));
    const Tensors left = model_of(name);
    fs::rename(path(name + "/export"), path(name + "/export-before"));
    finish(saving(name, to, {"train.total_steps=3", "checkpoint.resume=auto"}));
    const Tensors right = model_of(name);
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [tensor, values] : left)
      EXPECT_TRUE(at::equal(values, right.at(tensor))) << tensor;
    finish(saving(name, to, {"checkpoint.resume=auto"}));
    if (HasFatalFailure()) return;
    EXPECT_EQ(steps_complete(name), 5);
    const Tensors last = model_of(name);
    for (const auto& [tensor, values] : whole)
      EXPECT_LE((values - last.at(tensor)).norm().item<double>(),
                1e-4 * values.norm().item<double>())
          << tensor;
    fs::remove_all(path(name));
  }
}

// Each rank writes what it alone has, and all of it is there once.
TEST_F(JobCheckpoint, RanksWriteTheirShares) {
  finish(saving("shares", "4_mixed", {"train.total_steps=1"}));
  const std::string folder = path("shares/checkpoints/step-000001");
  std::set<std::string> files;
  const Manifest manifest = *read_manifest(folder);
  for (const auto& [file, entry] : manifest.files) files.insert(file);
  std::set<std::string> expected = {"state.json"};
  std::vector<uintmax_t> sizes;
  for (const char* group : {"actor.weights", "actor.optimizer"})
    for (int rank = 0; rank < 4; ++rank) {
      const std::string file = cat(group, ".rank-000", rank, ".safetensors");
      expected.insert(file);
      sizes.push_back(fs::file_size(join_path(folder, file)));
    }
  EXPECT_EQ(files, expected);
  for (const size_t group : {0, 4})  // a quarter each, but for tensors that ranks do not cut
    for (size_t rank = 0; rank < 4; ++rank) EXPECT_LT(sizes[group + rank], 2 * sizes[group]);
  EXPECT_EQ(verify_checkpoint(folder).status(), Status());
  EXPECT_EQ(tensors_of_checkpoint(folder, "actor.optimizer").size(),
            2 * tensors_of_checkpoint(folder, "actor.weights").size());
}

// No rank gathers what others hold, for a checkpoint or for the export, of which the first one has
// a layer at a time beside its own: of 16 layers.
TEST_F(JobCheckpoint, TheFirstRankHoldsNoMoreThanTheOthers) {
  (void)with_model("qwen2", {});  // writes the file
  Json config = *parse_json(*read_file(path("qwen2.config.json")), "config");
  config["num_hidden_layers"] = 16;
  if (config.contains("layer_types"))
    config["layer_types"] = std::vector<Json>(16, config["layer_types"][0]);
  ASSERT_TRUE(write_file_atomic(path("deep.config.json"), config.dump()).ok());
  for (const char* beside : {"true", "false"}) {
    SCOPED_TRACE(beside);
    const std::string name = cat("peaks-", beside);
    auto options = saving(name, "4_pp",
                          {"model.config=" + path("deep.config.json"), "train.total_steps=3",
                           "checkpoint.every_steps=1", cat("checkpoint.async=", beside)});
    std::erase_if(options, [](const auto& o) { return o.starts_with("rollout.replay="); });
    finish(options);
    const Json predicted = *parse_json(*read_file(path(name + "/predicted.json")), name);
    double others = 0;
    for (const Json& rank : predicted["ranks"])
      if (rank["rank"] != 0) others = std::max(others, rank["measured_saving_bytes"].get<double>());
    const auto first = predicted["ranks"][0]["measured_saving_bytes"].get<double>();
    EXPECT_GT(first, 1 << 16);
    EXPECT_LE(first, 1.1 * others);
  }
}

// Weights that no checkpoint holds are compared under any plan: where no rank has all of them, and
// where the first rank has none.
TEST_F(JobCheckpoint, OtherFrozenWeightsAreNoticedUnderAnyPlan) {
  const std::string folder = path("frozen"), weights = folder + "/model.safetensors";
  fs::copy(path(recorded("grpo", "") + "/export/actor"), folder);
  const std::pair<const char*, const char*> changes[] = {{"2_tp", "2_last"}, {"", "2_tp"}};
  for (const auto& [from, to] : changes) {
    const std::string name = cat("frozen-", from, "-", to);
    SCOPED_TRACE(name);
    const std::string reference = "reference.path=" + folder;
    finish(saving(name, from, {"train.total_steps=1", reference}));
    const auto more =
        saving(name, to, {"train.total_steps=2", reference, "checkpoint.resume=auto"});
    flip_last_byte(weights);
    const CommandOutcome refused = shell("", more);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_THAT(refused.output,
                HasSubstr("reference.path: the weights of reference are not those"));
    EXPECT_EQ(error_lines(refused.output), 1) << refused.output;
    flip_last_byte(weights);
    finish(more);
    EXPECT_EQ(steps_complete(name), 2);
  }
}

// A file of one rank that is damaged, cut off or gone is named in one message, and the run goes on
// from the checkpoint that it offers.
TEST_F(JobCheckpoint, ADamagedShardIsRefusedByItsName) {
  const std::vector<std::string> two = {"train.total_steps=2", "checkpoint.every_steps=1"};
  finish(saving("shard-whole", "4_mixed", two));
  for (const std::string damage : {"flip", "cut", "gone"}) {
    SCOPED_TRACE(damage);
    const std::string name = "shard-" + damage;
    fs::copy(path("shard-whole"), path(name), fs::copy_options::recursive);
    const std::string file =
        path(name + "/checkpoints/step-000002/actor.optimizer.rank-0002.safetensors");
    if (damage == "flip") flip_last_byte(file);
    if (damage == "cut") fs::resize_file(file, fs::file_size(file) - 1);
    if (damage == "gone") fs::remove(file);
    const std::vector<std::string> more = {"train.total_steps=3"};
    auto with = [&](const std::string& resume) {
      return saving(name, "2_pp", {more[0], "checkpoint.resume=" + resume});
    };
    const CommandOutcome refused = shell("", with("auto"));
    EXPECT_EQ(refused.exit_code, 1) << refused.output;
    const std::string before = path(name + "/checkpoints/step-000001");
    EXPECT_THAT(refused.output, AllOf(HasSubstr("is damaged and was not used"), HasSubstr(file),
                                      HasSubstr("checkpoint.resume=" + before)));
    EXPECT_EQ(error_lines(refused.output), 1) << refused.output;
    finish(with(before));
    EXPECT_EQ(steps_kept(name), 3);
    fs::remove_all(path(name));
  }
}

// What is written beside the steps is what would be written before the next one, byte for byte.
TEST_F(JobCheckpoint, BesideTheStepsTheSameBytesAreWritten) {
  for (const std::string plan : {"", "4_pp"}) {
    SCOPED_TRACE(plan);
    std::map<bool, std::map<std::string, std::string>> files;
    for (const bool beside : {false, true}) {
      const std::string name = cat("beside-", plan, "-", beside);
      finish(saving(name, plan,
                    {"checkpoint.every_steps=1", "checkpoint.keep_last=9",
                     cat("checkpoint.async=", beside ? "true" : "false")}));
      files[beside] = hashes(path(name + "/checkpoints"));
      std::erase_if(files[beside], [](const auto& file) {  // these name the run
        return !file.first.ends_with(".safetensors");
      });
      EXPECT_EQ(metrics(name).size(), 5u);
    }
    EXPECT_EQ(files[false].size(), plan.empty() ? 10u : 40u);
    EXPECT_EQ(files[false], files[true]);
  }
}

// A rank that fails while its disk is slow says so at once, not when its share is written. Here the
// other one does not come in time.
TEST_F(JobCheckpoint, AFailureIsToldBeforeACheckpointIsWritten) {
  if (!full_tier()) GTEST_SKIP() << "in the full tier";
  const std::string library = join_path(parent_folder(BRAID_BINARY), "tests/libfake_slow_sync.so");
  auto slow = std::vector<std::string>{"/usr/bin/env", "LD_PRELOAD=" + library,
                                       "BRAID_TEST_SYNC_RANK=1", "BRAID_TEST_SYNC_S=120"};
  const auto run = job_command("slow", "grpo",
                               {"plan.file=" + write_plan(plan_of("2_pp")), "train.total_steps=999",
                                "checkpoint.every_steps=20", "runtime.wait_s=4"});
  slow.insert(slow.end(), run.begin(), run.end());
  const auto job = start(slow);
  const auto is_written = [] {
    const auto names = list_folder(path("slow/checkpoints"));
    for (size_t i = 0; names.ok() && i < names->size(); ++i)
      if (names->at(i).rfind(".writing-step-000020.", 0) == 0)
        return path_exists(
            path(cat("slow/checkpoints/", names->at(i), "/actor.weights.rank-0001.safetensors")));
    return false;
  };
  while (!is_written()) ASSERT_FALSE(job->wait(deadline_in(0.001)).ok()) << job->take_errors();
  std::vector<pid_t> ranks = children_of(job->pid());
  ASSERT_EQ(ranks.size(), 2u);
  std::sort(ranks.begin(), ranks.end());
  ::kill(ranks[0], SIGSTOP);
  std::string said;
  const auto told = [&] { return said.find("braid: error: rank 1 failed") != std::string::npos; };
  for (const Deadline end = deadline_in(60); !told() && std::chrono::steady_clock::now() < end;) {
    (void)job->wait(deadline_in(0.1));
    said += job->take_errors();
  }
  EXPECT_TRUE(told()) << said;
  ::kill(ranks[0], SIGCONT);
  EXPECT_EQ(ending(*job).end, "exited with status 1") << said;
}

// A write that fails beside the steps ends the run with its message, at the latest at its end.
TEST_F(JobCheckpoint, AFailureBesideTheStepsEndsTheRun) {
  const std::string file = path("failing/checkpoints");
  finish(saving("failing", "2_pp", {"train.total_steps=1"}));
  const CommandOutcome failed =
      shell("trap '' XFSZ; ulimit -f 40;",
            saving("failing", "2_pp",
                   {"train.total_steps=3", "checkpoint.resume=auto", "checkpoint.every_steps=2"}));
  EXPECT_EQ(failed.exit_code, 1) << failed.output;
  EXPECT_THAT(failed.output, AllOf(HasSubstr("checkpoint"), HasSubstr("File too large")));
  EXPECT_EQ(list_folder(file).value(), (std::vector<std::string>{".lock", "step-000001"}));
  EXPECT_EQ(verify_checkpoint(file + "/step-000001").status(), Status());
}

}  // namespace
}  // namespace braid
