// The shipped example of log.command, with a stand-in for the wandb package.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "host/file.h"
#include "report/command_log.h"
#include "test_paths.h"

namespace braid::inline report {
namespace {

// Writes what it is told to a file.
constexpr const char* kStandIn = R"(
import os

class Run:
    def save(self, path, policy):
        self.note('save', os.path.basename(path))
    def log(self, metrics, step):
        self.note('log', step, sorted(metrics.items()))
    def finish(self):
        self.note('finish')
    def note(self, *what):
        with open(os.environ['WANDB_STAND_IN'], 'a') as out:
            print(*what, file=out)

def init(project, name):
    run = Run()
    run.note('init', project, name)
    return run
)";

TEST(WandbExample, PassesEveryRowOn) {
  const std::string folder = cat(testing::TempDir(), "/braid_wandb_", ::getpid());
  ASSERT_TRUE(make_folder(folder).ok());
  ASSERT_TRUE(write_file_atomic(join_path(folder, "wandb.py"), kStandIn).ok());
  ASSERT_TRUE(write_file_atomic(join_path(folder, "config.yaml"), "run: {}\n").ok());
  const std::string notes = join_path(folder, "notes");
  const std::string script = std::string(BRAID_SOURCE_DIR) + "/examples/wandb/wandb_log.py";
  auto log = CommandLog::start(
      {{"env", "PYTHONPATH=" + folder, "WANDB_STAND_IN=" + notes, "python3", script, "--project",
        "p", "--name", "n", "--config", join_path(folder, "config.yaml")},
       60,
       true});
  ASSERT_TRUE(log.ok()) << log.status().message();
  ASSERT_TRUE(log->write({{"step", -1}, {"eval/accuracy", 0.5}}).ok());
  ASSERT_TRUE(log->write({{"step", 0}, {"a", 1.5}, {"b", nullptr}}).ok());
  const Status finished = log->finish();
  EXPECT_TRUE(finished.ok()) << finished.message();
  EXPECT_EQ(*read_file(notes),
            "init p n\nsave config.yaml\nlog 0 [('eval/accuracy', 0.5)]\nlog 0 [('a', 1.5)]\n"
            "finish\n");
  std::filesystem::remove_all(folder);
}

constexpr const char* kMlflowStandIn = R"(
import contextlib, os

def note(*what):
    with open(os.environ['MLFLOW_STAND_IN'], 'a') as out:
        print(*what, file=out)

def set_experiment(name): note('experiment', name)

@contextlib.contextmanager
def start_run(run_name):
    note('run', run_name)
    yield
    note('end')

def log_artifact(path): note('artifact', os.path.basename(path))
def log_metrics(metrics, step): note('log', step, sorted(metrics.items()))
)";

TEST(Trackers, PassEveryRowOnByTheirPackages) {
  const std::string folder = cat(testing::TempDir(), "/braid_trackers_", ::getpid());
  const std::string run = join_path(folder, "my-run");
  ASSERT_TRUE(make_folder(run).ok());
  ASSERT_TRUE(write_file_atomic(join_path(folder, "wandb.py"), kStandIn).ok());
  ASSERT_TRUE(write_file_atomic(join_path(folder, "mlflow.py"), kMlflowStandIn).ok());
  ASSERT_TRUE(write_file_atomic(join_path(run, "config.yaml"), "run: {}\n").ok());
  const std::string notes = join_path(folder, "notes");
  for (const char* name : {"WANDB_STAND_IN", "MLFLOW_STAND_IN"}) ::setenv(name, notes.c_str(), 1);
  ::setenv("PYTHONPATH", folder.c_str(), 1);
  for (const char* tracker : {"wandb", "mlflow"}) {
    auto options = tracker_log(tracker, "p", run);
    ASSERT_TRUE(options.ok()) << options.status().message();
    options->stop_on_error = true;
    auto log = CommandLog::start(*options);
    ASSERT_TRUE(log.ok()) << log.status().message();
    ASSERT_TRUE(log->write({{"step", 0}, {"a", 1.5}, {"b", nullptr}}).ok());
    const Status finished = log->finish();
    EXPECT_TRUE(finished.ok()) << finished.message();
  }
  ::unsetenv("PYTHONPATH");
  EXPECT_EQ(*read_file(notes),
            "init p my-run\nsave config.yaml\nlog 0 [('a', 1.5)]\nfinish\n"
            "experiment p\nrun my-run\nartifact config.yaml\nlog 0 [('a', 1.5)]\nend\n");
  std::filesystem::remove_all(folder);
}

TEST(Trackers, AMissingPackageIsRefusedWithTheCommandThatInstallsIt) {
  const auto options = tracker_log("no_such_tracker", "p", "runs/x");
  EXPECT_EQ(options.status().code(), Code::kNotFound);
  EXPECT_NE(options.status().message().find("pip install no_such_tracker"), std::string::npos);
}

}  // namespace
}  // namespace braid::inline report
