#include "plan/make_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "config/load.h"
#include "plan/placement.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"

namespace braid::inline plan {
namespace {

using testing::HasSubstr;

constexpr const char* kTinyLlama =
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
        "intermediate_size": 128, "vocab_size": 100})";

Result<std::string> read_test_file(const std::string& path) {
  if (path == "tiny/config.json") return std::string(kTinyLlama);
  if (path == "lengths.txt")
    return std::string(
        "\xEF\xBB\xBF"
        "10\r\n 30\n\n50\n");
  if (path == "nodes.yaml")
    return std::string(
        "graph: grpo\ndevices: 2x2\ncalls:\n  generate: {mesh: all, dp: 4}\n"
        "  old_logprob: {mesh: all, dp: 4}\n  ref_logprob: {mesh: node 1, dp: 2}\n"
        "  update_actor: {mesh: node 0, dp: 2}\n");
  if (path == "cpu.json") return cat("{\"gpu\": ", gpu_json(*find_gpu("this-machine")).dump(), "}");
  if (path == "six.yaml")
    return std::string(
        "graph: grpo\ndevices: 6\ncalls:\n  generate: {mesh: all, dp: 6}\n"
        "  old_logprob: {mesh: all, dp: 6}\n  ref_logprob: {mesh: all, dp: 6}\n"
        "  update_actor: {mesh: all, dp: 6}\n");
  if (path == "bad.txt") return std::string("10\nten\n");
  if (path == "colocated.yaml")
    return std::string(
        "graph: grpo\ndevices: 8\ncalls:\n  generate: {mesh: all, dp: 4, tp: 2}\n"
        "  old_logprob: {mesh: all, dp: 8}\n  ref_logprob: {mesh: node 0, dp: 8}\n"
        "  update_actor: {mesh: 0-7, dp: 8, zero: 3}\n");
  return not_found(path + " does not exist");
}

Config config_of(const std::string& text) {
  ConfigSources sources;
  sources.files = {{"c.yaml", text}};
  const auto loaded = load_config(sources);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? loaded->config : Config();
}

constexpr const char* kPpo = R"(
algorithm: {name: ppo}
model: {size: llama2-70b, dtype: bf16}
critic: {size: llama2-7b}
reward: [{type: model, size: llama2-7b}, {type: rule, rule: exact}]
rollout: {prompts_per_step: 512, max_response_length: 1024, max_concurrent: 96}
data: {max_prompt_length: 256}
train: {minibatches: 4, epochs_per_rollout: 2}
workload: {response_length: {mean: 400, sigma: 0.6, longest: 1024}}
cluster: {gpu: a100-80g, nodes: 8}
)";

TEST(MakeProblem, ReadsModelsWorkloadAndCluster) {
  const auto problem = make_problem(config_of(kPpo), read_test_file);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  EXPECT_EQ(problem->models.at("actor").spec.name, "llama2-70b");
  EXPECT_EQ(problem->models.at("reference").spec.name, "llama2-70b");
  EXPECT_EQ(problem->models.at("critic").spec.name, "llama2-7b");
  EXPECT_EQ(problem->models.at("reward").spec.name, "llama2-7b");
  EXPECT_EQ(problem->models.at("actor").precision, Precision::kBf16);
  EXPECT_EQ(find_call(problem->graph, "reward")->role, RoleId{"reward"});
  EXPECT_EQ(device_count(problem->cluster), 64);
  EXPECT_EQ(problem->workload.prompts, 512);
  EXPECT_EQ(problem->workload.epochs, 2);
  EXPECT_EQ(minibatch_samples(*problem), 128);
  EXPECT_EQ(problem->max_concurrent, 96);
  EXPECT_EQ(problem->workload.prompt.mean, 256);
  EXPECT_EQ(problem->workload.response.kind, LengthDistribution::Kind::kLognormal);
  EXPECT_EQ(longest_tokens(problem->workload.response), 1024);
  EXPECT_TRUE(validate(trivial_plan(*problem), *problem).ok());
}

TEST(MakeProblem, SumsAreOrderedOnProcessorsAndNativeOnGpus) {
  const auto reduction = [](const std::string& gpu, const std::string& more) {
    const auto problem =
        make_problem(config_of("model: {path: tiny}\nreward: [{type: rule, rule: exact}]\n"
                               "cluster: {gpu: " +
                               gpu + ", nodes: 1, gpus_per_node: 2}\n" + more),
                     read_test_file);
    EXPECT_TRUE(problem.ok()) << problem.status().message();
    return problem->reduction;
  };
  EXPECT_EQ(reduction("this-machine", ""), Reduction::kOrdered);
  EXPECT_EQ(reduction("a100-80g", ""), Reduction::kNative);
  EXPECT_EQ(reduction("this-machine", "train: {reduction: native}\n"), Reduction::kNative);
  EXPECT_EQ(reduction("a100-80g", "train: {reduction: ordered}\n"), Reduction::kOrdered);
  // Another engine sums as its backend does.
  EXPECT_EQ(reduction("a100-80g", "train: {reduction: ordered}\nplan: {train_engine: fsdp}\n"),
            Reduction::kNative);
}

TEST(MakeProblem, RulesNeedNoRewardModel) {
  const auto problem = make_problem(config_of("model: {path: tiny}\nlora: {rank: 8}\n"
                                              "reward: [{type: rule, rule: exact}]"),
                                    read_test_file);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  EXPECT_EQ(problem->models.count("reward"), 0u);
  EXPECT_EQ(problem->models.at("actor").spec.hidden, 64);
  EXPECT_EQ(problem->models.at("actor").trainable.lora_rank, 8);
  EXPECT_EQ(problem->models.at("reference").shares_weights_with, "actor");
  EXPECT_EQ(device_count(problem->cluster), 1);
}

// Each has a call and a size of its own; rules have none.
TEST(MakeProblem, SeveralRewardModelsAreRoles) {
  const auto problem =
      make_problem(config_of("algorithm: {name: grpo}\nrollout: {samples_per_prompt: 8}\nmodel: "
                             "{path: tiny}\nreward: [{type: model}, {type: rule, "
                             "rule: length}, {type: model, name: big, size: llama2-7b}]"),
                   read_test_file);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  EXPECT_TRUE(verify(problem->graph).ok()) << verify(problem->graph).message();
  EXPECT_EQ(find_call(problem->graph, "score_1")->role, RoleId{"reward"});
  EXPECT_EQ(find_call(problem->graph, "score_2")->role, RoleId{"reward_2"});
  EXPECT_FALSE(uses_model(*find_call(problem->graph, "reward")));
  EXPECT_EQ(problem->models.at("reward_2").spec.name, "llama2-7b");
  EXPECT_NE(problem->models.at("reward").spec.name, "llama2-7b");
}

TEST(MakeProblem, WhatLooksAtAWholeStepIsAskedOnOneRank) {
  const auto together = [](const std::string& reward, const std::string& more = "") {
    return asks_rewards_together(config_of(cat("reward: [{", reward, "}]\n", more)));
  };
  const std::string python = "type: python, path: r.py, function: f";
  EXPECT_TRUE(together(python));
  EXPECT_TRUE(together(python + ", signature: trl"));
  EXPECT_TRUE(together(python + ", signature: verl, batch: step"));
  EXPECT_FALSE(together(python + ", signature: verl"));
  EXPECT_FALSE(together(python + ", batch: group"));
  EXPECT_FALSE(together(python + ", signature: trl, batch: sample"));
  EXPECT_FALSE(together("type: rule, rule: exact"));
  EXPECT_FALSE(together("type: http, url: \"http://a:1/\", batch_samples: 32"));
  EXPECT_FALSE(together("type: command, command: [cat]"));
  EXPECT_TRUE(together("type: rule, rule: exact", "rollout: {record: true}"));
}

TEST(MakeProblem, StepsBeyondAllMeasureAreRefused) {
  for (const char* sizes : {"prompts_per_step: 16777216, samples_per_prompt: 4",
                            "prompts_per_step: 64, samples_per_prompt: 16777216"}) {
    const auto problem = make_problem(
        config_of(cat("model: {path: tiny}\nalgorithm: {name: grpo}\nrollout: {", sizes, "}")),
        read_test_file);
    EXPECT_EQ(problem.status().code(), Code::kInvalidInput);
    EXPECT_THAT(problem.status().message(), HasSubstr("at most 1048576 sequences of a step"));
  }
}

TEST(MakeProblem, PairsCountTwoSequences) {
  const auto problem = make_problem(
      config_of("algorithm: {name: dpo}\nmodel: {path: tiny}\nrollout: {prompts_per_step: 16}\n"
                "workload: {response_length: {file: lengths.txt}}"),
      read_test_file);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  EXPECT_EQ(minibatch_samples(*problem), 32);
  EXPECT_DOUBLE_EQ(mean_tokens(problem->workload.response), 30);
}

struct BadCase {
  const char* text;
  const char* message;
};
class BadProblem : public testing::TestWithParam<BadCase> {};
TEST_P(BadProblem, ErrorNamesKeyAndRemedy) {
  const Config config = config_of(GetParam().text);
  const auto problem = make_problem(config, read_test_file);
  const Status status =
      problem.ok() ? configured_plan(config, *problem, read_test_file).status() : problem.status();
  EXPECT_EQ(exit_code(status.code()), 2) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}
constexpr const char* kGrpoHead =
    "algorithm: {name: grpo}\nmodel: {size: llama2-7b}\ncluster: {gpu: a100-80g}\n"
    "rollout: {prompts_per_step: 16, samples_per_prompt: 4}\n";
std::string grpo(const char* rest) { return cat(kGrpoHead, rest); }
const std::string kBadTexts[] = {
    grpo("plan: {file: colocated.yaml}\nplacement: {actor: 0-3}"),
    grpo("plan: {file: colocated.yaml}\nparallel: {generate: {tp: 4}}"),
    grpo("placement: {actor: 0-3, reference: 4-7}\nparallel: {dp: 8, tp: 1, pp: 1}"),
    grpo("placement: {actor: 0-9}"),
    grpo("placement: colocate"),
    grpo("placement: {actr: 0-3}"),
    grpo("placement: {actor: 0.7, reference: 0.7}"),
    grpo("placement: [1]"),
    grpo("parallel: {ttp: 4}"),
    grpo("parallel: {generat: {tp: 4}}"),
    grpo("parallel: {tp: four}"),
    grpo("parallel: {tp: 3}"),
    grpo("parallel: {zero: 1, dp: 8, micro_batches: 7}"),
    grpo("plan: {file: none.yaml}"),
};
INSTANTIATE_TEST_SUITE_P(
    Problems, BadProblem,
    testing::Values(
        BadCase{"cluster: {gpu: a100-80g}", "set model.size to a catalogue name"},
        BadCase{"model: {size: lama2-7b}", "model.size"},
        BadCase{"model: {path: nowhere}", "set model.size"},
        BadCase{"model: {path: tiny}\ndevice: cuda",
                "cluster: is missing; with device cuda it says which GPUs"},
        BadCase{"model: {path: tiny}\ndevice: emulated\nparallel: {dp: 2}",
                "cluster: is missing; device emulated stands for the devices that it names, such "
                "as cluster={gpu: a100-80g, nodes: 1, gpus_per_node: 2}"},
        BadCase{"model: {path: tiny}\ncluster: {gpu: a100}", "c.yaml:2"},
        BadCase{"model: {path: tiny}\nrollout: {max_response_length: 40}\n"
                "workload: {response_length: 50}",
                "a mean of 50 is above rollout.max_response_length = 40; lower it"},
        BadCase{"model: {path: tiny}\nrollout: {max_response_length: 40}\n"
                "workload: {response_length: {mean: 20, sigma: 0.5, longest: 41}}",
                "workload.response_length: longest 41 is above"},
        BadCase{"model: {path: tiny}\nrollout: {max_response_length: 40}\n"
                "workload: {response_length: {file: lengths.txt}}",
                "length 3 of the file (50 tokens) is above"},
        BadCase{"model: {path: tiny}\ndata: {max_prompt_length: 40}\n"
                "workload: {prompt_length: 50}",
                "a mean of 50 is above data.max_prompt_length = 40"},
        BadCase{"model: {path: tiny}\nworkload: {prompt_length: -3}",
                "workload.prompt_length must be a positive number"},
        BadCase{"model: {path: tiny}\nworkload: {prompt_length: {sigma: 1}}", "mean is missing"},
        BadCase{"model: {path: tiny}\nworkload: {prompt_length: {file: bad.txt}}",
                "bad.txt:2: a length must be a whole number"},
        BadCase{"model: {path: tiny}\nworkload: {prompt_length: {file: a, mean: 1}}", "excludes"},
        BadCase{"model: {path: tiny}\nworkload: {prompt_length: {median: 1}}", "unknown key"},
        BadCase{"model: {path: tiny}\nworkload: {prompt_length: {mean: 9, sigma: 50}}",
                "workload.prompt_length.sigma: the logarithm's standard deviation; at most 5"},
        BadCase{"model: {path: tiny}\nworkload: {prompt_length: {mean: 9, longest: 8}}",
                "workload.prompt_length.longest: 8 is below the mean of 9"},
        BadCase{"model: {size: opt-6.7b}\nrollout: {max_response_length: 16384}",
                "exceed the 2050 positions of the actor (opt-6.7b)"},
        BadCase{"model: {path: tiny}\ntrain: {minibatches: 5}", "nearest legal values: 4 and 8"}));
INSTANTIATE_TEST_SUITE_P(
    Plans, BadProblem,
    testing::Values(BadCase{kBadTexts[0].c_str(),
                            "disagrees with the config: call generate: mesh 0-7, but "
                            "placement says 0-3"},
                    BadCase{kBadTexts[1].c_str(), "call generate: tp 2, but parallel says 4"},
                    BadCase{kBadTexts[2].c_str(),
                            "placement and parallel disagree on call generate: 4 devices"},
                    BadCase{kBadTexts[3].c_str(), "device 8 does not exist"},
                    BadCase{kBadTexts[4].c_str(), "did you mean 'colocated'"},
                    BadCase{kBadTexts[5].c_str(), "placement.actr: graph grpo has no such role"},
                    BadCase{kBadTexts[6].c_str(), "actor 0.7, reference 0.7 sum up to 1.4"},
                    BadCase{kBadTexts[7].c_str(), "must be a name or a map"},
                    BadCase{kBadTexts[8].c_str(),
                            "unknown key 'parallel.ttp' (did you mean 'tp'?)"},
                    BadCase{kBadTexts[9].c_str(), "parallel.generat: graph grpo has no such role"},
                    BadCase{kBadTexts[10].c_str(), "parallel.tp must be a whole number, is 'four'"},
                    BadCase{kBadTexts[11].c_str(), "must equal the 8 devices"},
                    BadCase{kBadTexts[12].c_str(), "micro_batches 7 must divide"},
                    BadCase{kBadTexts[13].c_str(), "none.yaml does not exist"}));

TEST(MakeProblem, DrawnLengthsEndAtTheLimitOfTheConfiguration) {
  const auto longest = [](const std::string& lengths) {
    const auto problem =
        make_problem(config_of(cat("model: {path: tiny}\n", "rollout: {max_response_length: 900}\n",
                                   "workload: {response_length: ", lengths, "}")),
                     read_test_file);
    return problem.ok() ? longest_tokens(problem->workload.response) : -1;
  };
  EXPECT_EQ(longest("{mean: 400, sigma: 1.5}"), 900);
  EXPECT_EQ(longest("{mean: 400, sigma: 1.5, longest: 800}"), 800);
  EXPECT_EQ(longest("400"), 400);
}

std::optional<ExecutionPlan> plan_of(const std::string& text) {
  const Config config = config_of(text);
  const auto problem = make_problem(config, read_test_file);
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  const auto plan = configured_plan(config, *problem, read_test_file);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : std::nullopt;
}

TEST(ConfiguredPlan, NothingStatedLeavesThePlanToTheSearch) {
  EXPECT_FALSE(plan_of(grpo("")).has_value());
  EXPECT_FALSE(plan_of(grpo("placement: auto\nparallel: auto")).has_value());
}

TEST(ConfiguredPlan, ParallelFillsAllDevicesAndCallsOverrideIt) {
  const auto plan = plan_of(grpo(
      "parallel: {tp: 2, zero: 1, kv_budget_tokens: 8192, generate: {tp: 1}, reference: {tp: 4}}"));
  ASSERT_TRUE(plan.has_value());
  const Strategy generate = call_plan(*plan, "generate").strategy;
  EXPECT_EQ(generate.dp, 8);
  EXPECT_EQ(generate.kv_budget_tokens, 8192);
  EXPECT_EQ(call_plan(*plan, "ref_logprob").strategy.dp, 2);
  EXPECT_EQ(call_plan(*plan, "update_actor").strategy.zero_stage, 1);
  EXPECT_EQ(call_plan(*plan, "old_logprob").strategy.zero_stage, 0);
}

// On the CPU the processes of this machine are the devices.
TEST(ConfiguredPlan, WithoutAClusterThereAreAsManyDevicesAsItSpeaksOf) {
  const std::string head =
      "model: {size: qwen2.5-0.5b}\nalgorithm: {name: grpo}\n"
      "rollout: {samples_per_prompt: 4}\n";
  const auto devices = [&](const char* rest) { return plan_of(head + rest)->devices; };
  EXPECT_EQ(devices("parallel: {dp: 2}"), 2);
  EXPECT_EQ(devices("parallel: {tp: 2, update_actor: {pp: 2}}"), 4);
  EXPECT_EQ(devices("placement: {actor: 0, reference: \"1,2\"}"), 3);
  EXPECT_EQ(devices("placement: colocated"), 1);
  const auto nodes = plan_of(head + "plan: {file: nodes.yaml}");
  ASSERT_TRUE(nodes.has_value());
  EXPECT_EQ(mesh_text(call_plan(*nodes, "ref_logprob").mesh), "2-3");
  const auto many = make_problem(config_of(head + "parallel: {dp: 33}"), read_test_file);
  EXPECT_THAT(
      many.status().message(),
      HasSubstr("parallel: 33 devices, and no cluster says how many; a node has at most 16, so say "
                "which there are, such as cluster={gpu: this-machine, nodes: 3,"));
  const Config beyond = config_of(head + "parallel: {dp: 1024, tp: 1024}");
  const auto refused = make_problem(beyond, read_test_file);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("call generate takes more than 1024"));
}

// A cluster that names the machine and counts nothing leaves that to the plan.
TEST(ConfiguredPlan, AMachineHasAsManyProcessesAsThePlanSays) {
  const auto text = [](const std::string& cluster, const std::string& rest) {
    return cat(
        "model: {size: qwen2.5-0.5b}\nalgorithm: {name: grpo}\n"
        "rollout: {samples_per_prompt: 4}\ncluster: ",
        cluster, "\n", rest);
  };
  const auto nodes_of = [&](const std::string& cluster, const std::string& rest) {
    const auto problem = make_problem(config_of(text(cluster, rest)), read_test_file);
    EXPECT_TRUE(problem.ok()) << problem.status().message();
    std::vector<int> devices;
    for (const Node& node : problem->cluster.nodes) {
      EXPECT_EQ(node.profile, cluster == "{profile: cpu.json}" ? "cpu.json" : "");
      devices.push_back(node.devices);
    }
    return devices;
  };
  for (const char* machine : {"{profile: cpu.json}", "{gpu: this-machine}"}) {
    EXPECT_EQ(nodes_of(machine, ""), std::vector<int>{1});
    EXPECT_EQ(nodes_of(machine, "parallel: {dp: 2}"), std::vector<int>{2});
    EXPECT_EQ(nodes_of(machine, "plan: {file: nodes.yaml}"), (std::vector<int>{2, 2}));
    EXPECT_EQ(nodes_of(machine, "plan: {file: six.yaml}"), std::vector<int>{6});
  }
  EXPECT_EQ(nodes_of("{gpu: this-machine, gpus_per_node: 3}", "parallel: {dp: 2}"),
            std::vector<int>{3});
  EXPECT_EQ(nodes_of("{nodes: 2, gpus_per_node: 3}", ""), (std::vector<int>{3, 3}));
  EXPECT_EQ(nodes_of("{gpu: a100-80g}", "parallel: {dp: 2}"), std::vector<int>{8});
}

TEST(ConfiguredPlan, PlanFileWinsAndAgreesWithTheRest) {
  const auto plan =
      plan_of(grpo("plan: {file: colocated.yaml}\nplacement: colocated\n"
                   "parallel: {zero: 3}"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(call_plan(*plan, "generate").strategy.tp, 2);
}

TEST(Lengths, AByteOfZeroIsNoEndOfTheFile) {
  const auto read = parse_lengths(std::string_view("12\0 3\n4\n", 8), "l.txt");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.status().message(), testing::HasSubstr("l.txt:1: a length must be a whole"));
}

TEST(Placement, NamedOnesSeparateWhatTheySay) {
  const PlanningProblem problem = make_test_problem({.nodes = 4});
  const auto split = *placement_meshes("split", problem);
  EXPECT_EQ(split.at("generate"), split.at("ref_logprob"));
  EXPECT_EQ(split.at("values"), split.at("reward"));
  EXPECT_FALSE(overlaps(split.at("generate"), split.at("values")));
  const auto apart = *placement_meshes("disaggregated", problem);
  EXPECT_FALSE(overlaps(apart.at("generate"), apart.at("update_actor")));
  EXPECT_EQ(apart.at("update_critic"), apart.at("update_actor"));
  for (const char* call : {"old_logprob", "values", "ref_logprob", "reward"})
    EXPECT_EQ(apart.at(call), apart.at("generate")) << call;
  EXPECT_EQ(apart.at("update_actor").devices.front(), DeviceId{0});
  const auto alone = *placement_meshes("standalone", problem);
  EXPECT_EQ(alone.at("generate"), alone.at("update_actor"));
  EXPECT_FALSE(overlaps(alone.at("ref_logprob"), alone.at("generate")));
}

// Independent calls share no device and together use all of them.
TEST(Placement, InterleavedRunsIndependentCallsSideBySide) {
  const auto all = *placement_meshes("interleaved", make_test_problem({.nodes = 4}));
  for (const char* call : {"generate", "old_logprob"})
    EXPECT_EQ(all.at(call).devices.size(), 32u) << call;
  for (const std::vector<std::string>& stage :
       {std::vector<std::string>{"ref_logprob", "reward", "values"},
        std::vector<std::string>{"update_actor", "update_critic"}}) {
    size_t devices = 0;
    for (const std::string& one : stage) {
      devices += all.at(one).devices.size();
      for (const std::string& other : stage)
        EXPECT_EQ(one == other, overlaps(all.at(one), all.at(other))) << one << " " << other;
    }
    EXPECT_EQ(devices, 32u);
  }
}

// With one frozen model it is beside the values, without any the log-probs are.
TEST(Placement, InterleavedNeedsNoTwoFrozenModels) {
  PlanningProblem problem = make_test_problem({.nodes = 4});
  for (Call& call : problem.graph.calls)
    if (call.kind == CallKind::kReward) call.role = {};  // a rule's
  const auto one = *placement_meshes("interleaved", problem);
  EXPECT_FALSE(overlaps(one.at("ref_logprob"), one.at("values")));
  EXPECT_EQ(one.at("old_logprob").devices.size(), 32u);
  const auto grpo =
      *placement_meshes("interleaved", make_test_problem({.algorithm = "grpo", .nodes = 4}));
  EXPECT_FALSE(overlaps(grpo.at("ref_logprob"), grpo.at("old_logprob")));
  EXPECT_EQ(grpo.at("update_actor").devices.size(), 32u);
  const auto sft = placement_meshes("interleaved", make_test_problem({.algorithm = "sft"}));
  EXPECT_THAT(sft.status().message(), HasSubstr("graph sft has no two such calls; use colocated"));
  EXPECT_THAT(
      placement_meshes("disaggregated", make_test_problem({.algorithm = "sft"})).status().message(),
      HasSubstr("graph sft has no inference; use colocated"));
}

// What `parallel` states of a call divides its part.
TEST(Placement, PartsAreMultiplesOfStatedSizes) {
  const auto sizes = [](const std::string& parallel) {
    const auto plan = plan_of(grpo(cat("placement: disaggregated\nparallel: ", parallel).c_str()));
    return std::pair(call_plan(*plan, "update_actor").mesh.devices.size() % 4,
                     call_plan(*plan, "generate").mesh.devices.size() % 2);
  };
  EXPECT_EQ(sizes("{tp: 2, update_actor: {pp: 2}}"), std::pair(size_t{0}, size_t{0}));
  const Config config = config_of(grpo("placement: disaggregated\nparallel: {dp: 3}"));
  const auto problem = make_problem(config, read_test_file);
  const auto refused = plan_constraints(config, *problem, read_test_file);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("multiples of 3, 3 devices (the sizes that parallel says) cannot cover "
                        "the 8 devices of the cluster; nearest numbers of devices: 6 and 9"));
}

CallMeshes shares_of(const std::string& map, Status* refused = nullptr) {
  const PlanningProblem problem = make_test_problem();
  const auto meshes = read_placement(*parse_yaml(map, "c.yaml"), problem);
  if (refused != nullptr) *refused = meshes.status();
  return meshes.ok() ? *meshes : CallMeshes();
}

TEST(Placement, SharesFillTheClusterInTheOrderWritten) {
  const CallMeshes meshes = shares_of(
      "{reference: 0.25, reward: 75%, generate: all, actor: 0.5, critic: 0.25, values: 7}");
  EXPECT_EQ(mesh_text(meshes.at("ref_logprob")), "0-1");
  EXPECT_EQ(mesh_text(meshes.at("reward")), "2-7");
  EXPECT_EQ(mesh_text(meshes.at("generate")), "0-7");
  EXPECT_EQ(mesh_text(meshes.at("update_actor")), "0-3");
  EXPECT_EQ(mesh_text(meshes.at("old_logprob")), "0-3");
  EXPECT_EQ(mesh_text(meshes.at("update_critic")), "4-5");
  EXPECT_EQ(mesh_text(meshes.at("values")), "7");
  const CallMeshes thirds = shares_of("{reference: 33%, reward: 33%, critic: 33%}");
  EXPECT_EQ(thirds.at("ref_logprob").devices.size() + thirds.at("reward").devices.size() +
                thirds.at("values").devices.size(),
            8u);
}

TEST(Placement, WrongSharesAreRefused) {
  const auto message = [](const std::string& map) {
    Status refused;
    shares_of(map, &refused);
    return refused.message();
  };
  EXPECT_THAT(
      message("{reference: 0.6, reward: 0.6}"),
      HasSubstr("c.yaml:1: placement: the shares reference 0.6, reward 0.6 sum up to 1.2;"));
  EXPECT_THAT(message("{reference: 0.0}"),
              HasSubstr("placement.reference: 0.0 is no share of the devices"));
  EXPECT_THAT(message("{reference: 120%}"),
              HasSubstr("write a number above 0 and up to 1, such as 0.25 or 25%"));
  EXPECT_THAT(message("{reference: -0.5}"), HasSubstr("-0.5 is no share of the devices"));
  EXPECT_THAT(message("{reference: 8}"), HasSubstr("device 8 does not exist"));
}

}  // namespace
}  // namespace braid::inline plan
