// When runs write checkpoints, and what stops them or keeps them from being continued, as a person
// meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runs/process_testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RunCheckpoint : public RunProcess {
 protected:
  static std::vector<int64_t> steps_of(const std::string& run) {
    std::vector<int64_t> out;
    for (const CheckpointInfo& info : *list_checkpoints(path(run + "/checkpoints")))
      out.push_back(info.at.step);
    return out;
  }

  // 200 lines of ids, line `changed` with another label.
  static void write_data(int changed) {
    EXPECT_TRUE(make_folder(folder_).ok());
    std::ofstream out(path("data.jsonl"));
    for (int i = 0; i < 200; ++i)
      out << Json{{"ids", {5, 5 + i % 10}}, {"label", i == changed ? "x" : "1"}}.dump() << "\n";
  }
};

TEST_F(RunCheckpoint, MinutesCountBesideSteps) {
  const std::vector<std::string> keep = {"checkpoint.every_steps=0", "checkpoint.keep_last=9"};
  auto options = keep;
  options.push_back("checkpoint.every_minutes=0.000001");
  finish(command("often", "grpo", options));
  EXPECT_THAT(steps_of("often"), ElementsAre(1, 2, 3, 4));
  options.back() = "checkpoint.every_minutes=600";
  finish(command("seldom", "grpo", options));
  EXPECT_THAT(steps_of("seldom"), ElementsAre(4));
}

// A line that the first steps never read counts as well; another spelling of the file does not.
TEST_F(RunCheckpoint, ChangedDataIsNoticed) {
  write_data(-1);
  const std::vector<std::string> options = {"data.train=" + path("dat*.jsonl"),
                                            "reward=[{type: rule, rule: digit_share}]",
                                            "data.shuffle=false", "train.total_steps=1"};
  auto more = options;
  more.insert(more.end(), {"train.total_steps=2", "checkpoint.resume=auto"});
  finish(command("data", "grpo", options));
  write_data(150);
  const Finished refused = run_program(command("data", "grpo", more));
  EXPECT_EQ(refused.end, "exited with status 2");
  EXPECT_THAT(refused.errors, AllOf(HasSubstr("checkpoints/step-000001: data.train: a line"),
                                    HasSubstr("is not what it was")));
  write_data(-1);
  more.front() = "data.train=" + path("./dat*.jsonl");
  finish(command("data", "grpo", more));
}

// tests/fake_free_space.cc stands for a file system with so many bytes left.
TEST_F(RunCheckpoint, AFullDiskStopsTheRunBeforeItsFirstStep) {
  const std::string library = join_path(parent_folder(BRAID_BINARY), "tests/libfake_free_space.so");
  ASSERT_TRUE(path_exists(library)) << library;
  const auto with_free = [&](int64_t bytes, const std::string& name) {
    return shell(cat("BRAID_TEST_FREE_BYTES=", bytes, " LD_PRELOAD=", library),
                 command(name, "grpo", {"train.total_steps=1"}));
  };
  const CommandOutcome refused = with_free(100'000, "full");
  EXPECT_EQ(refused.exit_code, 1) << refused.output;
  EXPECT_THAT(refused.output, AllOf(HasSubstr("full/checkpoints: a checkpoint needs "),
                                    HasSubstr("97.7 KiB are free"), HasSubstr("checkpoint.dir")));
  EXPECT_EQ(error_lines(refused.output), 1);
  EXPECT_TRUE(steps_of("full").empty());
  EXPECT_FALSE(path_exists(path("full/metrics.jsonl")));
  EXPECT_EQ(with_free(1'000'000'000, "roomy").exit_code, 0);
}

// A write that fails half-way (here at a limit on the size of files) leaves the earlier checkpoint
// and nothing else.
TEST_F(RunCheckpoint, AWriteThatFailsLeavesTheEarlierCheckpoint) {
  finish(command("limited", "grpo", {"train.total_steps=1"}));
  const CommandOutcome failed =
      shell("trap '' XFSZ; ulimit -f 40;",
            command("limited", "grpo", {"train.total_steps=2", "checkpoint.resume=auto"}));
  EXPECT_EQ(failed.exit_code, 1) << failed.output;
  EXPECT_THAT(failed.output, AllOf(HasSubstr("checkpoint"), HasSubstr("File too large")));
  EXPECT_EQ(list_folder(path("limited/checkpoints")).value(),
            (std::vector<std::string>{".lock", "step-000001"}));
  EXPECT_TRUE(verify_checkpoint(path("limited/checkpoints/step-000001")).ok());
}

// A run that would begin anew where another one has been is refused, and changes nothing.
TEST_F(RunCheckpoint, AUsedFolderIsNotBegunAnewByAccident) {
  finish(command("used", "grpo", {"train.total_steps=1"}));
  const auto before = hashes(path("used"));
  const Finished refused = run_program(command("used", "grpo", {"train.total_steps=1"}));
  EXPECT_EQ(refused.end, "exited with status 2");
  EXPECT_THAT(refused.errors, AllOf(HasSubstr("checkpoint.resume=auto"),
                                    HasSubstr("run.overwrite=true"), HasSubstr("used")));
  EXPECT_EQ(hashes(path("used")), before);
  // Neither does one that may begin anew, and is refused for something else.
  for (const char* option : {"log.command=[no-such-program]", "log.wandb=x", "log.mlflow=x"}) {
    const Finished other =
        run_program(command("used", "grpo", {"train.total_steps=1", "run.overwrite=true", option}));
    if (other.end == "exited with status 0") continue;  // where that package is installed
    EXPECT_THAT(other.errors, HasSubstr(std::string(option).substr(0, 8)));
    EXPECT_EQ(hashes(path("used")), before) << option;
    EXPECT_FALSE(steps_of("used").empty());
  }
  finish(command("used", "grpo", {"train.total_steps=1", "run.overwrite=true"}));
}

TEST_F(RunCheckpoint, ARunStaysInItsFolder) {
  for (const char* name : {"../elsewhere", "a/../../b", "/elsewhere", ""}) {
    const Finished end = run_program(command(name, "grpo"));
    EXPECT_EQ(end.end, "exited with status 2") << name;
    EXPECT_THAT(end.errors, HasSubstr("run.name"));
  }
}

TEST_F(RunCheckpoint, FewerStepsThanWereMadeIsAnError) {
  finish(command("long", "grpo", {"train.total_steps=2"}));
  const Finished end =
      run_program(command("long", "grpo", {"train.total_steps=1", "checkpoint.resume=auto"}));
  EXPECT_EQ(end.end, "exited with status 2");
  EXPECT_THAT(end.errors, AllOf(HasSubstr("train.total_steps: 1 are asked for"),
                                HasSubstr("step-000002 is after step 2")));
}

// Another spelling of a path is no other file, another option is one unless it is allowed.
TEST_F(RunCheckpoint, ContinuesUnderTheSameFilesAndAllowedChanges) {
  const std::string model = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model";
  finish(command("spelled", "grpo", {"train.total_steps=1"}));
  const std::vector<std::string> more = {
      "train.total_steps=2", "checkpoint.resume=auto", "tokenizer.path=" + model + "/../model/",
      "optim.actor.lr=2e-3", "checkpoint.allow=[optim.actor.lr]"};
  finish(command("spelled", "grpo", more));
  EXPECT_THAT(steps_of("spelled"), ElementsAre(1, 2));
  const Finished end = run_program(
      command("spelled", "grpo", {"checkpoint.resume=auto", "checkpoint.allow=[optim.actor.l]"}));
  EXPECT_THAT(end.errors, HasSubstr("checkpoint.allow: 'optim.actor.l' is no key"));
}

struct FrozenModel {
  const char* name;
  std::string algorithm, role;  // of the runs that make the model
  std::string options;          // with %, the folder, parted by blanks
  std::string message;
};

// Weights that no checkpoint holds are compared as well: the file of a model that a run only reads
// is exchanged for another one of its shape.
TEST_F(RunCheckpoint, OtherFrozenWeightsAreNoticed) {
  const FrozenModel models[] = {{"reference", "ppo", "actor", "reference.path=%",
                                 "reference.path: the weights of reference are not those"},
                                {"reward", "rm", "reward", "reward=[{type:|model,path:|%}]",
                                 "reward[0].path: the weights of reward model are not those"},
                                {"base", "ppo", "actor", "model.path=% lora.rank=4",
                                 "model.path: the weights of actor are not those"}};
  for (const FrozenModel& model : models) {
    SCOPED_TRACE(model.name);
    const auto trained = [&](int steps) {
      const std::string name = cat("frozen-", model.algorithm, "-", steps);
      if (!path_exists(path(name)))
        finish(command(name, model.algorithm,
                       {cat("train.total_steps=", steps), "optim.reward.lr=1e-3"}));
      return path(cat(name, "/export/", model.role));
    };
    const std::string folder = path(cat("frozen-", model.name)), run = cat("froze-", model.name);
    std::filesystem::copy(trained(1), folder);
    std::vector<std::string> options = {"checkpoint.resume=auto", "train.total_steps=1"};
    for (std::string option : split(model.options, ' ')) {
      std::replace(option.begin(), option.end(), '|', ' ');
      if (const size_t at = option.find('%'); at != std::string::npos)
        option.replace(at, 1, folder);
      options.push_back(option);
    }
    finish(command(run, "grpo", options));
    const std::string other = trained(2) + "/model.safetensors";
    ASSERT_TRUE(write_file_atomic(folder + "/model.safetensors", *read_file(other)).ok());
    options[1] = "train.total_steps=2";
    const Finished end = run_program(command(run, "grpo", options));
    EXPECT_EQ(end.end, "exited with status 2");
    EXPECT_THAT(end.errors, HasSubstr(model.message));
  }
}

TEST_F(RunCheckpoint, OneProcessWritesToAFolderOfCheckpoints) {
  const std::string folder = "checkpoint.dir=" + path("shared");
  const auto first = start(
      command("owner", "grpo", {folder, "train.total_steps=1000", "checkpoint.every_steps=0"}));
  while (!path_exists(path("owner/metrics.jsonl")) &&
         first->wait(deadline_in(0.002)).status().code() == Code::kDeadline) {
  }
  const Finished end = run_program(command("guest", "grpo", {folder}));
  EXPECT_EQ(end.end, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("checkpoint.dir: another process is writing to"));
  first->kill();
}

// Any checkpoint becomes the folders that the run would have exported then, with its tokenizer.
TEST_F(RunCheckpoint, ACheckpointBecomesAModel) {
  for (const char* kind : {"ppo", "ppo-lora"}) {
    const std::string out = path(cat("exported-", kind)), run = whole(kind);
    ASSERT_TRUE(make_folder(out + "/actor.tmp-1").ok());  // of an export that was killed
    finish({BRAID_BINARY, "export", path(run + "/checkpoints/step-000004"), out});
    EXPECT_EQ(hashes(out), hashes(path(run + "/export"))) << kind;
    EXPECT_TRUE(path_exists(out + "/actor/tokenizer.json"));
    finish({BRAID_BINARY, "export", path(run + "/checkpoints/step-000003"), out});
    EXPECT_NE(hashes(out), hashes(path(run + "/export"))) << kind;
  }
  const Finished end = run_program({BRAID_BINARY, "export", path("whole-ppo"), path("none")});
  EXPECT_EQ(end.end, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("is not a checkpoint"));
}

}  // namespace
}  // namespace braid
