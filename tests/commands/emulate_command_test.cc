// braid train with device=emulated, as a person runs it.
#include <gmock/gmock.h>

#include "base/json.h"
#include "host/file.h"
#include "host/testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

const std::string kTwoRanks =
    "train algorithm.name=grpo model.size=qwen2.5-0.5b rollout.prompts_per_step=8 "
    "rollout.samples_per_prompt=2 rollout.max_response_length=32 data.max_prompt_length=32 "
    "'reward=[{type: rule, rule: numeric}]' 'cluster={gpu: a100-80g, nodes: 1, gpus_per_node: 2}' ";

class EmulateCommand : public CommandTest {};

TEST_F(EmulateCommand, PrintsPredictedBesideEmulated) {
  const CommandOutcome ran =
      run_braid(cat(kTwoRanks, "device=emulated 'parallel={tp: 1}' placement=colocated ",
                    "runtime.time_scale=0.2 run.dir=", folder_));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("emulated, seconds of the model"));
  EXPECT_THAT(ran.output, HasSubstr("update_actor"));
  EXPECT_THAT(ran.output, HasSubstr("; 0 have no counterpart"));
  const auto text = read_file(join_path(folder_, "run/emulated.json"));
  ASSERT_TRUE(text.ok()) << text.status().message();
  const Json json = Json::parse(*text);
  EXPECT_GT(json["step"]["emulated_s"].get<double>(), 0);
  EXPECT_EQ(json["time_scale"].get<double>(), 0.2);
  const Json& ranks = json["ranks"];
  EXPECT_EQ(ranks["number"], 2);
  for (const char* what :
       {"calls", "messages", "given_bytes", "received_bytes", "open_files", "peak_bytes", "cpu_s"})
    EXPECT_GT(ranks[what]["mean"].get<double>(), 0) << what;
  EXPECT_EQ(ranks["store_requests"]["most"].get<double>(), 0);  // within a step
  EXPECT_TRUE(path_exists(join_path(folder_, "run/emulated_trace.json")));
}

TEST_F(EmulateCommand, BadInputsAreNamed) {
  const struct {
    const char *arguments, *message;
  } cases[] = {
      {"device=emulated", "device: emulated: no plan is stated"},
      {"device=emulated plan.auto=true", "plan.auto: emulated devices run a plan that is there"},
      {"device=emulated placement=colocated --order x", "--order: emulated devices write no list"},
      {"device=emulated runtime.jitter=1", "runtime.jitter"},
      {"runtime.jitter=0.1", "runtime.jitter: belongs to device=emulated"},
      {"runtime.fault=dropped_wait", "runtime.fault: belongs to device=emulated"},
      {"device=emulated 'parallel={tp: 2}' placement=colocated runtime.fault=dropped_wait",
       "runtime.fault: no wait that the lists of this plan state moves an op by more than 10 %"},
      {"device=emulated cluster.nodes=128 placement=colocated rollout.prompts_per_step=256",
       "device: emulated: the plan is for 256 devices, at most 128 are emulated"},
      {"device=imagined", "device: must be cpu, cuda, cuda:N or emulated"},
  };
  for (const auto& one : cases) {
    const CommandOutcome ran = run_braid(kTwoRanks + one.arguments);
    EXPECT_EQ(ran.exit_code, 2) << one.arguments;
    EXPECT_THAT(ran.output, HasSubstr(one.message)) << one.arguments;
  }
}

}  // namespace
}  // namespace braid
