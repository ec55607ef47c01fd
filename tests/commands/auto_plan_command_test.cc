// plan.auto beside a run that goes on in the same folder, and in processes that were started apart.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"
#include "host/file.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

// The example with more words, after those of `env`.
Finished train_automatically(const std::vector<std::string>& environment,
                             const std::vector<std::string>& more) {
  std::vector<std::string> argv = {"env"};
  argv.insert(argv.end(), environment.begin(), environment.end());
  argv.insert(argv.end(),
              {BRAID_BINARY, "train", cat(BRAID_SOURCE_DIR, "/examples/cluster/grpo.yaml"),
               cat("model.config=", BRAID_SOURCE_DIR, "/examples/quickstart/model/config.json"),
               cat("tokenizer.path=", BRAID_SOURCE_DIR, "/examples/quickstart/model"),
               "cluster={gpu: this-machine, nodes: 1, gpus_per_node: 2}"});
  argv.insert(argv.end(), more.begin(), more.end());
  return run_program(argv);
}

TEST(AutoPlanCommand, RanksThatWereStartedApartSearchNothing) {
  for (const char* key : {"plan.auto=true", "placement=auto"}) {
    const Finished rank =
        train_automatically({"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
                             "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"},
                            {key});
    EXPECT_EQ(rank.end, "exited with status 2") << rank.errors;
    EXPECT_THAT(
        rank.errors,
        testing::AllOf(testing::HasSubstr(" started 2 processes, each of which would "),
                       testing::HasSubstr("start them with plan.file=PLAN.yaml plan.auto=false "
                                          "plan.staleness=0")));
  }
}

TEST(AutoPlanCommand, LeavesThePlanOfARunThatGoesOn) {
  const std::string folder = cat(testing::TempDir(), "/braid_auto_plan_", ::getpid());
  ASSERT_TRUE(make_folder(folder + "/here").ok());
  const std::string plan = folder + "/here/plan.yaml";
  ASSERT_TRUE(write_file_atomic(plan, "of the run that goes on\n").ok());
  const int held = ::open((folder + "/here/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);

  const Finished run =
      train_automatically({}, {"plan.auto=true", cat("run.dir=", folder), "run.name=here"});
  EXPECT_EQ(run.end, "exited with status 2") << run.errors;
  EXPECT_THAT(run.errors, testing::HasSubstr("run.name: another process is writing to "));
  EXPECT_EQ(*read_file(plan), "of the run that goes on\n");

  ::close(held);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace braid
