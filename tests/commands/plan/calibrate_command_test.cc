// `braid validate` and `braid calibrate` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include "base/json.h"
#include "base/testing.h"
#include "base/text.h"
#include "calibrate/measurement.h"
#include "host/file.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::string repository_text(const std::string& path) {
  return *read_file(join_path(BRAID_SOURCE_DIR, path));
}

CommandOutcome braid_command(const std::string& arguments) {
  return run_shell(cat("'", BRAID_BINARY, "' ", arguments, " 2>&1"));
}

class CostCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (access(BRAID_BINARY, X_OK) != 0)
      GTEST_SKIP() << "the program is not built: " << BRAID_BINARY;
  }
  void TearDown() override { unlink(file_.c_str()); }

  void write(const std::string& text) { std::ofstream(file_) << text; }

  std::string file_ = cat(testing::TempDir(), "/braid_cost_", ::getpid());
  std::string memory_ = cat(BRAID_SOURCE_DIR, "/examples/measurements/memory.csv");
};

TEST_F(CostCommand, ValidateWritesEveryRowAndPrintsGoals) {
  const CommandOutcome done = braid_command(cat("validate '", memory_, "' --json '", file_, "'"));
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("memory median error %"));
  std::ifstream in(file_);
  const Json json = Json::parse(in);
  EXPECT_EQ(json.at("rows").size(),
            parse_measurements(repository_text("examples/measurements/memory.csv"), "m")->size());
  for (const Json& row : json.at("rows")) {
    if (!row.at("supported").get<bool>()) continue;
    EXPECT_THAT(row.at("fits").get<std::string>(), testing::AnyOf("yes", "no", "uncertain"));
  }
}

TEST_F(CostCommand, BrokenFilesEndWithCodeTwoAndTheirLine) {
  write("id,kind\n1\n");
  const CommandOutcome broken = braid_command(cat("validate '", file_, "'"));
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.output, HasSubstr(cat(file_, ":2: 1 cells, but the header has 2")));
  write("");
  EXPECT_EQ(braid_command(cat("validate '", file_, "'")).exit_code, 2);
  EXPECT_EQ(braid_command("validate /nonexistent.csv").exit_code, 2);
  for (const char* options :
       {"--folds 1", "--folds 2 --leave-one-engine-out", "--folds 2 --calibration c.json"})
    EXPECT_EQ(braid_command(cat("validate '", memory_, "' ", options)).exit_code, 2) << options;
}

TEST_F(CostCommand, UnknownWordsMakeARowUnsupported) {
  std::string text = repository_text("examples/measurements/measurements.csv");
  const size_t at = text.find(",grpo,");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 6, ",gspo,");
  write(text);
  const std::string out = file_ + ".json";
  const CommandOutcome done = braid_command(cat("validate '", file_, "' --json '", out, "'"));
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("1 x algorithm 'gspo' is none of: ppo grpo dapo"));
  std::ifstream in(out);
  const Json json = Json::parse(in);
  int named = 0;
  for (const Json& row : json.at("rows")) {
    const bool is_it = row.at("reason").get<std::string>().rfind("algorithm 'gspo'", 0) == 0;
    named += is_it;
    EXPECT_TRUE(!is_it || row.at("supported") == false);
  }
  EXPECT_EQ(named, 1);
  unlink(out.c_str());
}

TEST_F(CostCommand, CalibrateFromALogPrintsErrorsBeforeAndAfter) {
  std::string log;
  for (int i = 0; i < 6; ++i)
    log += cat("{\"step\":", i, ",\"time/generate\":", 1 + 0.5 * i, ",\"time/step\":", 3 + i,
               ",\"length/response_mean\":", 10 + 5 * i, ",\"length/prompt_mean\":5}\n");
  write(log);
  const CommandOutcome done = braid_command(cat("calibrate --from-log braid '", file_, "'"));
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("after:  refit from the first 3 steps"));
  EXPECT_THAT(done.output, HasSubstr("generate"));
  for (const std::string& arguments :
       {cat("--from-log trl '", file_, "'"), cat("--from-log braid '", file_, "' --report r.txt"),
        cat("'", memory_, "' --workload '", memory_, "'"),
        cat("--from-log braid '", file_, "' --workload '", memory_, "'")}) {
    const CommandOutcome refused = braid_command(cat("calibrate ", arguments));
    EXPECT_EQ(refused.exit_code, 2) << arguments;
    EXPECT_EQ(std::count(refused.output.begin(), refused.output.end(), '\n'), 1) << refused.output;
  }
}

}  // namespace
}  // namespace braid
