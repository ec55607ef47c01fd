#include "checkpoint/checkpoint.h"
#include "base/testing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// A fresh folder of the test, removed at its end.
class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = join_path(testing::TempDir(), cat("checkpoints-", ::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const CheckpointInfo& info : *list_checkpoints(folder_)) out.push_back(info.at.step);
    return out;
  }

  std::string folder_;
};

CheckpointState state_of(int64_t step, int64_t size = 64) {
  CheckpointState state;
  state.tensors["actor.weights"] = {{"w", at::full({size}, static_cast<double>(step))},
                                    {"b", at::arange(3, at::kFloat)}};
  state.tensors["actor.optimizer"] = {{"w.exp_avg", at::full({size}, -static_cast<double>(step))}};
  state.numbers = {{"step", step}, {"kl_coef", 0.1 + 0.2}};
  return state;
}

void save(const std::string& folder, int64_t step,
          const std::map<std::string, double>& metrics = {}) {
  const auto saved = save_checkpoint(folder, {step}, metrics, state_of(step));
  ASSERT_TRUE(saved.ok()) << saved.status().message();
}

void flip_bit(const std::string& path, size_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

TEST_F(CheckpointTest, GivesBackWhatWasSaved) {
  save(folder_, 7, {{"reward/raw_mean", 0.25}, {"nan", std::nan("")}});
  const std::string path = join_path(folder_, "step-000007");
  const auto loaded = load_checkpoint(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->numbers["kl_coef"].get<double>(), 0.1 + 0.2);
  ASSERT_EQ(loaded->tensors.size(), 2u);
  for (const auto& [name, tensor] : loaded->tensors.at("actor.weights"))
    EXPECT_TRUE(at::equal(tensor, name == "w" ? at::full({64}, 7.0) : at::arange(3, at::kFloat)));
  EXPECT_EQ(*checkpoint_metrics(path), (std::map<std::string, double>{{"reward/raw_mean", 0.25}}));
  EXPECT_EQ(*verify_checkpoint(path), 7);
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000007"));
}

TEST_F(CheckpointTest, SavingAStepAgainReplacesIt) {
  save(folder_, 7);
  CheckpointState other = state_of(7);
  other.numbers["kl_coef"] = 2.5;
  ASSERT_TRUE(save_checkpoint(folder_, {7}, {}, other).ok());
  EXPECT_EQ(load_checkpoint(join_path(folder_, "step-000007"))->numbers["kl_coef"], 2.5);
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000007"));
}

TEST_F(CheckpointTest, KeepsTheLastAndTheBest) {
  CheckpointConfig config;
  config.keep_last = 2;
  config.keep_best = "reward/raw_mean";
  const double rewards[] = {0.1, 0.9, 0.3, 0.2, 0.4};
  for (int64_t step = 1; step <= 5; ++step) {
    save(folder_, step, {{"reward/raw_mean", rewards[step - 1]}});
    ASSERT_TRUE(apply_retention(folder_, {step}, config).ok());
  }
  EXPECT_THAT(steps(), ElementsAre(2, 4, 5));
  config.keep_best = "min:reward/raw_mean";
  config.keep_last = 1;
  ASSERT_TRUE(apply_retention(folder_, {5}, config).ok());
  EXPECT_THAT(steps(), ElementsAre(4, 5));
}

TEST_F(CheckpointTest, RemovesTheFutureOfARunThatWentBack) {
  for (const int64_t step : {2, 4, 6}) save(folder_, step);
  save(folder_, 3);
  ASSERT_TRUE(apply_retention(folder_, {3}, {}).ok());
  EXPECT_THAT(steps(), ElementsAre(2, 3));
}

// What was saved within a step comes after the step before it, and goes with the next complete one.
TEST_F(CheckpointTest, AnOpenStepIsKeptUntilTheNextCheckpoint) {
  for (const int64_t step : {1, 2}) save(folder_, step);
  const auto open = save_checkpoint(folder_, {2, true}, {}, state_of(2));
  ASSERT_TRUE(open.ok()) << open.status().message();
  ASSERT_TRUE(apply_retention(folder_, {2, true}, {}).ok());
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000001", "step-000002", "step-000002-open"));
  EXPECT_EQ(*resume_path("auto", folder_), *open);
  save(folder_, 3);
  ASSERT_TRUE(apply_retention(folder_, {3}, {}).ok());
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000002", "step-000003"));
}

// A folder has one writer; the claim goes with its process or its handle.
TEST_F(CheckpointTest, AFolderHasOneWriter) {
  {
    const auto claim = claim_folder(folder_, "checkpoint.dir");
    ASSERT_TRUE(claim.ok()) << claim.status().message();
    EXPECT_THAT(claim_folder(folder_, "checkpoint.dir").status().message(),
                HasSubstr("checkpoint.dir: another process is writing to " + folder_));
  }
  EXPECT_TRUE(claim_folder(folder_, "checkpoint.dir").ok());
}

TEST_F(CheckpointTest, UnreadableCheckpointsAreNeitherCountedNorRemoved) {
  for (const int64_t step : {1, 2, 3}) save(folder_, step);
  flip_bit(join_path(folder_, "step-000002/manifest.json"), 20);
  CheckpointConfig config;
  config.keep_last = 2;
  ASSERT_TRUE(apply_retention(folder_, {3}, config).ok());
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(CheckpointTest, ResumeFollowsTheConfiguration) {
  EXPECT_EQ(*resume_path("auto", folder_), "");
  for (const int64_t step : {1, 2}) save(folder_, step);
  EXPECT_EQ(*resume_path("none", folder_), "");
  EXPECT_EQ(*resume_path("auto", folder_), join_path(folder_, "step-000002"));
  const std::string first = join_path(folder_, "step-000001");
  EXPECT_EQ(*resume_path(first, folder_), first);
  EXPECT_THAT(resume_path("/no/such/place", folder_).status().message(),
              HasSubstr("/no/such/place is not a checkpoint"));
  EXPECT_THAT(resume_path(folder_, folder_).status().message(),
              HasSubstr("the newest one in it is " + join_path(folder_, "step-000002")));
}

// Every way to damage a file: the newest checkpoint is refused with the file's name, and the
// previous one is offered; where that is damaged as well, the one before it.
TEST_F(CheckpointTest, DamageIsRefusedByNameAndThePreviousOneOffered) {
  const std::vector<std::string> files = {
      "actor.weights.safetensors", "actor.optimizer.safetensors", "state.json", "manifest.json"};
  for (const std::string& name : files)
    for (const std::string damage : {"flip", "truncate", "remove"}) {
      if (name == "manifest.json" && damage == "remove") continue;
      fs::remove_all(folder_);
      for (const int64_t step : {1, 2, 3}) save(folder_, step);
      const std::string path = join_path(folder_, "step-000003/" + name);
      if (damage == "flip") flip_bit(path, fs::file_size(path) / 2);
      if (damage == "truncate") fs::resize_file(path, fs::file_size(path) - 1);
      if (damage == "remove") fs::remove(path);
      const Status refused = resume_path("auto", folder_).status();
      if (damage == "truncate" && name == "manifest.json") {  // only the last newline went
        EXPECT_TRUE(refused.ok());
        continue;
      }
      EXPECT_EQ(refused.code(), Code::kDataLoss) << name << " " << damage;
      EXPECT_THAT(refused.message(), HasSubstr(path)) << damage;
      EXPECT_THAT(refused.message(),
                  HasSubstr("checkpoint.resume=" + join_path(folder_, "step-000002")));
    }
  flip_bit(join_path(folder_, "step-000002/state.json"), 5);
  flip_bit(join_path(folder_, "step-000003/state.json"), 5);
  EXPECT_THAT(resume_path("auto", folder_).status().message(),
              HasSubstr("checkpoint.resume=" + join_path(folder_, "step-000001")));
  flip_bit(join_path(folder_, "step-000001/state.json"), 5);
  EXPECT_THAT(resume_path("auto", folder_).status().message(),
              HasSubstr("no intact earlier checkpoint"));
}

TEST_F(CheckpointTest, TooLittleSpaceIsAnErrorBeforeWriting) {
  ASSERT_TRUE(make_folder(folder_).ok());
  EXPECT_TRUE(check_free_space(folder_, 1).ok());
  const Status status = check_free_space(folder_, int64_t{1} << 62);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_THAT(status.message(), HasSubstr("4194304.0 TiB"));
  EXPECT_THAT(status.message(), HasSubstr("checkpoint.keep_last"));
}

TEST_F(CheckpointTest, BadOptionsNameTheKey) {
  CheckpointConfig config;
  EXPECT_TRUE(validate(config).ok());
  config.keep_last = 0;
  EXPECT_THAT(validate(config).message(), HasSubstr("checkpoint.keep_last"));
  config = {};
  config.every_steps = -1;
  EXPECT_THAT(validate(config).message(), HasSubstr("checkpoint.every_steps"));
  config = {};
  config.keep_best = "min:";
  EXPECT_THAT(validate(config).message(), HasSubstr("checkpoint.keep_best"));
}

// Writes checkpoints one after another, telling each finished step through a pipe, until killed.
[[noreturn]] void write_until_killed(const std::string& folder, int64_t first, int acknowledged) {
  CheckpointConfig config;
  for (int64_t step = first;; ++step) {
    if (!save_checkpoint(folder, {step}, {}, state_of(step, 4096)).ok()) ::_exit(1);
    if (!apply_retention(folder, {step}, config).ok()) ::_exit(1);
    if (::write(acknowledged, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

int64_t last_step(int pipe) {
  int64_t step = -1, value = 0;
  while (::read(pipe, &value, sizeof value) == sizeof value) step = value;
  return step;
}

// SIGKILL at any moment loses nothing: the newest checkpoint is intact, holds what its step wrote,
// and is at least as new as the last save that returned.
TEST_F(CheckpointTest, KillWhileWritingLosesNothing) {
  const int trials = full_tier() ? 2000 : 60;
  std::mt19937 random(12345);
  int64_t newest = 0;
  int during_write = 0;
  unsigned window_us = 25000;  // longer as long as the machine is too busy for a single save
  for (int trial = 0; trial < trials; ++trial) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_until_killed(folder_, newest + 1, ends[1]);
    ::close(ends[1]);
    ::usleep(500 + random() % window_us);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    const int64_t acknowledged = last_step(ends[0]);
    ::close(ends[0]);
    window_us = acknowledged < 0 ? std::min(2 * window_us, 2000000U) : 25000U;
    if (path_exists(folder_))
      for (const std::string& name : *list_folder(folder_)) during_write += name[0] == '.';
    const auto path = resume_path("auto", folder_);
    ASSERT_TRUE(path.ok()) << path.status().message();
    if (path->empty()) {
      ASSERT_EQ(acknowledged, -1);
      ASSERT_EQ(newest, 0);
      continue;
    }
    const CheckpointState state = *load_checkpoint(*path);
    const auto step = state.numbers["step"].get<int64_t>();
    ASSERT_GE(step, std::max(acknowledged, newest));
    for (const auto& [name, tensor] : state.tensors.at("actor.optimizer"))
      ASSERT_TRUE(at::equal(tensor, at::full({4096}, -static_cast<double>(step))));
    newest = step;
  }
  EXPECT_GT(newest, 0);
  EXPECT_GT(during_write, trials / 10) << "the kills must hit the writing itself";
}

}  // namespace
}  // namespace braid::inline checkpoint
