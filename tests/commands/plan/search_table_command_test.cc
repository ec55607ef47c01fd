// braid search-table as a person runs it, on the problems of tests/data/search_problems: every
// reference plan's price, and the proven optima.
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

CommandOutcome run_search_table(const std::string& arguments) {
  return run_braid("search-table " + arguments);
}

using ::testing::HasSubstr;

const std::string kFolder = std::string(BRAID_SOURCE_DIR) + "/tests/data/search_problems/";

Json references() { return Json::parse(read_text(kFolder + "reference_plans.json"))["problems"]; }

std::string problem_path(const Json& reference) {
  return cat(kFolder, reference["problem"].get<std::string>(), ".json.gz");
}

TEST(SearchTableCommand, PricesEveryReferencePlanExactly) {
  int priced = 0;
  for (const Json& reference : references())
    for (const Json& plan : reference["plans"]) {
      const Json choices = {{"choices", plan["choices"]}};
      const std::string path = write_temporary("reference_plan.json", choices.dump());
      const CommandOutcome ran =
          run_search_table(cat(problem_path(reference), " --evaluate ", path));
      ASSERT_EQ(ran.exit_code, 0) << ran.output;
      const Json price = Json::parse(ran.output);
      SCOPED_TRACE(cat(reference["problem"].dump(), " ", plan["name"].dump()));
      EXPECT_EQ(price["cost_us"], plan["cost_us"]);
      EXPECT_EQ(price["cost"], plan["cost"]);
      EXPECT_EQ(price["feasible"], plan["feasible"]);
      EXPECT_EQ(price["peak_memory_per_device"], plan["peak_memory_per_device"]);
      EXPECT_EQ(price["absent_realloc_entries"], plan["absent_realloc_entries"]);
      ++priced;
    }
  EXPECT_EQ(priced, 36);
}

TEST(SearchTableCommand, ProvesTheOptimumForEverySeed) {
  for (const Json& reference : references())
    for (int seed = 1; seed <= 5; ++seed) {
      const std::string out = cat(testing::TempDir(), "/found_plan.json");
      const CommandOutcome ran =
          run_search_table(cat(problem_path(reference), " --seed ", seed, " --json --out ", out));
      ASSERT_EQ(ran.exit_code, 0) << ran.output;
      const Json result = Json::parse(ran.output);
      const double best = reference["best_known_us"].get<double>() / 1e6;
      EXPECT_EQ(result["cost"].get<double>(), best);
      EXPECT_EQ(result["lower_bound"].get<double>(), best);
      EXPECT_EQ(result["feasible"], true);
      for (const char* key : {"evaluations", "seconds", "time_to_best", "units"})
        EXPECT_TRUE(result[key].is_number()) << key;
      EXPECT_FALSE(result["log"].empty());
      const CommandOutcome again =
          run_search_table(cat(problem_path(reference), " --evaluate ", out));
      EXPECT_EQ(Json::parse(again.output)["cost"].get<double>(), best);
    }
}

TEST(SearchTableCommand, MaxUnitsGivesTheSameResultForAnyThreads) {
  const std::string problem = kFolder + "ppo_70b_7b_64gpu_128_128.json.gz";
  std::vector<Json> results;
  for (const int threads : {1, 2, 4}) {
    const CommandOutcome ran =
        run_search_table(cat(problem, " --json --max-units 6 --threads ", threads));
    ASSERT_EQ(ran.exit_code, 0) << ran.output;
    Json result = Json::parse(ran.output);
    EXPECT_EQ(result["units"], 6);
    results.push_back({result["cost"], result["lower_bound"], result["evaluations"]});
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(SearchTableCommand, BadInputEndsWithCodeTwoAndOneLine) {
  const std::string problem = kFolder + "ppo_7b_7b_8gpu_128_384.json.gz";
  const std::string empty = write_temporary("empty.json", "{}");
  const std::string cut = write_temporary("cut.json.gz", read_text(problem).substr(0, 500));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/nowhere/problem.json", "/nowhere/problem.json"},
      {empty, "missing key"},
      {cut, "cut.json.gz"},
      {problem + " --max-units 0", "--max-units"},
      {problem + " --time-limit nan", "--time-limit"},
      {problem + " --threads -1", "--threads"},
      {problem + " --evaluate " + empty, "choices"}};
  for (const auto& [arguments, message] : cases) {
    const CommandOutcome ran = run_search_table(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << ": " << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(message)) << arguments;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
  }
}

// A problem of two calls of which only one option each fits.
Json small_problem(int64_t device_memory_bytes) {
  const auto option = [](int64_t peak_bytes) {
    return Json{
        {"first_device", 0}, {"num_devices", 1},   {"pp", 1},           {"tp", 1},
        {"dp", 1},           {"time_us", 1500000}, {"static_bytes", 0}, {"peak_bytes", peak_bytes}};
  };
  const auto call = [&](const char* name, const char* role, const char* kind) {
    return Json{{"name", name},
                {"role", role},
                {"kind", kind},
                {"model_size", 7},
                {"depends_on", Json::array()},
                {"options", {option(30), option(90)}}};
  };
  return {{"name", "small"},
          {"num_devices", 1},
          {"device_memory_bytes", device_memory_bytes},
          {"iterations", 2},
          {"calls", {call("gen", "actor", "generate"), call("rew", "reward", "infer")}},
          {"realloc_us", Json::array()}};
}

TEST(SearchTableCommand, PlainJsonIsReadToo) {
  const std::string path = write_temporary("small.json", small_problem(50).dump());
  const CommandOutcome ran = run_search_table(path + " --json");
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const Json result = Json::parse(ran.output);
  EXPECT_EQ(result["cost"], 6.0);
  EXPECT_EQ(result["optimal"], true);
}

TEST(SearchTableCommand, AProblemWithoutAPlanThatFitsSaysSo) {
  const std::string path = write_temporary("tight.json", small_problem(29).dump());
  const CommandOutcome ran = run_search_table(path + " --json");
  EXPECT_EQ(ran.exit_code, 2);
  std::istringstream lines(ran.output);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  const Json result = Json::parse(first.front() == '{' ? first : second);
  EXPECT_EQ(result["feasible"], false);
  EXPECT_TRUE(result["cost"].is_null());
  EXPECT_TRUE(result["lower_bound"].is_null());
  EXPECT_THAT(result["reason"].get<std::string>(), HasSubstr("fits on no device"));
  EXPECT_THAT(ran.output, HasSubstr("raise device_memory_bytes"));
}

TEST(SearchTableCommand, DamagedFilesNameTheFile) {
  const std::string problem = kFolder + "ppo_7b_7b_8gpu_128_384.json.gz";
  std::string flipped = read_text(problem);
  flipped[flipped.size() / 2] = static_cast<char>(~flipped[flipped.size() / 2]);
  std::string cost_is_nan = small_problem(50).dump();
  cost_is_nan.replace(cost_is_nan.find("1500000"), 7, "NaN");
  Json untyped = small_problem(50);
  untyped["calls"][0]["options"] = "none";
  const std::vector<std::string> files = {
      write_temporary("flipped.json.gz", flipped),
      write_temporary("unpacked.json.gz", small_problem(50).dump()),
      write_temporary("tailed.json.gz", read_text(problem) + "tail"),
      write_temporary("nan.json", cost_is_nan), write_temporary("untyped.json", untyped.dump())};
  for (const std::string& file : files) {
    const CommandOutcome ran = run_search_table(file);
    EXPECT_EQ(ran.exit_code, 2) << file << ": " << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(file));
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
  }
}

}  // namespace
}  // namespace braid
