// `braid doctor` as a person runs it.
#include <gmock/gmock.h>

#include "host/testing.h"
#include "profile/self_check.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

TEST(SelfCheck, PassesHere) {
  const std::vector<SelfTestResult> results = run_self_test();
  EXPECT_EQ(results.size(), 3u);
  for (const SelfTestResult& result : results)
    EXPECT_TRUE(result.passed) << result.name << ": " << result.detail;
}

class DoctorCommand : public CommandTest {};

TEST_F(DoctorCommand, ReportsTheMachineAndItsChecks) {
  const CommandOutcome outcome = run_braid("doctor --dir " + join_path(folder_, "runs"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* name :
       {"libtorch", "oneDNN", "processor", "threads", "memory", "GPU", "ok    writing results",
        "ok    forward and backward", "ok    sampler against trainer", "ok    batch invariance"})
    EXPECT_THAT(outcome.output, HasSubstr(name));
  EXPECT_FALSE(path_exists(join_path(folder_, "runs"))) << "it leaves nothing behind";
}

TEST_F(DoctorCommand, AProgramWithoutItsEngineSaysWhatIsMissing) {
  const CommandOutcome outcome = run_shell(
      cat("cp ", BRAID_BINARY, " ", folder_, "/braid && ", folder_, "/braid doctor 2>&1"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("braid-engine is neither in "));
  EXPECT_THAT(run_shell(cat(folder_, "/braid doctor --help 2>&1")).output,
              HasSubstr("--time-limit"));
}

TEST_F(DoctorCommand, APlaceThatCannotBeWrittenFails) {
  const std::string file = write("file", "x");
  const CommandOutcome outcome = run_braid("doctor --dir " + file + "/runs");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("FAIL  writing results"));
  EXPECT_EQ(error_lines(outcome.output), 1);
}

}  // namespace
}  // namespace braid
