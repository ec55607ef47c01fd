// braid fuse as a person runs it: results checked by a program of its own, options, and errors.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/testing.h"
#include "base/text.h"
#include "commands/plan/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CommandOutcome run_fuse(const std::string& arguments) {
  return run_shell(cat(BRAID_BINARY, " fuse ", arguments, " 2>&1"));
}

// Two models in opposite directions, one in a V; lag, fractions, uneven stages.
const char* const kProblem = R"({"nodes": 4, "pipelines": [
  {"name": "actor", "stages": [0, 1, 2, 3, 3, 2, 1, 0], "micro_batches": 6, "forward": 1.1,
   "backward": 2.2, "memory": 1},
  {"name": "critic", "stages": [3, 2, 1, 0], "micro_batches": 5, "forward": [1, 1, 1, 1.5],
   "backward": [2, 2, 2, 3], "weight": WEIGHT, "memory": [0.5, 0.5, 0.5, 0.7]}],
  "communication": 0.05, "memory_limit": 9})";

std::string problem_with(const std::string& weight) {
  std::string text = kProblem;
  return text.replace(text.find("WEIGHT"), 6, weight);
}

TEST(FuseCommand, AnIndependentCheckerAgrees) {
  const std::string out = temporary("fused.json");
  struct Case {
    std::string weight, options;
    bool memory = false;
  };
  const std::vector<Case> cases = {{"null", "", false},
                                   {"0.5", "", true},
                                   {"null", " --split-backward", true},
                                   {"0.5", " --split-backward --memory-limit 7", false}};
  for (const Case& one : cases) {
    SCOPED_TRACE(cat(one.weight, one.options));
    const std::string problem = write_temporary("fuse_problem.json", problem_with(one.weight));
    const CommandOutcome ran =
        run_fuse(cat(problem, " --max-units 6 --json --out ", out, one.options,
                     one.memory ? " --objective memory" : " --objective latency"));
    ASSERT_EQ(ran.exit_code, 0) << ran.output;
    const CommandOutcome checked =
        run_shell(cat("python3 ", BRAID_SOURCE_DIR, "/tools/check_fused.py ", problem, " ", out,
                      one.options, " 2>&1"));
    EXPECT_EQ(checked.exit_code, 0) << checked.output;
    const Json report = Json::parse(ran.output), file = Json::parse(read_text(out));
    for (const char* key : {"makespan", "lower_bound", "peak_memory"})
      EXPECT_EQ(report[key], file[key]) << key;
    EXPECT_EQ(report["optimal"].get<bool>(), report["makespan"] == report["lower_bound"]);
  }
}

TEST(FuseCommand, TheCheckerFindsAnOpThatComesTooEarly) {
  const std::string problem = write_temporary("fuse_problem.json", problem_with("null"));
  const std::string out = temporary("fused.json");
  ASSERT_EQ(run_fuse(cat(problem, " --max-units 1 --out ", out)).exit_code, 0);
  Json file = Json::parse(read_text(out));
  file["nodes"][1][0]["start"] = 0;
  file["nodes"][1][0]["end"] = 1.1;
  write_temporary("fused.json", file.dump());
  const CommandOutcome checked = run_shell(
      cat("python3 ", BRAID_SOURCE_DIR, "/tools/check_fused.py ", problem, " ", out, " 2>&1"));
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_THAT(checked.output, HasSubstr("its input is there at"));
}

TEST(FuseCommand, SeedAndUnitsFixTheScheduleForAnyThreads) {
  const std::string problem = write_temporary("fuse_problem.json", problem_with("0.5"));
  std::vector<std::string> schedules;
  for (const int threads : {1, 3}) {
    const std::string out = temporary("fused.json");
    const CommandOutcome ran = run_fuse(cat(
        problem, " --max-units 9 --seed 4 --memory-limit 6 --threads ", threads, " --out ", out));
    ASSERT_EQ(ran.exit_code, 0) << ran.output;
    schedules.push_back(read_text(out));
  }
  EXPECT_EQ(schedules[0], schedules[1]);
}

TEST(FuseCommand, TheCommandLineWinsOverTheFile) {
  const std::string problem = write_temporary("fuse_problem.json", problem_with("null"));
  const CommandOutcome file = run_fuse(cat(problem, " --json --max-units 4"));
  const CommandOutcome line = run_fuse(cat(problem, " --json --max-units 4 --memory-limit 4"));
  ASSERT_EQ(file.exit_code, 0) << file.output;
  ASSERT_EQ(line.exit_code, 0) << line.output;
  EXPECT_GT(Json::parse(file.output)["peak_memory"].get<double>(), 4);
  EXPECT_LE(Json::parse(line.output)["peak_memory"].get<double>(), 4);
}

TEST(FuseCommand, BadProblemsAndOptionsSayWhatToMend) {
  const std::string good = write_temporary("fuse_problem.json", problem_with("null"));
  std::string text = problem_with("null");
  const std::string nowhere = write_temporary(
      "bad_problem.json", text.replace(text.find("[3, 2, 1, 0]"), 12, "[4, 2, 1, 0]"));
  struct Case {
    std::string problem, options, says, remedy;
  };
  const std::vector<Case> cases = {
      {nowhere, "", "stage 0 is on node 4", "nodes are 0 to 3"},
      {good, "--memory-limit 1", "more than memory_limit 1", "raise the limit"},
      {good, "--time-limit 0", "--time-limit", "positive number"},
      {good, "--max-units 0", "--max-units", "at least 1"},
      {good, "--plot x.png", "x.png", ".svg or .html"},
      {"no_such_file.json", "", "no_such_file.json", "No such file"},
  };
  for (const Case& bad : cases) {
    const CommandOutcome ran = run_fuse(cat(bad.problem, " ", bad.options));
    EXPECT_NE(ran.exit_code, 0) << bad.says;
    EXPECT_THAT(ran.output, AllOf(HasSubstr(bad.says), HasSubstr(bad.remedy)));
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
  }
}

TEST(FuseCommand, PlotIsAPicture) {
  const std::string problem = write_temporary("fuse_problem.json", problem_with("null"));
  const std::string plot = temporary("fused.svg");
  const CommandOutcome ran = run_fuse(cat(problem, " --max-units 1 --plot ", plot));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("lower bound"));
  EXPECT_THAT(read_text(plot), AllOf(HasSubstr("<svg"), HasSubstr("actor"), HasSubstr("</svg>")));
}

}  // namespace
}  // namespace braid
