// braid place as a person runs it: the recommended plan as a file, and what is refused.
#include <gmock/gmock.h>

#include <filesystem>

#include "base/json.h"
#include "base/testing.h"
#include "base/text.h"
#include "commands/plan/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kConfig = kPlans + "ppo_7b_8gpu.yaml";

CommandOutcome place(const std::string& arguments) {
  return run_braid(cat("place ", kConfig, " --max-units 1 ", arguments));
}

TEST(PlaceCommand, WritesThePlanThatItRecommends) {
  const std::string file = temporary("placed.yaml");
  const CommandOutcome ran = place("--json --out " + file);
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const Json found = Json::parse(ran.output);
  const Json* recommended = nullptr;
  for (const Json& row : found["placements"]) {
    EXPECT_NE(row.contains("plan"), row.contains("reason")) << row;
    if (row["placement"] == found["recommended"]) recommended = &row;
  }
  ASSERT_NE(recommended, nullptr) << found["recommended"];
  const std::string json = write_temporary("placed.json", (*recommended)["plan"].dump());
  EXPECT_EQ(run_braid(cat("plan diff ", file, " ", json)).output, "the plans are equal\n");
  const CommandOutcome priced = run_braid(cat("simulate ", kConfig, " --plan ", file, " --json"));
  ASSERT_EQ(priced.exit_code, 0) << priced.output;
  EXPECT_EQ(Json::parse(priced.output)["step_s"], (*recommended)["step_s"]);
}

// Where nothing fits there is nothing to write; why not is printed all the same.
TEST(PlaceCommand, WritesNothingWhereNothingFits) {
  const std::string file = temporary("unplaced.yaml");
  const std::string large = "model.size=llama2-70b cluster.gpus_per_node=1 ";
  const CommandOutcome unwritten = place(cat(large, "--out ", file));
  EXPECT_EQ(unwritten.exit_code, 2) << unwritten.output;
  EXPECT_THAT(unwritten.output, HasSubstr(cat("braid: error: --out: ", file,
                                              " is not written: no placement fits\n")));
  EXPECT_THAT(unwritten.output, HasSubstr("recommended: none, no placement fits"));
  EXPECT_FALSE(std::filesystem::exists(file));
  const CommandOutcome told = place(large + "--json");
  ASSERT_EQ(told.exit_code, 0) << told.output;
  const Json found = Json::parse(told.output);
  EXPECT_TRUE(found["recommended"].is_null());
  for (const Json& row : found["placements"]) EXPECT_NE(row["reason"], "") << row;
}

TEST(PlaceCommand, RefusesBadInput) {
  const std::pair<std::string, std::string> cases[] = {
      {"--max-units 0", "--max-units must be at least 1"},
      {"--out /nowhere/p.yaml", "--out: /nowhere/p.yaml: there is no folder"},
      {"--calibration /nowhere.json", "/nowhere.json: cannot open"},
      {"model.size=nothing", "unknown model 'nothing'"},
      {"cluster.gpus_per_node=17", "gpus_per_node must be a whole number from 1 to 16"},
      {"modl.size=x", "unknown key 'modl' (did you mean 'model'?)"},
      {"--nonsense", "--nonsense"}};
  for (const auto& [arguments, message] : cases) {
    const CommandOutcome ran = run_braid(cat("place ", kConfig, " ", arguments));
    EXPECT_EQ(ran.exit_code, 2) << arguments << ": " << ran.output;
    EXPECT_THAT(ran.output, StartsWith("braid: error: ")) << arguments;
    EXPECT_THAT(ran.output, HasSubstr(message)) << arguments;
    EXPECT_EQ(error_lines(ran.output), 1) << ran.output;
  }
  const CommandOutcome none = run_braid("place");
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_THAT(none.output, HasSubstr("no configuration given"));
}

}  // namespace
}  // namespace braid
