// Whole runs as processes of the braid program: killed, stopped, continued and compared byte by
// byte. BRAID_TEST_FULL=1 runs many more kills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "runs/process_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// Waits until a file exists or the process has ended.
void wait_for(const std::string& path, ChildProcess& child) {
  while (!path_exists(path)) {
    const auto end = child.wait(deadline_in(0.002));
    if (end.ok() || end.status().code() != Code::kDeadline) return;
  }
}

// The same seed gives the same bytes: two runs agree in metrics, exports and full state.
TEST_P(RunProcess, SameSeedGivesTheSameBytes) {
  const std::string first = whole(GetParam()), again = cat("again-", GetParam());
  same_kernels(first, again);
  finish(command(again, GetParam()));
  expect_same_run(first, again);
}

INSTANTIATE_TEST_SUITE_P(Names, RunProcess, testing::Values("ppo", "grpo"));

using ContinuedRun = RunProcess;

// 2N steps equal N steps, SIGKILL, and N more, bit for bit; no metrics row is lost or doubled.
TEST_P(ContinuedRun, KilledAndContinuedEqualsUninterrupted) {
  const std::string killed = cat("killed-", GetParam());
  same_kernels(whole(GetParam()), killed);
  const auto child = start(command(killed, GetParam(), {"checkpoint.resume=auto"}));
  wait_for(path(killed + "/checkpoints/step-000002"), *child);
  send(*child, SIGKILL);
  EXPECT_EQ(ending(*child).end, "killed by signal 9 (Killed)");
  finish(command(killed, GetParam(), {"checkpoint.resume=auto"}));
  expect_same_run(whole(GetParam()), killed);
  EXPECT_EQ(metrics(killed).size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ContinuedRun,
                         testing::Values("ppo", "grpo", "ppo-lora", "grpo-lora-bf16", "ppo-bf16",
                                         "ppo-adaptive"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class KilledRun : public RunProcess {
 protected:
  static double seconds_of_a_run(const std::string& kind) {
    using Clock = std::chrono::steady_clock;
    same_kernels(whole(kind), "timed-" + kind);
    const auto begin = Clock::now();
    finish(command("timed-" + kind, kind));
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
};

// SIGKILL at random moments, again and again, until the run is through. A run that writes its
// checkpoints before the next step loses at most the step that it was in; beside it, also the one
// before, whose checkpoint was being written.
TEST_P(KilledRun, RandomKillsLoseNothing) {
  std::mt19937 random(GetParam()[0]);
  const int runs = full_tier() ? 12 : 1, most = full_tier() ? 4 : 2;
  int all_kills = 0;
  std::map<bool, int64_t> most_lost = {{false, 0}, {true, 0}};
  const double run_s = seconds_of_a_run(GetParam());
  for (int run = 0; run < runs; ++run) {
    const std::string name = cat("random-", GetParam(), "-", run);
    same_kernels(whole(GetParam()), name);
    const bool beside = (run + (GetParam()[0] == 'p' ? 1 : 0)) % 2 == 1;
    const std::vector<std::string> options = {"checkpoint.resume=auto",
                                              cat("checkpoint.async=", beside ? "true" : "false")};
    int kills = 0;
    for (int attempt = 0; attempt < 12 && kills < most; ++attempt) {
      const auto child = start(command(name, GetParam(), options));
      const double share = static_cast<double>(random()) / static_cast<double>(random.max());
      std::this_thread::sleep_for(std::chrono::duration<double>(share * run_s));
      send(*child, SIGKILL);
      if (ending(*child).end != "exited with status 0") {
        ++kills;
        most_lost[beside] = std::max(most_lost[beside], steps_complete(name) - steps_kept(name));
      } else if (kills > 0) {
        break;
      } else {  // the kill came too late: once more from the beginning
        fs::remove_all(path(name));
        same_kernels(whole(GetParam()), name);
      }
    }
    finish(command(name, GetParam(), options));
    EXPECT_GT(kills, 0);
    expect_same_run(whole(GetParam()), name);
    fs::remove_all(path(name));
    all_kills += kills;
  }
  EXPECT_LE(most_lost[false], 1);
  EXPECT_LE(most_lost[true], 2);
  RecordProperty("kills", all_kills);
  RecordProperty("most_steps_lost", static_cast<int>(most_lost[false]));
  RecordProperty("most_steps_lost_beside", static_cast<int>(most_lost[true]));
}

INSTANTIATE_TEST_SUITE_P(Names, KilledRun, testing::Values("ppo", "grpo"));

using OneRun = RunProcess;

// The adaptive coefficient really moves, so that the test above compares a state.
TEST_F(OneRun, TheAdaptiveCoefficientIsSaved) {
  const std::string folder = path(whole("ppo-adaptive") + "/checkpoints/step-000004");
  const Json state = (*checkpoint_numbers(folder))["algo_state"];
  ASSERT_TRUE(state.contains("kl_coef")) << state.dump();
  EXPECT_NE(state["kl_coef"], default_options("ppo").kl.coef);
}

// A run that is to begin anew leaves nothing of the earlier one to continue from.
TEST_F(OneRun, OverwritingRunLeavesNoOldCheckpoints) {
  finish(command("again", "grpo", {"train.total_steps=2"}));
  EXPECT_EQ(steps_kept("again"), 2);
  const auto child =
      start(command("again", "grpo",
                    {"run.overwrite=true", "train.total_steps=400", "checkpoint.every_steps=0"}));
  while (!child->wait(deadline_in(0.02)).ok() &&
         (steps_kept("again") > 0 || steps_complete("again") == 0)) {
  }
  send(*child, SIGKILL);
  ending(*child);
  EXPECT_EQ(steps_kept("again"), 0);
  const CommandOutcome fresh = shell("", command("again", "grpo"));
  EXPECT_EQ(fresh.exit_code, 2);
  EXPECT_THAT(fresh.output, HasSubstr("it has no checkpoint to continue from"));
  const CommandOutcome anew =
      shell("", command("again", "grpo", {"checkpoint.resume=auto", "train.total_steps=2"}));
  EXPECT_EQ(anew.exit_code, 0) << anew.output;
  EXPECT_THAT(anew.output, HasSubstr("has no checkpoint; the run begins anew"));
  EXPECT_EQ(steps_complete("again"), 2);
}

// SIGTERM: the step is finished, a checkpoint written, and the message says how to continue.
TEST_F(OneRun, StopSignalLeavesACheckpoint) {
  same_kernels(whole("ppo"), "stopped");
  const auto child =
      start(command("stopped", "ppo", {"checkpoint.every_steps=0", "train.total_steps=4"}));
  wait_for(path("stopped/metrics.jsonl"), *child);
  send(*child, SIGTERM);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("stopped by SIGTERM after step"));
  EXPECT_THAT(end.errors, HasSubstr("checkpoint.resume=auto"));
  const auto checkpoints = *list_checkpoints(path("stopped/checkpoints"));
  ASSERT_EQ(checkpoints.size(), 1u);
  finish({BRAID_BINARY, "export", checkpoints[0].path, path("stopped-model")});
  EXPECT_TRUE(path_exists(path("stopped-model/critic/model.safetensors")));
  finish(command("stopped", "ppo", {"checkpoint.resume=auto"}));
  expect_same_run(whole("ppo"), "stopped");
}

// A terminal that closes ends a run like SIGTERM does; under nohup it goes on.
TEST_F(OneRun, ClosedTerminalLeavesACheckpoint) {
  std::signal(SIGHUP, SIG_DFL);  // whoever tests under nohup has it ignored
  const auto child =
      start(command("hangup", "grpo", {"checkpoint.every_steps=0", "train.total_steps=1000"}));
  wait_for(path("hangup/metrics.jsonl"), *child);
  send(*child, SIGHUP);
  const Finished end = ending(*child);
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("stopped by SIGHUP after step"));
  EXPECT_EQ(list_checkpoints(path("hangup/checkpoints"))->size(), 1u);

  auto words = command("nohup", "grpo", {"train.total_steps=4"});
  words.insert(words.begin(), "nohup");
  const auto staying = start(words);
  wait_for(path("nohup/metrics.jsonl"), *staying);
  send(*staying, SIGHUP);
  EXPECT_EQ(ending(*staying).end, "exited with status 0");
  EXPECT_EQ(steps_complete("nohup"), 4);
}

// A damaged checkpoint is refused by name, and the command line that the message offers works.
TEST_F(OneRun, DamagedCheckpointIsRefusedAndThePreviousOneWorks) {
  finish(command("damaged", "grpo", {"rollout.record=true"}));
  const auto whole = metrics("damaged");
  const std::string weights = path("damaged/checkpoints/step-000004/actor.weights.safetensors");
  fs::resize_file(weights, fs::file_size(weights) - 1);
  const Finished end = run_program(command("damaged", "grpo", {"checkpoint.resume=auto"}));
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr(weights));
  const std::string previous = "checkpoint.resume=" + path("damaged/checkpoints/step-000003");
  EXPECT_THAT(end.errors, HasSubstr(previous));
  finish(command("damaged", "grpo", {previous, "rollout.record=true"}));
  EXPECT_EQ(metrics("damaged"), whole);
  const std::string rollouts = path("damaged/rollouts.jsonl");
  EXPECT_EQ(read_rows(rollouts).size(), 32u);  // 4 steps of 8 samples
  EXPECT_TRUE(verify_checkpoint(path("damaged/checkpoints/step-000004")).ok());
}

TEST_F(OneRun, ContinuingUnderOtherOptionsIsAnError) {
  finish(command("options", "grpo", {"train.total_steps=1"}));
  const Finished end = run_program(
      command("options", "grpo", {"checkpoint.resume=auto", "data.seed=9", "optim.actor.lr=1"}));
  EXPECT_EQ(end.end, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("data.seed was '0', is '9'"));
  EXPECT_THAT(end.errors, HasSubstr("optim.actor.lr was '0.001', is '1'"));
}

TEST_F(OneRun, BadStateOptionsAreOneLineWithExitCodeTwo) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"checkpoint.resume=/no/such/folder", "/no/such/folder is not a checkpoint"},
      {"checkpoint.keep_last=0", "checkpoint.keep_last"},
      {"rollout.replay=/no/such/file", "/no/such/file"},
  };
  for (const auto& [option, message] : cases) {
    const Finished end = run_program(command("bad", "grpo", {option}));
    EXPECT_EQ(end.end, "exited with status 2") << option;
    EXPECT_THAT(end.errors, HasSubstr(message));
    EXPECT_FALSE(path_exists(path("bad"))) << "nothing is written";
  }
}

// Rollouts of one run, replayed by another under the same options, train to the same bytes.
TEST_F(OneRun, ReplayGivesTheSameBytes) {
  const std::string recorded = whole("ppo");
  const std::string replay = "rollout.replay=" + path(recorded + "/rollouts.jsonl");
  same_kernels(recorded, "replayed");
  finish(command("replayed", "ppo", {replay}));
  expect_same_run(recorded, "replayed");
  const Finished end = run_program(command("other", "ppo", {replay, "data.seed=5"}));
  EXPECT_EQ(end.end, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("rollouts.jsonl:1: prompt_ids of sample 0 are not those"));
}

// A reward whose square is no float: the update is refused, its batch written, and the run ends.
TEST_F(OneRun, AnUpdateThatIsNotFiniteEndsTheRun) {
  ASSERT_TRUE(make_folder(folder_).ok());
  std::string text;
  for (Json row : read_rows(path(whole("ppo") + "/rollouts.jsonl"))) {
    row["rewards"] = 1e30;
    text += row.dump() + "\n";
  }
  ASSERT_TRUE(write_file_atomic(path("huge.jsonl"), text).ok());
  const Finished end =
      run_program(command("huge", "ppo", {"rollout.replay=" + path("huge.jsonl")}));
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("is not finite in step 0; the update was not applied"));
  EXPECT_THAT(end.errors, HasSubstr(path("huge/nonfinite_step_0.jsonl")));
  EXPECT_FALSE(read_rows(path("huge/nonfinite_step_0.jsonl")).empty());
  EXPECT_FALSE(path_exists(path("huge/export")));
}

// The steps before such an update are saved, and the run goes on from there where it is skipped.
TEST_F(OneRun, AnUpdateThatIsNotFiniteLosesNoStep) {
  std::string text;
  for (Json row : read_rows(path(whole("ppo") + "/rollouts.jsonl"))) {
    if (row["step"] == 2) row["rewards"] = 1e30;
    text += row.dump() + "\n";
  }
  ASSERT_TRUE(write_file_atomic(path("later.jsonl"), text).ok());
  const std::vector<std::string> options = {"rollout.replay=" + path("later.jsonl"),
                                            "checkpoint.every_steps=0"};
  const Finished end = run_program(command("later", "ppo", options));
  EXPECT_EQ(end.end, "exited with status 1");
  EXPECT_THAT(end.errors, HasSubstr("is not finite in step 2; the update was not applied"));
  EXPECT_THAT(end.errors, HasSubstr("continue with checkpoint.resume=auto"));
  EXPECT_EQ(steps_kept("later"), 2);
  auto more = options;
  more.insert(more.end(), {"checkpoint.resume=auto", "train.on_nonfinite=skip"});
  finish(command("later", "ppo", more));
  EXPECT_EQ(metrics("later").size(), 4u);
}

TEST_F(OneRun, OneProcessWritesToARun) {
  const auto first = start(command("busy", "grpo", {"train.total_steps=1000"}));
  wait_for(path("busy/metrics.jsonl"), *first);
  const Finished end =
      run_program(command("busy", "grpo", {"checkpoint.resume=auto", "train.total_steps=1000"}));
  EXPECT_EQ(end.end, "exited with status 2");
  EXPECT_THAT(end.errors, HasSubstr("another process is writing to " + path("busy")));
  first->kill();
}

TEST_F(OneRun, ExportsAndKeepsWhatTheConfigurationAsks) {
  finish(command("kept", "grpo",
                 {"checkpoint.hf_every_steps=2", "checkpoint.keep_last=1",
                  "checkpoint.keep_best=min:data/prompts_seen"}));
  EXPECT_TRUE(path_exists(path("kept/export-step-000002/actor/model.safetensors")));
  EXPECT_TRUE(path_exists(path("kept/export-step-000004/actor/model.safetensors")));
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : *list_checkpoints(path("kept/checkpoints")))
    steps.push_back(info.at.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 4}));
}

}  // namespace
}  // namespace braid
