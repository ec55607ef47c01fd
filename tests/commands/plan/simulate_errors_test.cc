// braid simulate on input that is wrong: exit code 2, the place, the rule and what would be right.
#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "base/testing.h"
#include "base/text.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::HasSubstr;

const std::string kExample = std::string(BRAID_SOURCE_DIR) + "/examples/plans/ppo_7b_8gpu";

std::string written_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct BadPlan {
  const char* from;  // first match of this in the example's plan
  const char* to;
  const char* says;
};

void PrintTo(const BadPlan& bad, std::ostream* out) { *out << bad.to; }

class SimulateBadPlan : public testing::TestWithParam<BadPlan> {};

TEST_P(SimulateBadPlan, EndsWithPlaceAndRemedy) {
  const std::string text = written_text(kExample + ".plan.yaml"),
                    path = testing::TempDir() + "/bad.plan.yaml";
  const std::string changed = std::regex_replace(text, std::regex(GetParam().from), GetParam().to,
                                                 std::regex_constants::format_first_only);
  ASSERT_NE(changed, text);
  std::ofstream(path) << changed;
  const CommandOutcome ran =
      run_shell(cat(BRAID_BINARY, " simulate ", kExample, ".yaml --plan ", path, " 2>&1"));
  EXPECT_EQ(ran.exit_code, 2) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("bad.plan.yaml"));
  EXPECT_THAT(ran.output, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Plans, SimulateBadPlan,
    testing::Values(
        BadPlan{"devices: 1x8", "devices: 16", "plan again or correct the cluster"},
        BadPlan{"mesh: all", "mesh: 0-9",
                "device 8 does not exist; the cluster has devices 0 to 7"},
        BadPlan{"mesh: all", "mesh: 0-3,4-7", "needs quotes, such as mesh: \"0-3,4-7\""},
        BadPlan{"mesh: all", "mesh: \"0-3,3-6\"", "device 3"},
        BadPlan{"mesh: all", "mesh: node 3", "the cluster has nodes 0-0"},
        BadPlan{"mesh: all", "mesh: 5-2", "is no device mesh"},
        BadPlan{"mesh: all", "mash: all", "did you mean 'mesh'?"},
        BadPlan{"tp: 2", "tp: 3", "nearest legal value: tp 2"},
        BadPlan{"tp: 2", "tp: 0", "must be at least 1"},
        BadPlan{"tp: 2", "tp: nan", "must be a whole number"},
        BadPlan{"dp: 4, tp: 2", "dp: 4, tp: 2, in_order: true", "in_order is for training"},
        BadPlan{"generate:", "generat:", "did you mean 'generate'?"},
        BadPlan{"  generate:[^\n]*\n", "", "call generate: missing"},
        BadPlan{"graph: ppo", "graph: grpo", "the plan is for 'grpo', not for 'ppo'"},
        BadPlan{"reference:", "nobody:", "its roles: actor, critic, reference, reward"},
        BadPlan{"weights: host", "weights: disk", "must be device or host"},
        BadPlan{"micro_tokens: 16384", "micro_tokens: -1", "micro_tokens"},
        BadPlan{"\\}", "", "not valid YAML"},
        BadPlan{"[^]*", "", "must be a map with graph and devices"},
        BadPlan{"[^]*", "[1, 2]", "must be a map with graph and devices"},
        BadPlan{"[^]*", "{\"graph\": \"ppo\"", "not valid YAML"}));

struct BadArguments {
  const char* arguments;
  const char* says;
};

void PrintTo(const BadArguments& bad, std::ostream* out) { *out << bad.arguments; }

class SimulateBadArguments : public testing::TestWithParam<BadArguments> {};

TEST_P(SimulateBadArguments, EndWithPlaceAndRemedy) {
  const CommandOutcome ran = run_shell(cat(BRAID_BINARY, " simulate ", kExample, ".yaml --plan ",
                                           kExample, ".plan.yaml ", GetParam().arguments, " 2>&1"));
  EXPECT_EQ(ran.exit_code, 2) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, SimulateBadArguments,
    testing::Values(BadArguments{"model.size=llama2-70b", "'braid plan' find a plan that fits"},
                    BadArguments{"plan.memory_limit_gib=10", "runs out of memory"},
                    BadArguments{"model.size=llama9-7b", "did you mean 'llama-7b'?"},
                    BadArguments{"cluster.nodes=2", "this one has 16"},
                    BadArguments{"cluster.gpu=a100", "known: a100-40g"},
                    BadArguments{"train.minibatches=7", "nearest legal values: 4 and 8"},
                    BadArguments{"workload.response_length=nan", "must be a positive number"},
                    BadArguments{"'workload.response_length={meen: 300}'",
                                 "{mean, sigma, longest}"},
                    BadArguments{"--steps 0", "--steps"}, BadArguments{"--steps -1", "--steps"},
                    BadArguments{"--seed -1", "--seed"}, BadArguments{"--step 2", "--lengths"},
                    BadArguments{"--order 8", "ranks 0 to 7"},
                    BadArguments{"--free-prefixes", "hands no generation over"},
                    BadArguments{"--calibration /dev/null", "/dev/null"},
                    BadArguments{"--lengths /dev/null", "no samples"},
                    BadArguments{"--lengths no_such_file", "no_such_file"},
                    BadArguments{"--lengths \"$(command -v env)\"", "\\x7fELF\\x02"},
                    BadArguments{"--trace /no/such/folder/t.json",
                                 "--trace: /no/such/folder/t.json: there is no folder"},
                    BadArguments{"--html /", "--html: / is a folder; name a file"},
                    BadArguments{"--stepss 3", "--stepss"}));

}  // namespace
}  // namespace braid
