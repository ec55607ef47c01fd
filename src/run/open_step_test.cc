// A step that fails at any of its instructions: what is left goes on bit for bit, in the same
// process and from a checkpoint.
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <new>

#include "base/testing.h"
#include "host/file.h"
#include "identity/fingerprint.h"
#include "nn/safetensors.h"
#include "plan/make_problem.h"
#include "plan/validate.h"
#include "run/export_checkpoint.h"
#include "session/testing.h"

namespace braid::inline run {
namespace {

using testing::HasSubstr;
using Row = std::map<std::string, double>;

// "grpo-carried": its steps leave samples to the next.
Config several_updates(const std::string& name) {
  Config config = tiny_run(name.substr(0, name.find('-')));
  if (name.ends_with("-carried")) carry_samples(&config);
  config.train.epochs_per_rollout = 2;
  config.optim.actor.schedule = "cosine";
  if (config.algorithm.kl.in == "reward") config.algorithm.kl.controller = "adaptive";
  return config;
}

// Fails instruction number `n` (from 0) of those that the step executes.
Status fail_at(Session& session, int n) {
  int executed = 0;
  return session
      .run_step([&](size_t) {
        if (executed++ == n) throw std::bad_alloc();
      })
      .status();
}

// "ppo-fused": one rank whose updates of critic and actor are fused.
Program program_named(const std::string& name, const Config& config) {
  if (name != "ppo-fused") return *compile(*configured_graph(config));
  const auto problem =
      make_problem(config, [](const std::string& path) { return read_file(path); });
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  ExecutionPlan plan = trivial_plan(*problem);
  plan.fusion.train_schedules = true, plan.fusion.units = 1;
  for (CallPlan& call : plan.calls)
    if (call.call.starts_with("update_"))
      call.strategy.micro_batches = call.call == "update_actor" ? 2 : 1;
  const auto program = compile(plan, *problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->fused.size(), 1u);
  return *program;
}

class OpenStep : public testing::TestWithParam<const char*> {
 protected:
  OpenStep() : config_(several_updates(GetParam())), program_(program_named(GetParam(), config_)) {
    whole_ = session_of(config_, program_);
    EXPECT_TRUE(whole_->run_step().ok());
    second_ = timeless(*whole_->run_step([this](size_t) { ++instructions_; }));
  }

  // The session ends its second step as the uninterrupted one did.
  void expect_same_end(Session& session) const {
    const auto row = session.run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    EXPECT_EQ(timeless(*row), second_);
    EXPECT_TRUE(same_weights(session, *whole_));
    EXPECT_EQ(session.save_state()->numbers, whole_->save_state()->numbers);
  }

  // braid export of a checkpoint gives the session's weights, also those within a step.
  static void expect_same_export(const std::string& checkpoint, Session& session) {
    const std::string own = checkpoint + "-own", exported = checkpoint + "-exported";
    ASSERT_TRUE(session.export_models(own).ok());
    const Status status = export_checkpoint(checkpoint, exported, {});
    ASSERT_TRUE(status.ok()) << status.message();
    const std::string weights = "/actor/model.safetensors";
    EXPECT_TRUE(*read_file(own + weights) == *read_file(exported + weights));
  }

  const Config config_;
  const Program program_;
  std::unique_ptr<Session> whole_;
  Row second_;
  int instructions_ = 0;  // of the second step
};

TEST_P(OpenStep, FailureAtAnyInstructionLosesNothing) {
  const std::string folder = join_path(testing::TempDir(), cat("open-", ::getpid()));
  int open = 0, closed = 0;
  for (int n = 0; n < instructions_; n += full_tier() ? 1 : 9) {
    SCOPED_TRACE(cat("instruction ", n, " of ", instructions_));
    const auto failed = session_of(config_, program_), resumed = session_of(config_, program_);
    ASSERT_TRUE(failed->run_step().ok());
    const Status status = fail_at(*failed, n);
    ASSERT_EQ(status.code(), Code::kOutOfMemory);
    EXPECT_THAT(status.message(), HasSubstr("lower train.micro_tokens"));
    ++(failed->step_open() ? open : closed);
    const auto path =
        save_checkpoint(folder, {failed->step(), failed->step_open()}, {}, *failed->save_state());
    ASSERT_TRUE(path.ok()) << path.status().message();
    const Status loaded = resumed->load_state(*CheckpointReader::open(*path));
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    if (failed->step_open() && open == 1) expect_same_export(*path, *failed);
    expect_same_end(*resumed);
    expect_same_end(*failed);
  }
  EXPECT_GT(open, 0);
  EXPECT_GT(closed, 0);
  std::filesystem::remove_all(folder);
}

// A second failure further on keeps what was done since the first.
TEST_P(OpenStep, FailsAgainAndGoesOn) {
  const auto session = session_of(config_, program_);
  ASSERT_TRUE(session->run_step().ok());
  ASSERT_FALSE(fail_at(*session, instructions_ - 8).ok());
  ASSERT_TRUE(session->step_open());
  ASSERT_FALSE(fail_at(*session, 4).ok());
  expect_same_end(*session);
}

INSTANTIATE_TEST_SUITE_P(Names, OpenStep,
                         testing::Values("ppo", "grpo", "ppo-fused", "grpo-carried"));

TEST(OpenStepState, NumbersSurviveExactly) {
  StepProgress progress;
  progress.next = 12;
  progress.metrics["a"].add(0.1);
  progress.metrics["b"].add(-INFINITY);
  progress.seconds["generate"] = 0.3;
  progress.trained_tokens = 77;
  progress.trainings["update_actor"] = {3, true, {}};
  progress.trainings["update_actor"].metrics["c"].add(1e-300);
  progress.trainings["update_critic"] = {2, false, {}};
  const Json json = progress_json(progress);
  const auto read = parse_progress(*parse_json(json.dump(), "test"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(progress_json(*read), json);
  EXPECT_EQ(read->metrics.at("b").sum, -INFINITY);
  EXPECT_EQ(read->trainings.at("update_critic").minibatch, 2u);
  for (const char* key : {"next", "metrics", "trainings"}) {
    Json lacking = json;
    lacking.erase(key);
    EXPECT_THAT(parse_progress(lacking).status().message(), HasSubstr(key));
  }
  for (const char* key : {"minibatch", "stopped", "metrics"}) {
    Json lacking = json;
    lacking["trainings"]["update_actor"].erase(key);
    EXPECT_THAT(parse_progress(lacking).status().message(), HasSubstr(key));
  }
}

// Weights that are frozen are fingerprinted when they are loaded, and a state of other ones is
// refused.
TEST(Fingerprints, OtherFrozenWeightsAreRefused) {
  const Config config = tiny_run("ppo");
  const Program program = program_of(config);
  CheckpointState state = *session_of(config, program)->save_state();
  ASSERT_TRUE(state.numbers["frozen"].contains("reference")) << state.numbers["frozen"];
  state.numbers["frozen"]["reference"]["sha256"] = "0";
  EXPECT_THAT(session_of(config, program)->load_state(state).message(),
              HasSubstr("model.config: the weights of reference are not those"));
  Config allowing = config;
  allowing.checkpoint.allow = {"model.config"};
  EXPECT_TRUE(session_of(allowing, program)->load_state(state).ok());
}

// Where no process has a whole model, its files tell: of the same weights in any number of files.
TEST(Fingerprints, StoredWeightsAreTheSameInAnyFiles) {
  using File = std::vector<std::pair<std::string, at::Tensor>>;
  Config config = tiny_run("ppo");
  const auto stored = [&](const std::string& name, const std::vector<File>& files) {
    const std::string folder = join_path(testing::TempDir(), cat(name, "-", ::getpid()));
    EXPECT_TRUE(make_folder(folder).ok());
    Json places;
    for (const File& file : files) {
      const std::string path = cat("of-", file.front().first, ".safetensors");
      EXPECT_EQ(write_safetensors(join_path(folder, path), file), Status());
      for (const auto& [tensor, values] : file) places[tensor] = path;
    }
    const std::string index = Json{{"weight_map", places}}.dump();
    EXPECT_TRUE(write_file_atomic(folder + "/model.safetensors.index.json", index).ok());
    config.reference.path = folder;
    const auto out = stored_fingerprints(config, *configured_graph(config));
    EXPECT_TRUE(out.ok()) << out.status().message();
    std::filesystem::remove_all(folder);
    return *out;
  };
  const at::Tensor large = at::arange(30'000, at::kFloat), small = at::arange(3, at::kFloat);
  const Json whole = stored("whole", {{{"a", large}, {"b", small}}});
  EXPECT_EQ(whole.size(), 1u) << whole;  // the other roles have random weights
  EXPECT_EQ(whole["reference"]["key"], "reference.path");
  EXPECT_EQ(stored("parts", {{{"b", small}}, {{"a", large}}}), whole);
  for (const auto& [tensor, index] : {std::pair(large, 29'999), std::pair(small, 0)}) {
    const at::Tensor was = tensor[index].clone();
    tensor[index].add_(1);
    const Json other = stored("other", {{{"a", large}, {"b", small}}});
    tensor[index].copy_(was);
    EXPECT_THAT(check_same_weights(whole, other, {}).message(),
                HasSubstr("reference.path: the weights of reference are not those"));
    EXPECT_EQ(check_same_weights(whole, other, {"reference.path"}), Status());
    // What is in memory decides where both know it; of an older checkpoint nothing else is known.
    Json saved = whole, now = other;
    saved["reference"]["sha256"] = now["reference"]["sha256"] = "1";
    EXPECT_EQ(check_same_weights(saved, now, {}), Status());
    saved["reference"].erase("pieces_sha256");
    EXPECT_EQ(check_same_weights(saved, other, {}), Status());
  }
}

TEST(Fingerprints, SeeEveryByteNameAndShape) {
  const at::Tensor values = at::arange(3'000'000, at::kFloat);  // more than one block
  const std::string whole = weights_fingerprint({{"w", values}});
  at::Tensor changed = values.clone();
  changed[2'999'999] = 0;
  EXPECT_NE(weights_fingerprint({{"w", changed}}), whole);
  EXPECT_NE(weights_fingerprint({{"v", values}}), whole);
  EXPECT_NE(weights_fingerprint({{"w", values.view({3, -1})}}), whole);
  EXPECT_EQ(weights_fingerprint({{"w", values.clone()}}), whole);
}

}  // namespace
}  // namespace braid::inline run
