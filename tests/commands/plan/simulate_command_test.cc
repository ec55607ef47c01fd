// braid simulate as a person runs it.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/testing.h"
#include "base/text.h"
#include "commands/plan/testing.h"
#include "sim/recorded.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::string example(const std::string& name) {
  return cat("simulate ", kPlans, name, ".yaml --plan ", kPlans, name, ".plan.yaml ");
}

TEST(SimulateCommand, PrintsChartAndSummary) {
  const CommandOutcome chart = run_braid(example("ppo_7b_8gpu"));
  ASSERT_EQ(chart.exit_code, 0) << chart.output;
  EXPECT_THAT(chart.output, HasSubstr("   7 |"));
  EXPECT_THAT(chart.output, HasSubstr("update_actor"));
  const CommandOutcome json = run_braid(example("ppo_7b_8gpu") + "--json");
  const Json summary = Json::parse(json.output);
  EXPECT_GT(summary["step_s"].get<double>(), 0);
  EXPECT_EQ(summary["devices"].size(), 8U);
  EXPECT_TRUE(summary["fits"].get<bool>());
  EXPECT_EQ(run_braid(example("ppo_7b_8gpu") + "--json").output, json.output);
}

// What is to be searched is no plan, and one device in place of it would be another answer.
TEST(SimulateCommand, WhatAsksForASearchIsRefused) {
  const std::string config = cat(kPlans, "ppo_7b_8gpu");
  for (const auto& [asks, key] : {std::pair("placement=auto", "placement: auto: "),
                                  std::pair("'parallel={tp: 2}' placement=auto", "placement: auto"),
                                  std::pair("plan.auto=true", "plan.auto: ")}) {
    const std::string command = cat("simulate ", config, ".yaml ", asks);
    const CommandOutcome refused = run_braid(command);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_EQ(error_lines(refused.output), 1) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(key));
    EXPECT_THAT(refused.output, HasSubstr("'braid plan CONFIG --out PLAN.yaml'"));
    EXPECT_THAT(refused.output, HasSubstr("a placement in its place: colocated"));
    EXPECT_EQ(run_braid(cat(command, " --plan ", config, ".plan.yaml")).exit_code, 0);
  }
  // One device leaves nothing to place.
  const CommandOutcome alone =  // from the top: a workload file is named from there
      run_shell(cat("cd ", BRAID_SOURCE_DIR, " && ", BRAID_BINARY, " simulate ", kPlans,
                    "one_gpu_lora.yaml placement=auto 2>&1"));
  EXPECT_EQ(alone.output.find("asks for a search"), std::string::npos) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr("step "));
}

TEST(SimulateCommand, EveryExampleFits) {
  for (const char* name :
       {"one_gpu_lora", "ppo_7b_8gpu", "ppo_70b_64gpu", "grpo_32b", "heterogeneous"}) {
    const CommandOutcome ran = run_shell(  // from the top: a workload file is named from there
        cat("cd ", BRAID_SOURCE_DIR, " && ", BRAID_BINARY, " ", example(name), "--json 2>&1"));
    EXPECT_EQ(ran.exit_code, 0) << name << ": " << ran.output;
  }
}

// A machine has as many processes as the plan says, however the plan is named.
TEST(SimulateCommand, APlanOfTheCommandLineCountsTheDevicesAsOneOfTheConfiguration) {
  const std::string plan = cat(BRAID_SOURCE_DIR, "/examples/cluster/two_ranks.plan.yaml");
  const auto simulated = [](const std::string& named) {
    return run_braid(cat("simulate ", BRAID_SOURCE_DIR, "/examples/cluster/grpo.yaml ", named));
  };
  const CommandOutcome stated = simulated("--plan " + plan);
  EXPECT_EQ(stated.exit_code, 0) << stated.output;
  EXPECT_EQ(stated.output, simulated("plan.file=" + plan).output);
}

TEST(SimulateCommand, ABatchPricesEveryPlanAsAloneAndNamesBadOnes) {
  const std::string plan = kPlans + "ppo_7b_8gpu.plan.yaml";
  const std::string batch =
      cat("simulate ", kPlans, "ppo_7b_8gpu.yaml --batch ", plan, " /nowhere.yaml ", plan);
  const CommandOutcome text = run_braid(batch);
  EXPECT_EQ(text.exit_code, 2) << text.output;
  EXPECT_THAT(text.output, HasSubstr("/nowhere.yaml: cannot open"));
  EXPECT_THAT(text.output, HasSubstr("1 of 3 plans could not be simulated"));
  const CommandOutcome json = run_shell(cat(BRAID_BINARY, " ", batch, " --json 2>/dev/null"));
  const Json rows = Json::parse(json.output);
  ASSERT_EQ(rows.size(), 3U);
  const Json alone = Json::parse(run_braid(example("ppo_7b_8gpu") + "--json").output);
  EXPECT_EQ(rows[0]["step_s"], alone["step_s"]);
  EXPECT_EQ(rows[2]["peak_gib"], alone["peak_gib"]);
  EXPECT_TRUE(rows[1].contains("error"));
}

// What a plan with a hand-over would gain, with the number that is best for that.
TEST(SimulateCommand, PricesSamplesThatAreScoredBeforeTheirEnds) {
  const auto simulated = [&](const char* fusion, const char* how = "") {
    const std::string plan =
        write_temporary("handed.plan.yaml", read_text(kPlans + "ppo_7b_8gpu.plan.yaml") +
                                                cat("fusion: {", fusion, "}\n"));
    return run_braid(cat("simulate ", kPlans, "ppo_7b_8gpu.yaml --plan ", plan, " ", how));
  };
  const auto step_s = [](const CommandOutcome& ran) {
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    return std::stod(ran.output.substr(ran.output.find("\nstep ") + 6));
  };
  const CommandOutcome plain = simulated("migrate_below_samples: auto");
  EXPECT_LT(step_s(simulated("migrate_below_samples: auto", "--free-prefixes")),
            0.98 * step_s(plain));
  EXPECT_NE(step_s(simulated("migrate_below_samples: auto, scored_prefixes: true")), step_s(plain));
  const CommandOutcome both =
      simulated("migrate_below_samples: 64, scored_prefixes: true", "--free-prefixes");
  EXPECT_NE(both.exit_code, 0);
  EXPECT_NE(both.output.find("--free-prefixes: the plan has fusion.scored_prefixes"),
            std::string::npos)
      << both.output;
}

TEST(SimulateCommand, WritesTraceAndPage) {
  const std::string trace = testing::TempDir() + "/simulate_trace.json",
                    page = testing::TempDir() + "/simulate_page.html";
  const CommandOutcome ran =
      run_braid(cat(example("ppo_7b_8gpu"), "--trace ", trace, " --html ", page));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const Json chrome = Json::parse(read_text(trace));
  EXPECT_GT(chrome["traceEvents"].size(), 100U);
  EXPECT_THAT(read_text(page), HasSubstr("</html>"));
}

// A step of the plan is priced with the generation as it is then, beside training.
TEST(SimulateCommand, AGenerationThatLeavesSamplesIsPricedBesideTraining) {
  const auto simulated = [](double in_flight, int staleness) {
    const CommandOutcome ran = run_braid(cat(
        "simulate model.size=qwen2.5-0.5b model.dtype=bf16 algorithm.name=grpo "
        "algorithm.tis_cap=2 'reward=[{type: rule, rule: numeric}]' "
        "rollout.prompts_per_step=32 rollout.samples_per_prompt=4 "
        "rollout.max_response_length=4096 train.minibatches=4 "
        "'workload={prompt_length: 256, response_length: {mean: 500, sigma: 1, longest: 4096}}' "
        "'cluster={gpu: h100-80g, nodes: 1, gpus_per_node: 2}' placement=disaggregated --json "
        "rollout.in_flight=",
        in_flight, " plan.staleness=", staleness));
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    return Json::parse(ran.output);
  };
  const Json both = simulated(1.5, 1), ahead = simulated(1, 1), carries = simulated(1.5, 0);
  EXPECT_LT(both["step_s"].get<double>(), 0.95 * ahead["step_s"].get<double>());
  EXPECT_LT(both["step_s"].get<double>(), 0.95 * carries["step_s"].get<double>());
  EXPECT_EQ(both["carried"], carries["carried"]);
  EXPECT_FALSE(ahead.contains("carried"));
}

TEST(SimulateCommand, SeveralStepsOverlapByThePlansStaleness) {
  const std::string config = testing::TempDir() + "/overlap.yaml",
                    plan = testing::TempDir() + "/overlap.plan.yaml";
  std::ofstream(config) << "algorithm: {name: grpo}\nmodel: {size: llama2-7b, dtype: bf16}\n"
                           "cluster: {gpu: a100-80g, nodes: 2, gpus_per_node: 8}\n"
                           "rollout: {prompts_per_step: 64, samples_per_prompt: 4, "
                           "max_response_length: 512}\n"
                           "data: {train: \"task:digits\", max_prompt_length: 128}\n"
                           "reward: [{type: rule, rule: exact}]\n";
  const auto every_s = [&](int staleness) {
    std::ofstream(plan) << "graph: grpo\ndevices: 16\nstaleness: " << staleness
                        << "\ncalls:\n"
                           "  generate: {mesh: 8-15, dp: 2, tp: 4, pp: 1}\n"
                           "  old_logprob: {mesh: 0-7, dp: 8, tp: 1, pp: 1}\n"
                           "  ref_logprob: {mesh: 0-7, dp: 8, tp: 1, pp: 1, zero: 3}\n"
                           "  update_actor: {mesh: 0-7, dp: 8, tp: 1, pp: 1, zero: 3, "
                           "micro_batches: 2}\n";
    const CommandOutcome ran =
        run_braid(cat("simulate ", config, " --plan ", plan, " --steps 5 --json"));
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    const Json summary = Json::parse(ran.output);
    EXPECT_EQ(summary["staleness"], staleness);
    return summary["step_s"].get<double>();
  };
  const double in_turn_s = every_s(0);
  const double ahead_s = every_s(1);
  EXPECT_LT(ahead_s, 0.9 * in_turn_s);
  const CommandOutcome few = run_braid(cat("simulate ", config, " --plan ", plan, " --steps 2"));
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.output, HasSubstr("at least 4 simulated steps"));
}

// A one-device configuration has the list that training prints. Its hash covers the plan too, which
// the graph alone does not have.
TEST(SimulateCommand, PricesTheListThatTrainingPrints) {
  const std::string config = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/ppo.yaml";
  const std::string size = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model/config.json";
  const std::string overrides = " model.size=" + size + " critic.size=" + size +
                                " 'reward=[{type: model, path: x, size: " + size +
                                "}, {type: rule, rule: exact}]'";
  const CommandOutcome train = run_braid("train " + config + overrides + " --print-program");
  if (train.output.find("hash ") == std::string::npos)
    GTEST_SKIP() << "built without training: " << train.output;
  const CommandOutcome list = run_braid("simulate " + config + overrides + " --print-program");
  const size_t end = list.output.rfind("hash ");
  EXPECT_EQ(list.output.substr(0, end), train.output.substr(0, train.output.rfind("hash ")));
  const std::string hash = list.output.substr(end + 5, 16);
  const CommandOutcome priced = run_braid("simulate " + config + overrides + " --json");
  EXPECT_EQ(Json::parse(priced.output)["program_hash"].get<std::string>(), hash);
}

// The instructions that training executed in a step: its part of what --order wrote.
std::string executed_in(const std::string& order, int step) {
  const std::string head = cat("step ", step, "\n");
  const size_t begin = order.find(head) + head.size(), end = order.find("\nstep ", begin);
  return order.substr(begin, end == std::string::npos ? end : end + 1 - begin);
}

// Generation is short of room, and the policy waits for the critic in the first step.
TEST(SimulateCommand, RepeatsTheOrderOfARecordedRun) {
  const std::string model = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model",
                    runs = testing::TempDir() + "/order_runs", order = runs + "/order.txt";
  const std::string config = cat(
      " run.dir=", runs, " run.name=ppo run.overwrite=true algorithm.name=ppo model.config=", model,
      "/config.json tokenizer.path=", model, " data.train=task:sort_digits",
      " rollout.prompts_per_step=10 rollout.max_response_length=8 rollout.max_concurrent=4",
      " rollout.kv_budget_tokens=96 rollout.record=true critic.warmup_steps=1",
      " 'reward=[{type: rule, rule: digit_share}]' train.minibatches=2 train.threads=1",
      " train.total_steps=2 log.tensorboard=false ");
  if (run_braid("train --help").output.find("--order") == std::string::npos)
    GTEST_SKIP() << "built without training";
  run_shell("rm -rf " + runs + " && mkdir " + runs);
  const CommandOutcome train = run_braid("train" + config + "--order " + order);
  ASSERT_EQ(train.exit_code, 0) << train.output;
  for (const int step : {0, 1}) {
    const CommandOutcome simulated =
        run_shell(cat(BRAID_BINARY, " simulate", config, "--lengths ", runs,
                      "/ppo/rollouts.jsonl --step ", step, " --order 0 2>/dev/null"));
    EXPECT_EQ(simulated.output, executed_in(read_text(order), step)) << "step " << step;
    const bool updates = simulated.output.find("update update_actor") !=
                         simulated.output.rfind("update update_actor");
    EXPECT_EQ(updates, step == 1) << simulated.output;
  }
}

// critic.warmup_steps counts from the recorded step on.
TEST(SimulateCommand, WarmUpOfTheCriticEndsAmongSeveralSteps) {
  const std::string lengths = testing::TempDir() + "/warm_up.jsonl";
  std::ofstream rows(lengths);
  for (int i = 0; i < 16; ++i)
    rows << R"({"step": 1, "prompt_ids": [1, 2, 3], "response_ids": [4, 5, 6]})"
         << "\n";
  rows.close();
  const CommandOutcome ran = run_braid(
      cat("simulate algorithm.name=ppo model.size=qwen2.5-0.5b rollout.prompts_per_step=16 "
          "data.train=task:digits critic.warmup_steps=3 "
          "'reward=[{type: rule, rule: digit_share}]' "
          "'cluster={gpu: a100-80g, nodes: 1, gpus_per_node: 1}' --steps 4 --json --lengths ",
          lengths));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const Json summary = Json::parse(ran.output.substr(ran.output.find('{')));
  const auto busy_s = [&](const char* call) {
    return summary["calls"][call]["busy_s"].get<double>();
  };
  EXPECT_EQ(busy_s("update_actor@0"), 0);
  EXPECT_EQ(busy_s("update_actor@1"), 0);
  EXPECT_GT(busy_s("update_actor@2"), 0);
  EXPECT_GT(busy_s("update_critic@0"), 0);
}

TEST(SimulateCommand, RefusesBadInput) {
  const CommandOutcome missing = run_braid("simulate no_such.yaml");
  EXPECT_EQ(missing.exit_code, 2) << missing.output;
  const CommandOutcome other = run_braid(
      cat("simulate ", kPlans, "one_gpu_lora.yaml --plan ", kPlans, "ppo_7b_8gpu.plan.yaml"));
  EXPECT_EQ(other.exit_code, 2) << other.output;
  const CommandOutcome order = run_braid(example("ppo_7b_8gpu") + "--order 8");
  EXPECT_EQ(order.exit_code, 2);
  EXPECT_THAT(order.output, HasSubstr("ranks 0 to 7"));
}

TEST(RecordedLengths, ReadsRolloutsAndPairs) {
  const std::string rows =
      "{\"step\": 3, \"sample\": 0, \"prompt_ids\": [1, 2], \"response_ids\": [4]}\n"
      "{\"step\": 3, \"sample\": 1, \"prompt_ids\": [1], \"response_ids\": [4, 5, 6]}\n"
      "{\"step\": 4, \"sample\": 2, \"prompt_ids\": [1], \"response_ids\": [7, 7]}\n";
  EXPECT_EQ(parse_recorded_step(rows, "r")->lengths, (SampleLengths{{2, 1}, {1, 3}, {0, 1}}));
  EXPECT_EQ(parse_recorded_step(rows, "r")->step, 3);
  EXPECT_EQ(parse_recorded_step(rows, "r", 4)->lengths, (SampleLengths{{1}, {2}, {0}}));
  EXPECT_EQ(parse_recorded_step("10 3\n20\t4\n", "r")->lengths, (SampleLengths{{10, 20}, {3, 4}}));
  EXPECT_THAT(parse_recorded_step("10 3\n7\n", "r").status().message(), HasSubstr("r:2"));
  EXPECT_THAT(parse_recorded_step("{\"step\": 1}\n", "r").status().message(),
              HasSubstr("prompt_ids"));
  EXPECT_THAT(parse_recorded_step(rows, "r", 9).status().message(),
              HasSubstr("no samples of step 9"));
}

}  // namespace
}  // namespace braid
