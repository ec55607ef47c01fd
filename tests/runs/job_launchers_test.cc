// Jobs whose ranks an MPI launcher or Slurm starts: the run of ranks that the program starts
// itself. Where a launcher is not installed, or no Slurm cluster answers, its test is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

bool works(const std::string& command) {
  return run_shell("timeout 10 " + command + " > /dev/null 2>&1").exit_code == 0;
}

// Open MPI does not run as root, nor more processes than there are cores, unless it is told to.
std::string mpirun(int ranks) {
  const std::string root = ::geteuid() == 0 ? " --allow-run-as-root" : "";
  return cat("mpirun", root, " --oversubscribe -np ", ranks);
}

// Slurm shares a core among tasks where the step overcommits it.
std::string srun(int ranks) { return cat("srun --overcommit -n ", ranks); }

class JobLaunchers : public JobRun {
 protected:
  static std::vector<std::string> two_ranks(const std::string& name) {
    const std::string plan = write_plan({"launchers", "grpo", "1x2",
                                         "  generate: {mesh: all, dp: 2}\n  old_logprob: {mesh: 0}"
                                         "\n  ref_logprob: {mesh: 1}\n  update_actor: {mesh: all, "
                                         "pp: 2}\n"});
    return command(name, "grpo", {"plan.file=" + plan, "train.threads=1"});
  }

  static void expect_same_job(const std::string& name, const std::string& launcher,
                              const std::string& one_too_many) {
    const std::string own = "launchers-own";
    if (!path_exists(path(own + "/export"))) finish(two_ranks(own));
    same_kernels(own, name);
    const CommandOutcome end = shell(launcher, two_ranks(name));
    ASSERT_EQ(end.exit_code, 0) << end.output;
    EXPECT_EQ(metrics(own), metrics(name));
    EXPECT_EQ(hashes(path(own + "/export")), hashes(path(name + "/export")));
    const CommandOutcome refused = shell(one_too_many, two_ranks(name + "-3"));
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.output, HasSubstr("the plan is for 2 devices, but "));
    EXPECT_THAT(refused.output, HasSubstr("started 3 processes"));
  }
};

// Ranks that are told that each has a machine of its own: the first one looks where the files of
// weights lie.
TEST_F(JobLaunchers, RanksOfSeveralMachinesSayWhoReadsTheWeights) {
  const std::string plan =
      write_plan({"machines", "grpo", "2x1", everywhere("grpo", "dp: 2", "dp: 2")});
  std::string words;
  for (const std::string& word :
       command("machines", "grpo", {"plan.file=" + plan, "train.threads=1", "train.total_steps=1"}))
    words += " '" + word + "'";
  const std::string machine =
      cat(" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=",
          20000 + ::getpid() % 20000, words);
  const CommandOutcome end =
      run_shell(cat("(RANK=1", machine, " 2>&1) & RANK=0", machine, " 2>&1; a=$?; wait; exit $a"));
  EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("runtime.load: auto is "));
}

TEST_F(JobLaunchers, MpirunStartsTheRanks) {
  if (!works(mpirun(2) + " true")) GTEST_SKIP() << "mpirun is not installed, or starts nothing";
  expect_same_job("mpirun", mpirun(2), mpirun(3));
}

TEST_F(JobLaunchers, SrunStartsTheRanks) {
  if (!works(srun(2) + " true")) GTEST_SKIP() << "no Slurm cluster answers";
  expect_same_job("srun", srun(2), srun(3));
}

}  // namespace
}  // namespace braid
