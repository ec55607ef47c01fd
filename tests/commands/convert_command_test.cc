// braid config --from: what comes out can be read again, and what was lost is said.
#include <gmock/gmock.h>

#include "host/file.h"
#include "host/testing.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConvertCommand : public CommandTest {};

TEST_F(ConvertCommand, ALaunchScriptBecomesAConfigurationThatIsRead) {
  const std::string out = join_path(folder_, "out.yaml");
  const CommandOutcome made = run_braid(cat("config --from verl --read-script text --out ", out,
                                            " examples/plans/verl_grpo_8b.sh ",
                                            "trainer.total_training_steps=100 trainer.made_up=1"));
  EXPECT_EQ(made.exit_code, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("unknown key: trainer.made_up=1"));
  EXPECT_THAT(made.output, HasSubstr("left out: "));
  EXPECT_THAT(made.output, HasSubstr("to decide before a run: reward; and 4 remarks under"));
  const CommandOutcome read = run_braid("config " + out);
  EXPECT_EQ(read.exit_code, 0) << read.output;
  EXPECT_THAT(read.output,
              HasSubstr("1024 prompts x 5 samples = 5120 sequences -> 4 mini-batches of 1280"));
  EXPECT_THAT(*read_file(out), HasSubstr("samples_per_prompt: 5  # actor_rollout_ref.rollout.n\n"));
}

// What the script says of micro-batches and recomputation counts under the plan of its layout.
TEST_F(ConvertCommand, ThePlanOfAConversionOverrulesNothingOfIt) {
  for (const auto& [framework, script] :
       {std::pair("verl", "verl_grpo_8b.sh"), std::pair("openrlhf", "openrlhf_ppo_8b.sh")}) {
    const std::string out = join_path(folder_, cat(framework, ".yaml"));
    const CommandOutcome made = run_braid(cat("config --from ", framework, " --read-script text ",
                                              "--out ", out, " examples/plans/", script));
    ASSERT_EQ(made.exit_code, 0) << made.output;
    EXPECT_THAT(*read_file(out), HasSubstr("parallel:\n"));
    EXPECT_THAT(*read_file(out), HasSubstr("  recompute: full  # "));
    const CommandOutcome run = run_braid(
        cat("train ", out, " --smoke --dry-run data.train=task:sort_digits data.eval= ",
            "data.prompt_key=prompt data.prompt_format=text reward='[{type: rule, rule: exact}]' ",
            "run.dir=", folder_, " run.name=", framework));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_THAT(run.output, Not(HasSubstr("overrules")));
  }
}

TEST_F(ConvertCommand, OfTrlTakesTheTrainerFromTheCommandLine) {
  const std::string file = write("sft.yaml", "learning_rate: 1.0e-5\nmax_steps: 10\n");
  const CommandOutcome refused = run_braid("config --from trl " + file);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr("add --algorithm NAME"));
  const CommandOutcome made = run_braid("config --from trl --algorithm sft " + file);
  EXPECT_EQ(made.exit_code, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("name: sft  # --algorithm\n"));
  EXPECT_THAT(made.output, HasSubstr("lr: 1.0e-5  # learning_rate\n"));
}

// What came out is written, and what is wrong with it is the last word.
TEST_F(ConvertCommand, WhatCannotRunEndsWithItsReason) {
  const std::string file =
      write("bad.yaml", "num_generations: 1\nscale_rewards: group\nmax_steps: 10\n");
  const CommandOutcome made = run_braid("config --from trl " + file);
  EXPECT_EQ(made.exit_code, 2);
  EXPECT_THAT(made.output, HasSubstr("samples_per_prompt: 1  # num_generations\n"));
  EXPECT_THAT(made.output, HasSubstr("cannot be compared with others of its group"));
}

// Nor do keys of services come out, wherever a script has them from.
TEST_F(ConvertCommand, SecretsStayInTheScript) {
  const std::string script = write("train.sh",
                                   "#!/bin/bash\npython3 -m openrlhf.cli.train_ppo_ray "
                                   "--pretrain m --use_wandb abcdef0123 --wandb_project p\n");
  for (const char* command : {"config --from openrlhf", "plan --keys --import openrlhf"}) {
    const CommandOutcome made = run_braid(cat(command, " --read-script text ", script));
    EXPECT_THAT(made.output, HasSubstr("***"));
    EXPECT_THAT(made.output, Not(HasSubstr("abcdef0123")));
  }
}

TEST_F(ConvertCommand, AProgramInPythonIsNoConfiguration) {
  const std::string file = write("train.py", "import trl\ntrainer.lr=1\n");
  for (const char* framework : {"verl", "openrlhf"})
    for (const char* command : {"config --from ", "plan --import "}) {
      const CommandOutcome refused = run_braid(cat(command, framework, " ", file));
      EXPECT_EQ(refused.exit_code, 2);
      EXPECT_THAT(refused.output,
                  HasSubstr("Python programs are not read; name the launch script"));
    }
  EXPECT_THAT(run_braid("config --from trl " + file).output, HasSubstr("args.to_json_string()"));
}

TEST_F(ConvertCommand, AnUnknownFrameworkIsNamed) {
  const std::string file = write("a.yaml", "a: 1\n");
  EXPECT_THAT(run_braid("config --from slime " + file).output,
              HasSubstr("'slime' is no framework known here; known: trl, verl, openrlhf"));
  EXPECT_THAT(run_braid("config --out x.yaml " + file).output, HasSubstr("--from"));
}

// verl refuses longer prompts than its configuration says, however long those that are planned for.
TEST_F(ConvertCommand, ExportedLimitsAreThoseOfTheConfiguration) {
  const CommandOutcome made = run_braid(
      "plan examples/plans/ppo_7b_8gpu.yaml --max-units 1 --export verl data.max_prompt_length=777 "
      "rollout.max_response_length=888 workload.prompt_length=300 workload.response_length=400");
  EXPECT_EQ(made.exit_code, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("data.max_prompt_length=777"));
  EXPECT_THAT(made.output, HasSubstr("data.max_response_length=888"));
}

}  // namespace
}  // namespace braid
