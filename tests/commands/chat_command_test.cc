// braid chat and braid eval --against, on models with a chat template that have learnt nothing.
#include <gmock/gmock.h>

#include "base/json.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Conversation : public CommandTest {
 protected:
  // A Hugging Face folder with a chat template.
  std::string chat_model(int steps) const {
    const CommandOutcome made =
        run_braid(cat("train examples/assistant/sft.yaml train.threads=2 train.total_steps=", steps,
                      " run.dir=", folder_, " run.name=sft-", steps));
    EXPECT_EQ(made.exit_code, 0) << made.output;
    return cat(folder_, "/sft-", steps, "/export/actor");
  }

  CommandOutcome chat(const std::string& model, const std::string& lines,
                      const std::string& more = "") const {
    return run_shell(cat("cd ", BRAID_SOURCE_DIR, " && printf '", lines, "' | ", BRAID_BINARY,
                         " chat ", model, " --max-new-tokens 12 --threads 2 ", more, " 2>&1"));
  }
};

// The same turns again give the same answers; what was said before changes the next answer.
TEST_F(Conversation, IsReadFromThePipeTurnByTurn) {
  const std::string model = chat_model(2);
  const CommandOutcome two = chat(model, "hello\\n\\nand now?\\n");
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_EQ(chat(model, "hello\\n\\nand now?\\n").output, two.output);
  const CommandOutcome one = chat(model, "hello\\n/exit\\nand now?\\n");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  EXPECT_FALSE(one.output.empty());
  EXPECT_LT(one.output.size(), two.output.size());
  const CommandOutcome helped = chat(model, "/help\\nhello\\n/quit\\nand now?\\n");
  EXPECT_THAT(helped.output, HasSubstr("/reset begins a new conversation"));
  EXPECT_TRUE(helped.output.ends_with(one.output)) << helped.output;
  EXPECT_EQ(two.output.substr(0, one.output.size()), one.output);
  const CommandOutcome anew = chat(model, "hello\\n/reset\\nand now?\\n");
  EXPECT_EQ(anew.output.substr(0, one.output.size()), one.output);
  EXPECT_NE(anew.output, two.output) << "/reset forgets the first turn";
}

TEST_F(Conversation, NeedsAChatTemplate) {
  const CommandOutcome made = run_braid(cat(
      "train examples/cluster/grpo.yaml train.total_steps=1 train.threads=2 run.dir=", folder_));
  ASSERT_EQ(made.exit_code, 0) << made.output;
  const CommandOutcome outcome = chat(folder_ + "/cluster/export/actor", "hello\\n");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_EQ(error_lines(outcome.output), 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("no chat; 'braid generate MODEL --prompt TEXT'"));
}

// One answer for each turn, of the text that the model itself gives for the conversation.
TEST_F(Conversation, SaysWhatGenerateSaysOfTheSameMessages) {
  const std::string model = chat_model(2);
  const std::string prompts = write(
      "prompts.jsonl",
      R"({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]})"
      "\n");
  const CommandOutcome generated =
      run_shell(cat("cd ", BRAID_SOURCE_DIR, " && ", BRAID_BINARY, " generate ", model,
                    " --prompts ", prompts, " --max-new-tokens 12 --threads 2 2> /dev/null"));
  ASSERT_EQ(generated.exit_code, 0) << generated.output;
  EXPECT_EQ(chat(model, "hello\\n", "--system 'be brief'").output, generated.output);
}

TEST_F(Conversation, EvalComparesModelsOnTheSamePrompts) {
  const std::string first = chat_model(2), second = chat_model(8);
  const std::string eval =
      cat("eval examples/assistant/ppo.yaml critic.path= train.threads=2 eval.prompts=6 "
          "rollout.max_response_length=6 "
          "'reward=[{type: rule, rule: length, target: 8, unit: chars}]' model.path=",
          first, " --against ", second, " --against ", first);
  const CommandOutcome table = run_braid(eval);
  ASSERT_EQ(table.exit_code, 0) << table.output;
  EXPECT_THAT(table.output, AllOf(HasSubstr(cat("1: ", first)), HasSubstr(cat("2: ", second)),
                                  HasSubstr("1 - 2"), HasSubstr("eval/reward_mean"),
                                  HasSubstr("standard error of the difference, over prompts")));
  const std::string samples = join_path(folder_, "samples.jsonl");
  const CommandOutcome compared = run_braid(cat(eval, " --json --samples ", samples));
  ASSERT_EQ(compared.exit_code, 0) << compared.output;
  const size_t at = compared.output.find("{\"differences\"");
  ASSERT_NE(at, std::string::npos) << compared.output;
  const Json report =
      parse_json(trim(std::string_view(compared.output).substr(at)), "output").value();
  ASSERT_EQ(report["models"].size(), 3u);
  const auto metric = [&](int model, const char* name) {
    return report["models"][model]["metrics"][name].get<double>();
  };
  const Json& same = report["differences"][1]["metrics"]["eval/reward_mean"];
  EXPECT_EQ(same["difference"], 0.0) << "a model against itself, with the same seeds";
  EXPECT_EQ(same["standard_error"], 0.0);
  EXPECT_EQ(same["prompts"], 6);
  const Json& other = report["differences"][0]["metrics"]["eval/reward_mean"];
  EXPECT_NEAR(other["difference"].get<double>(),
              metric(0, "eval/reward_mean") - metric(1, "eval/reward_mean"), 1e-9);
  EXPECT_EQ(read_rows(samples).size(), 3u * 6 * 4);
  EXPECT_EQ(read_rows(samples)[0]["model"], first);
}

TEST_F(Conversation, EvalNamesAModelThatIsNotThere) {
  const CommandOutcome outcome = run_braid(
      "eval examples/algorithms/toy.yaml algorithm.name=grpo data.eval=task:sort_digits:4 "
      "--against /no/such/folder");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("--against: /no/such/folder"));
}

// A run's own record of steps, warnings and words is in its folder and in its page.
TEST_F(Conversation, ARunLeavesWhatItsReportShows) {
  const CommandOutcome trained =
      run_braid(cat("train examples/cluster/grpo.yaml run.dir=", folder_, " run.name=reported ",
                    "train.total_steps=3 train.threads=1 parallel='{dp: 2}' ",
                    "cluster='{gpu: this-machine, nodes: 1, gpus_per_node: 2}'"));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string run = join_path(folder_, "reported");
  const std::vector<Json> steps = read_rows(join_path(run, "ranks.jsonl"));
  ASSERT_EQ(steps.size(), 3u);
  ASSERT_EQ(steps[2]["ranks"].size(), 2u);
  for (const Json& rank : steps[2]["ranks"]) {
    EXPECT_FALSE(rank["spans"].empty());
    for (const char* owner : {"weights of actor", "optimizer", "KV cache", "activations"})
      EXPECT_GT(rank["memory"].value(owner, 0.0), 0) << owner;
  }
  EXPECT_EQ(steps[2]["responses"].size(), 32u);
  const Json about = *parse_json(*read_file(join_path(run, "about.json")), "about.json");
  EXPECT_EQ(about["ranks"], 2);
  EXPECT_THAT(about["plan"].dump(), HasSubstr("2 copies, each with its share of the samples"));
  EXPECT_THAT(about["set"].dump(), HasSubstr("[\"optim.actor.lr\",\"0.001\",\""));
  EXPECT_THAT(about["set"].dump(), HasSubstr("[\"train.total_steps\",\"3\",\"command line\"]"));
  const Json predicted = *parse_json(*read_file(join_path(run, "predicted.json")), "");
  EXPECT_GT(predicted["ranks"][1]["owners"]["weights"].get<double>(), 0);
  EXPECT_FALSE(predicted["ranks"][1]["spans"].empty());
  const std::string page = *read_file(join_path(run, "report.html"));
  EXPECT_THAT(page, AllOf(HasSubstr("weights of actor"), HasSubstr("update_actor"),
                          HasSubstr("2 copies, each with its share of the samples")));
}

}  // namespace
}  // namespace braid
