// Losses and advantages of the user's (docs/own_losses.md) in jobs of several ranks and in runs
// that go on, and libraries that are refused. BRAID_TEST_FULL=1 runs every layout.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algo/own_functions.h"
#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class OwnFunctions : public JobRun {
 protected:
  // The shipped example, built once.
  static std::string library() {
    std::string out = path("grpo.so");
    if (path_exists(out)) return out;
    EXPECT_TRUE(make_folder(folder_).ok());
    const CommandOutcome built = run_braid(cat("build-loss examples/own_loss/grpo.cc -o ", out));
    EXPECT_EQ(built.exit_code, 0) << built.output;
    return out;
  }

  // A library whose entry says other things than braid_loss.h would: `entry` are its first fields.
  static std::string forged(const std::string& name, const std::string& symbol,
                            const std::string& entry) {
    const std::string source = path(name + ".cc"), out = path(name + ".so");
    EXPECT_TRUE(make_folder(folder_).ok());
    const std::string text = cat(
        "// instead of BRAID_LOSS\nstruct Entry { int version; const char* torch; void* f; int ",
        "gradient; };\nextern \"C\" { extern const Entry ", symbol, "; const Entry ", symbol,
        " = {", entry, ", nullptr, 0}; }\n");
    EXPECT_TRUE(write_file_atomic(source, text).ok());
    const CommandOutcome built = run_braid(cat("build-loss ", source, " -o ", out));
    EXPECT_EQ(built.exit_code, 0) << built.output;
    return out;
  }

  static std::vector<std::string> with_own(std::vector<std::string> more) {
    more.insert(more.end(), {"algorithm.loss=" + library(), "algorithm.advantages=" + library()});
    return more;
  }

  static void expect_equivalent(const LayoutCase& layout) {
    SCOPED_TRACE(layout.name);
    const std::string one = "own-one", job = "job-" + layout.name;
    if (!path_exists(path(one + "/export")))
      finish(job_command(one, "grpo", with_own({"rollout.record=true"})));
    same_kernels(one, job);
    finish(job_command(job, "grpo",
                       with_own({"plan.file=" + write_plan(layout),
                                 "rollout.replay=" + path(one + "/rollouts.jsonl")})));
    if (HasFatalFailure()) return;
    expect_same_metrics(one, job);
    const Tensors left = weights_of(path(one + "/export/actor")),
                  right = weights_of(path(job + "/export/actor"));
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left)
      EXPECT_LE((tensor - right.at(name)).norm().item<double>(),
                kEquivalence * std::max(tensor.norm().item<double>(), 1e-4))
          << name;
  }
};

TEST_F(OwnFunctions, EveryLayoutComputesWhatOneProcessDoes) {
  const std::vector<LayoutCase> layouts = {
      {"own_dp2", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2")},
      {"own_tp2", "grpo", "1x2", everywhere("grpo", "tp: 2", "tp: 2"), true},
      {"own_pp2", "grpo", "1x2", everywhere("grpo", "dp: 2", "pp: 2, micro_batches: 2")},
      {"own_zero3", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, zero: 3"), true}};
  for (const LayoutCase& layout : layouts)
    if (!layout.full || full_tier()) expect_equivalent(layout);
}

// Its own metrics are there beside Braid's, whose names it could not have taken.
TEST_F(OwnFunctions, MetricsAreBesideThoseOfBraid) {
  finish(command("own-metrics", "grpo", with_own({"train.total_steps=1"})));
  int own = 0;
  const std::vector<Json> rows = metrics("own-metrics");
  for (const auto& [name, value] : rows.at(0).items()) {
    if (name == "step") continue;
    own += name == "own/ratio_mean" ? 1 : 0;
    EXPECT_NE(is_metric_of_braid(name), name.rfind("own/", 0) == 0) << name;
  }
  EXPECT_EQ(own, 1);
}

TEST_F(OwnFunctions, ARunGoesOnAsIfItHadNeverStopped) {
  finish(command("own-whole", "grpo", with_own({})));
  same_kernels("own-whole", "own-parts");
  finish(command("own-parts", "grpo", with_own({"train.total_steps=2"})));
  const std::vector<std::string> on = {"checkpoint.resume=auto"};
  std::vector<std::string> other = on;
  const std::string twin = path("twin.so");
  std::filesystem::copy_file(library(), twin);
  other.insert(other.end(), {"algorithm.loss=" + twin, "algorithm.advantages=" + library()});
  const Finished refused = run_program(command("own-parts", "grpo", other));
  EXPECT_EQ(refused.end, "exited with status 2") << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("algorithm.loss"));
  finish(command("own-parts", "grpo", with_own(on)));
  if (!HasFatalFailure()) expect_same_run("own-whole", "own-parts");
}

// A library that was built again from another source under the same name is no longer the run's.
TEST_F(OwnFunctions, ALibraryThatChangedIsRefusedByARunThatGoesOn) {
  const std::string own = path("changing.so");
  ASSERT_TRUE(make_folder(folder_).ok());
  ASSERT_EQ(run_braid(cat("build-loss examples/own_loss/grpo.cc -o ", own)).exit_code, 0);
  const auto with = [&](std::vector<std::string> more) {
    more.push_back("algorithm.loss=" + own);
    return command("own-changing", "grpo", more);
  };
  finish(with({"train.total_steps=1", "checkpoint.every_steps=1"}));
  const std::string source = path("changed.cc");
  std::string text = *read_file(cat(BRAID_SOURCE_DIR, "/examples/own_loss/grpo.cc"));
  ASSERT_TRUE(write_file_atomic(source, text + "\nextern const int another = 1;\n").ok());
  ASSERT_EQ(run_braid(cat("build-loss ", source, " -o ", own)).exit_code, 0);
  const Finished refused = run_program(with({"train.total_steps=2", "checkpoint.resume=auto"}));
  EXPECT_EQ(refused.end, "exited with status 2") << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("algorithm.loss: the file is not the one that the run was "
                                        "trained with"));
  finish(
      with({"train.total_steps=2", "checkpoint.resume=auto", "checkpoint.allow=[algorithm.loss]"}));
}

TEST_F(OwnFunctions, LibrariesThatCannotBeUsedAreRefusedBeforeARun) {
  const std::string other_version = forged("version", "braid_own_loss_entry", R"(99, "1.0")");
  const std::string other_torch = forged("torch", "braid_own_loss_entry", R"(1, "1.0")");
  const std::string no_loss = forged("none", "something_else", R"(1, "1.0")");
  const auto expect_refused = [](const std::string& key, const std::string& file,
                                 const std::string& why) {
    SCOPED_TRACE(file);
    for (const bool dry : {true, false}) {
      auto argv = command("own-refused", "grpo", {cat(key, "=", file), "train.total_steps=1"});
      if (dry) argv.push_back("--dry-run");
      const Finished refused = run_program(argv);
      EXPECT_THAT(refused.end, testing::AnyOf("exited with status 2", "exited with status 1"));
      EXPECT_THAT(refused.errors, AllOf(HasSubstr(cat(key, ": ", file)), HasSubstr(why)));
    }
  };
  expect_refused("algorithm.loss", other_version, "was built for another version of Braid");
  expect_refused("algorithm.loss", other_torch, "was built with libtorch 1.0, Braid with ");
  expect_refused("algorithm.loss", no_loss, "its source has no BRAID_LOSS");
  expect_refused("algorithm.advantages", no_loss, "its source has no BRAID_ADVANTAGES");
  expect_refused("algorithm.loss", path("nowhere.so"), "build it again with 'braid build-loss'");
}

}  // namespace
}  // namespace braid
