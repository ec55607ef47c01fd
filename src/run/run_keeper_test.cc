// What a run does before its first step with the checkpoint that it continues from.
#include "run/run_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "host/file.h"
#include "identity/input_claims.h"
#include "run/kernel_choices.h"
#include "session/testing.h"

namespace braid::inline run {
namespace {

using testing::HasSubstr;

// A run of which one step is in a checkpoint.
class RunKeeper : public testing::Test {
 protected:
  void SetUp() override {
    config_ = tiny_run("grpo");
    config_.run.dir = join_path(testing::TempDir(), cat("keeper-", ::getpid()));
    std::filesystem::remove_all(config_.run.dir);
    config_.data.template_date = "";
    config_.checkpoint.resume = "auto";
    program_ = *compile(*configured_graph(config_));
    const auto session = session_of(config_, program_);
    const auto row = session->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    ASSERT_EQ(save_session(config_, *session, *row), Status());
    ASSERT_EQ(session->finish_saves(), Status());
  }
  void TearDown() override { std::filesystem::remove_all(config_.run.dir); }

  Config config_;
  Program program_;
};

// Manifests and state.json grow with the job: each rank reads them once.
TEST_F(RunKeeper, WhatAContinuedRunReadsOfItsCheckpointItReadsOnce) {
  const auto session = session_of(config_, program_);
  const CheckpointReads before = checkpoint_reads();
  auto resumed = check_run_state(config_, program_.graph, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_EQ(checkpoint_claims(*resumed)->at("resumes"), "from step 1");
  EXPECT_EQ(
      input_claims(config_, program_.graph, *resumed)->count("reads checkpoint: manifest.json"),
      1U);
  EXPECT_TRUE(run_date(config_, *resumed, nullptr).ok());
  EXPECT_TRUE(KernelChoices::begin(config_, *resumed, nullptr).ok());
  EXPECT_TRUE(claim_run(config_, *resumed).ok());
  const auto row = resume_session(*std::move(resumed), *session);
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_GT(row->count("reward/raw_mean"), 0U);
  EXPECT_EQ(session->step(), 1);
  const CheckpointReads after = checkpoint_reads();
  EXPECT_EQ(after.manifests - before.manifests, 1);
  EXPECT_EQ(after.states - before.states, 1);
}

// A process that ends slowly may still commit; the run that takes its place goes on from there.
TEST_F(RunKeeper, ACheckpointThatCameMeanwhileIsNotLeftBehind) {
  const auto resumed = check_run_state(config_, program_.graph, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  const std::string folder = checkpoint_folder(config_);
  CheckpointState state;
  state.numbers = {{"step", 2}};
  ASSERT_TRUE(save_checkpoint(folder, {2}, {}, state).ok());
  const Status refused = claim_run(config_, *resumed).status();
  EXPECT_EQ(refused.code(), Code::kInvalidInput);
  EXPECT_THAT(refused.message(),
              HasSubstr(cat("checkpoint is ", join_path(folder, "step-000002"), " now, and was ",
                            join_path(folder, "step-000001"), "; start the run again")));
}

}  // namespace
}  // namespace braid::inline run
