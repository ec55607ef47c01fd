#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <sstream>

#include "base/text.h"
#include "plan/plan_fields.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"

namespace braid::inline plan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

CallPlan& entry_of(ExecutionPlan& plan, const std::string& name) {
  for (CallPlan& call : plan.calls)
    if (call.call == name) return call;
  plan.calls.push_back({name, {}, {}});
  return plan.calls.back();
}

TEST(Validate, TrivialPlansAreLegalForEveryAlgorithm) {
  for (const char* algorithm : {"ppo", "grpo", "sft", "rm"}) {
    const PlanningProblem problem = make_test_problem({.algorithm = algorithm});
    const Status status = validate(trivial_plan(problem), problem);
    EXPECT_TRUE(status.ok()) << algorithm << ": " << status.message();
  }
}

TEST(Validate, UniformPlansAreLegal) {
  const PlanningProblem problem = make_test_problem({.nodes = 2});
  const int sizes[][3] = {{16, 1, 1}, {2, 8, 1}, {1, 8, 2}, {4, 2, 2}};
  for (const auto& [dp, tp, pp] : sizes) {
    const Status status = validate(uniform_plan(problem, dp, tp, pp), problem);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

struct Broken {
  const char* name;
  std::function<void(ExecutionPlan&)> breaks;
  std::vector<std::string> says;
};
class BrokenPlan : public testing::TestWithParam<Broken> {};

TEST_P(BrokenPlan, ErrorNamesCallRuleAndNearestLegalValue) {
  const PlanningProblem problem = make_test_problem();
  ExecutionPlan plan = uniform_plan(problem, 4, 2, 1);
  ASSERT_TRUE(validate(plan, problem).ok());
  GetParam().breaks(plan);
  const Status status = validate(plan, problem);
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  for (const std::string& part : GetParam().says) EXPECT_THAT(status.message(), HasSubstr(part));
}

Strategy& strategy_of(ExecutionPlan& plan, const char* call) {
  return entry_of(plan, call).strategy;
}

std::vector<Broken> broken_sizes() {
  return {
      {"product",
       [](auto& p) { strategy_of(p, "generate").dp = 3; },
       {"call generate", "3 x 2 x 1 = 6 must equal the 8 devices of mesh 0-7", "dp 4"}},
      {"zero_dp",
       [](auto& p) { strategy_of(p, "generate").dp = 0; },
       {"dp must be at least 1", "1"}},
      {"huge", [](auto& p) { strategy_of(p, "generate").pp = 2000000000; }, {"at most"}},
      {"heads",
       [](auto& p) {
         entry_of(p, "values") = {"values", {{{0}, {1}, {2}}}, {}};
         strategy_of(p, "values").tp = 3;
       },
       {"call values", "tp 3 must divide the 32 attention heads of critic", "2 and 4"}},
      {"sequence_parallel",
       [](auto& p) {
         strategy_of(p, "update_actor") = {};
         strategy_of(p, "update_actor").dp = 8;
         strategy_of(p, "update_actor").sequence_parallel = true;
       },
       {"update_actor", "needs tp above 1"}},
      {"sequence_parallel_generate",
       [](auto& p) { strategy_of(p, "generate").sequence_parallel = true; },
       {"not for generation"}},
      {"zero_of_one",
       [](auto& p) {
         Strategy& s = strategy_of(p, "update_actor");
         s = {};
         s.dp = 8, s.zero_stage = 1, s.zero_ranks = 1;
       },
       {"zero_ranks 1 must divide the 8 ranks of dp x cp and be above 1", "legal values: 2"}},
      {"interleave_one_stage",
       [](auto& p) { strategy_of(p, "update_actor").interleave = 2; },
       {"interleave needs pp above 1"}},
      {"interleave_inference",
       [](auto& p) { strategy_of(p, "values").interleave = 2; },
       {"interleave is for training only"}},
      {"interleave_batches",
       [](auto& p) {
         Strategy& s = strategy_of(p, "update_actor");
         s = {};
         s.tp = 2, s.pp = 4, s.interleave = 2, s.micro_batches = 2;
       },
       {"multiples of pp 4", "nearest legal value: 4"}},
      {"schedule_one_stage",
       [](auto& p) { strategy_of(p, "update_actor").schedule = PipelineOrder::kAllForwardFirst; },
       {"call update_actor: schedule gpipe needs pp above 1", "1f1b"}},
      {"schedule_inference",
       [](auto& p) { strategy_of(p, "values").schedule = PipelineOrder::kAllForwardFirst; },
       {"call values: schedule gpipe is for training"}},
      {"schedule_interleaved",
       [](auto& p) {
         Strategy& s = strategy_of(p, "update_actor");
         s = {};
         s.tp = 2, s.pp = 4, s.interleave = 2, s.micro_batches = 4;
         s.schedule = PipelineOrder::kAllForwardFirst;
       },
       {"interleave 2 needs schedule 1f1b"}},
      {"interleave_layers",
       [](auto& p) {
         Strategy& s = strategy_of(p, "update_actor");
         s = {};
         s.tp = 2, s.pp = 4, s.interleave = 9, s.micro_batches = 4;
       },
       {"pp x interleave = 36 exceeds the 32 layers", "interleave: 8"}},
  };
}

std::vector<Broken> broken_choices() {
  return {
      {"zero_range",
       [](auto& p) { strategy_of(p, "update_actor").zero_stage = 4; },
       {"zero must be 0 to 3", "nearest legal value: 3"}},
      {"zero_inference",
       [](auto& p) { strategy_of(p, "values").zero_stage = 1; },
       {"call values", "0 and 3"}},
      {"zero_generate",
       [](auto& p) { strategy_of(p, "generate").zero_stage = 3; },
       {"call generate", "keeps its weights whole"}},
      {"zero_alone",
       [](auto& p) {
         Strategy& s = strategy_of(p, "update_actor");
         s = {};
         s.tp = 8, s.zero_stage = 1;
       },
       {"dp is 1"}},
      {"recompute",
       [](auto& p) { strategy_of(p, "values").recompute = Recompute::kFull; },
       {"call values", "for training only"}},
      {"kv",
       [](auto& p) { strategy_of(p, "values").kv_budget_tokens = 4096; },
       {"for generation only"}},
      {"kv_small",
       [](auto& p) { strategy_of(p, "generate").kv_budget_tokens = 511; },
       {"cannot hold one sequence", "512"}},
      {"generate_micro",
       [](auto& p) { strategy_of(p, "generate").micro_batches = 2; },
       {"batches continuously"}},
      {"both_budgets",
       [](auto& p) {
         strategy_of(p, "update_actor").micro_batches = 2;
         strategy_of(p, "update_actor").micro_tokens = 4096;
       },
       {"exclude each other"}},
      {"micro_batches",
       [](auto& p) { strategy_of(p, "update_actor").micro_batches = 3; },
       {"must divide the 16 sequences", "2 and 4"}},
      {"batch",
       [](auto& p) {
         entry_of(p, "update_actor") = {"update_actor", {{{0}, {1}, {2}}}, {}};
         strategy_of(p, "update_actor").dp = 3;
         strategy_of(p, "update_actor").micro_batches = 22;
       },
       {"micro_batches 22 must not exceed the 21 sequences of a data-parallel rank"}},
  };
}

std::vector<Broken> broken_plans() {
  return {
      {"mesh_outside",
       [](auto& p) { entry_of(p, "generate").mesh.devices.back() = DeviceId{8}; },
       {"call generate", "device 8 does not exist", "0 to 7"}},
      {"mesh_twice",
       [](auto& p) { entry_of(p, "generate").mesh.devices.back() = DeviceId{0}; },
       {"device 0 is twice"}},
      {"unknown_call",
       [](auto& p) { entry_of(p, "generat").strategy.dp = 8; },
       {"no such call", "did you mean 'generate'"}},
      {"modelless_call",
       [](auto& p) { entry_of(p, "advantages").strategy.dp = 8; },
       {"uses no model"}},
      {"missing_call", [](auto& p) { p.calls.pop_back(); }, {"call update_actor: missing"}},
      {"double_call", [](auto& p) { p.calls.push_back(p.calls.front()); }, {"occurs twice"}},
      {"other_graph", [](auto& p) { p.graph = "grpo"; }, {"for 'grpo', not for 'ppo'"}},
      {"other_cluster",
       [](auto& p) { p.devices = 16; },
       {"for a cluster of 16 devices, this one has 8"}},
      {"unknown_role",
       [](auto& p) { p.roles.push_back({RoleId{"actr"}}); },
       {"role actr", "did you mean 'actor'"}},
      {"frozen_optimizer",
       [](auto& p) {
         p.roles.push_back({RoleId{"reference"}, Residency::kHost, Residency::kHost});
       },
       {"role reference", "is not trained"}},
      {"idle_prefetch",
       [](auto& p) {
         p.roles.push_back({RoleId{"actor"}});
         p.roles.back().prefetch = true;
       },
       {"role actor", "host"}},
      {"migrate",
       [](auto& p) {
         p.fusion.migrate_below_samples = 25;
         strategy_of(p, "generate").dp = 1, strategy_of(p, "generate").tp = 8;
       },
       {"fusion.migrate_below_samples", "call generate has dp 1", "set it to 0"}},
      {"predicted",
       [](auto& p) {
         p.fusion.predicted_lengths = true;
         strategy_of(p, "generate").dp = 1, strategy_of(p, "generate").tp = 8;
       },
       {"fusion.predicted_lengths", "every generation has dp 1", "set it false"}},
      {"sync",
       [](auto& p) { p.fusion.sync_beside_training = true, p.staleness = 1; },
       {"fusion.sync_beside_training", "staleness", "set it false"}},
      {"beside",
       [](auto& p) { p.fusion.train_beside_scoring = 4; },
       {"fusion.train_beside_scoring", "an epoch has 4 (train.minibatches)", "set it to 0"}},
      {"streamed",
       [](auto& p) { p.fusion.train_beside_generation = true; },
       {"fusion.train_beside_generation", "migrate_below_samples is 0", "set it false"}},
      {"fused_tokens",
       [](auto& p) {
         p.fusion.train_schedules = true;
         p.calls.back().strategy.micro_tokens = 4096;
       },
       {"fusion.train_schedules", "micro_batches"}},
      {"fused_units",
       [](auto& p) {
         p.fusion = {true, 0, 1, 0};
       },
       {"fusion.units: must be 1 to"}},
      {"idle_fusion",
       [](auto& p) {
         p.fusion = {false, 0, 5, 16};
       },
       {"fusion: seed and units", "train_schedules is false", "remove them"}},
      {"stale", [](auto& p) { p.staleness = 1; }, {"generate and update_critic share devices"}},
      {"stale_negative", [](auto& p) { p.staleness = -1; }, {"nearest legal value: 0"}},
  };
}

std::string broken_name(const testing::TestParamInfo<Broken>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Sizes, BrokenPlan, testing::ValuesIn(broken_sizes()), broken_name);
INSTANTIATE_TEST_SUITE_P(Choices, BrokenPlan, testing::ValuesIn(broken_choices()), broken_name);
INSTANTIATE_TEST_SUITE_P(Plans, BrokenPlan, testing::ValuesIn(broken_plans()), broken_name);

TEST(Validate, PipelineMayNotHaveMoreStagesThanLayers) {
  const PlanningProblem problem = make_test_problem({.nodes = 5});
  const Status status = validate(uniform_plan(problem, 1, 1, 40), problem);
  EXPECT_THAT(status.message(), HasSubstr("pp 40 exceeds the 32 layers"));
}

TEST(Validate, FusionOfSchedulesNeedsTwoTrainingCallsThatShareDevices) {
  const PlanningProblem grpo = make_test_problem({.algorithm = "grpo"});
  ExecutionPlan plan = uniform_plan(grpo, 8, 1, 1);
  plan.fusion.train_schedules = true;
  EXPECT_THAT(validate(plan, grpo).message(), HasSubstr("fuses two training calls"));
  const PlanningProblem ppo = make_test_problem();
  plan = uniform_plan(ppo, 8, 1, 1);
  plan.fusion.train_schedules = true;
  EXPECT_TRUE(validate(plan, ppo).ok());
}

TEST(Validate, KeyValueHeadsAreReplicatedOnlyEvenly) {
  const PlanningProblem problem = make_test_problem({.actor = "llama2-70b", .nodes = 2});
  EXPECT_TRUE(validate(uniform_plan(problem, 1, 16, 1), problem).ok());
}

// A plan that no rule has looked at: any values that the types hold.
ExecutionPlan random_plan(std::mt19937* rng) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>((*rng)() % n); };
  ExecutionPlan plan;
  plan.graph = below(2) ? "ppo" : "my graph: 2";
  plan.devices = static_cast<int>(1 + below(64));
  plan.staleness = below(3);
  plan.fusion = {below(2) == 1, below(2) * 7, below(100), below(100)};
  plan.fusion.predicted_lengths = below(2) == 1;
  plan.fusion.train_beside_generation = below(2) == 1;
  plan.fusion.train_beside_scoring = below(3);
  plan.fusion.sync_beside_training = below(2) == 1;
  plan.fusion.pre_copy_below_samples = below(2) * 9;
  for (int64_t i = plan.fusion.migrate_below_samples > 0 ? below(3) : 0; i > 0; --i)
    plan.fusion.migrate_again_below.push_back(i);
  for (int i = 0; i < below(5); ++i) {
    CallPlan call{cat("call_", i), {}, {}};
    for (int j = 0; j <= below(6); ++j)
      call.mesh.devices.push_back(DeviceId{static_cast<int32_t>(below(3) * 4 + j)});
    for (const plan_fields::StrategyField& field : plan_fields::strategy_fields()) {
      const auto words = static_cast<int64_t>(field.words.size());
      const int64_t limit = words > 0                                               ? words
                            : field.kind == plan_fields::StrategyField::Kind::kFlag ? 2
                                                                                    : 3;
      EXPECT_TRUE(field.set(call.strategy, below(limit)).ok());
    }
    for (int j = 0; j < below(4); ++j) call.strategy.stage_layers.push_back(1 + below(9));
    plan.calls.push_back(call);
  }
  for (int i = 0; i < below(3); ++i)
    plan.roles.push_back({RoleId{cat("role", i)}, static_cast<Residency>(below(2)),
                          static_cast<Residency>(below(2)), static_cast<OffloadTiming>(below(2)),
                          below(2) == 1});
  return plan;
}

TEST(PlanText, YamlAndJsonReadBackEqual) {
  std::mt19937 rng(7);
  for (int i = 0; i < 300; ++i) {
    const ExecutionPlan plan = random_plan(&rng);
    const auto yaml = parse_plan(plan_to_yaml(plan), "p.yaml");
    ASSERT_TRUE(yaml.ok()) << yaml.status().message() << "\n" << plan;
    EXPECT_EQ(*yaml, plan) << plan;
    const auto json = plan_from_json(*parse_json(plan_json(plan).dump(), "p.json"));
    ASSERT_TRUE(json.ok()) << json.status().message();
    EXPECT_EQ(*json, plan);
    EXPECT_THAT(diff(*yaml, *json), IsEmpty());
  }
}

TEST(PlanText, YamlIsOneLinePerCall) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .nodes = 2});
  ExecutionPlan plan = uniform_plan(problem, 2, 8, 1);
  strategy_of(plan, "update_actor").zero_stage = 1;
  strategy_of(plan, "update_actor").recompute = Recompute::kFull;
  plan.roles.push_back({RoleId{"reference"}, Residency::kHost});
  std::ostringstream out;
  out << plan;
  EXPECT_EQ(out.str(),
            "graph: grpo\n"
            "devices: 16\n"
            "calls:\n"
            "  generate: {mesh: 0-15, dp: 2, tp: 8, pp: 1}\n"
            "  old_logprob: {mesh: 0-15, dp: 2, tp: 8, pp: 1}\n"
            "  ref_logprob: {mesh: 0-15, dp: 2, tp: 8, pp: 1}\n"
            "  update_actor: {mesh: 0-15, dp: 2, tp: 8, pp: 1, zero: 1, recompute: full}\n"
            "roles:\n"
            "  reference: {weights: host}\n");
  const std::string with_nodes = plan_to_yaml(plan, &problem.cluster);
  EXPECT_THAT(with_nodes, HasSubstr("\ndevices: 2x8\n"));
  EXPECT_EQ(*parse_plan(with_nodes, "p.yaml"), plan);
}

TEST(PlanText, MeshesHaveReadableForms) {
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 3, 4);
  const std::pair<const char*, const char*> forms[] = {
      {"0-7", "0-7"},          {"0,2,4", "0,2,4"},      {"8-9, 0-1", "8-9,0-1"},
      {"node 1", "4-7"},       {"nodes 0-1", "0-7"},    {"nodes 1-2", "4-11"},
      {"node 2: 1-2", "9-10"}, {"node 2: 3,0", "11,8"}, {"all", "0-11"},
      {"0-11/4", "0,4,8"},     {"0,3,6,9", "0-9/3"},    {"0-7/2,9-11", "0-6/2,9-11"},
      {"2,1,0", "2,1,0"},      {"0,4,5,6,7", "0,4-7"}};
  for (const auto& [text, devices] : forms) {
    const auto mesh = parse_mesh(text, &cluster);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    EXPECT_EQ(mesh_text(*mesh), devices) << text;
  }
}

struct BadText {
  const char* text;
  const char* message;
};
class BadPlanText : public testing::TestWithParam<BadText> {};
TEST_P(BadPlanText, NamesPlaceAndRemedy) {
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 2, 4);
  const Status status = parse_plan(GetParam().text, "p.yaml", &cluster).status();
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    Cases, BadPlanText,
    testing::Values(
        BadText{"[1]", "must be a map"}, BadText{"devices: 8", "graph is missing"},
        BadText{"graph: ppo", "devices is missing"},
        BadText{"graph: ppo\ndevices: 0", "p.yaml:2: devices must be 1 to"},
        BadText{"graph: ppo\ndevices: 8\ncals: {}", "p.yaml:3: unknown key 'cals' (did you mean"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {dp: 8}",
                "calls.generate.mesh is missing"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: 0-7, tpp: 8}",
                "p.yaml:4: unknown key 'calls.generate.tpp' (did you mean 'tp'?)"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: 0-7, tp: two}",
                "calls.generate.tp must be a whole number, not 'two'"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: 0-7, tp: 99999999999}",
                "too large"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: 7-0}", "is empty or too large"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: 0-7/0}",
                "is no number or range"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: nodes 0-1/2}",
                "nodes are a range without gaps"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: node 2}",
                "the cluster has nodes 0-1"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: 'node 1: 4'}",
                "number 4 is outside 0-3"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  generate: {mesh: nodes}",
                "write devices as 0-7"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  u: {mesh: 0, recompute: some}",
                "none, selective or full"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  u: {mesh: 0-3, pp: 4, stage_layers: {a: 1}}",
                "p.yaml:4: calls.u.stage_layers must be the layers of each stage, such as [5, 6"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  u: {mesh: 0-3, pp: 4, stage_layers: }",
                "leave it out for even stages"},
        BadText{
            "graph: ppo\ndevices: 8\ncalls:\n  u: {mesh: 0-3, stage_layers: [1, x]}",
            "p.yaml:4: calls.u: stage_layers must be layers of each stage such as [5, 6, 6, 5], "
            "not '1,x'"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  u: {mesh: {a: 1}}",
                "p.yaml:4: calls.u.mesh is no device mesh; write devices as 0-7"},
        BadText{"graph: ppo\ndevices: 8\ncalls:\n  u: {mesh: [[1]]}", "is no device mesh"},
        BadText{"graph: ppo\ndevices: 8\nroles:\n  actor: {weights: disk}", "device or host"},
        BadText{"graph: ppo\ndevices: 8\nroles:\n  actor: {weights: host, when: now}",
                "after_last_call or after_each_call"},
        BadText{"graph: ppo\ndevices: 8\nfusion: {train_schedules: 1}", "true or false"},
        BadText{"graph: ppo\ndevices: 8\nfusion: {migrate_below_samples: []}", "must not be empty"},
        BadText{"graph: ppo\ndevices: 8\nfusion: {migrate_below_samples: [8, auto]}",
                "p.yaml:3: fusion.migrate_below_samples"},
        BadText{"graph: ppo\ndevices: 8\nfusion: {migrate_below_samples: [8, 0]}",
                "must be a list of numbers of samples, the largest first"}));

TEST(PlanText, NodeFormsNeedACluster) {
  EXPECT_THAT(parse_mesh("node 0", nullptr).status().message(), HasSubstr("write devices: 8x8"));
}

TEST(PlanText, APlanMayStateItsNodes) {
  const auto plan = parse_plan(
      "graph: g\ndevices: 2x4\ncalls:\n  a: {mesh: node 1}\n  b: {mesh: all}\n", "p.yaml");
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->devices, 8);
  EXPECT_EQ(mesh_text(plan->calls[0].mesh), "4-7");
  EXPECT_EQ(mesh_text(plan->calls[1].mesh), "0-7");
  for (const char* devices : {"2x0", "0x4", "2x17", "x", "2x4x2"})
    EXPECT_FALSE(parse_plan(cat("graph: g\ndevices: ", devices), "p").ok()) << devices;
}

// As a person writes them, too.
TEST(PlanText, ListsAreReadAsTheirTexts) {
  const auto plan = parse_plan(
      "graph: g\ndevices: 6\ncalls:\n  a: {mesh: all, dp: 6}\n  b: {mesh: [1, 0], dp: 2}\n"
      "  c: {mesh: [0-1, 4], stage_layers: [1, 2]}\n  d: {mesh: 0-1, stage_layers: \"1,1\"}\n",
      "p.yaml");
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(mesh_text(plan->calls[0].mesh), "0-5");  // six devices, whatever their nodes
  EXPECT_EQ(mesh_text(plan->calls[1].mesh), "1,0");
  EXPECT_EQ(mesh_text(plan->calls[2].mesh), "0-1,4");
  EXPECT_EQ(plan->calls[2].strategy.stage_layers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(plan->calls[3].strategy.stage_layers, (std::vector<int64_t>{1, 1}));
}

TEST(PlanText, BadJsonIsAnError) {
  for (const char* text : {"[]", "{}", R"({"graph": "ppo", "devices": "x"})",
                           R"({"graph": "ppo", "devices": 8, "calls": 3})",
                           R"({"graph": "ppo", "devices": 8, "calls": [{"call": "g"}]})",
                           R"({"graph": "p", "devices": 8, "calls": [], "roles": [{"role": 1}]})"})
    EXPECT_EQ(plan_from_json(*parse_json(text, "t")).status().code(), Code::kInvalidInput) << text;
}

TEST(PlanDiff, OneLinePerDifference) {
  const PlanningProblem problem = make_test_problem();
  const ExecutionPlan a = uniform_plan(problem, 8, 1, 1);
  ExecutionPlan b = a;
  strategy_of(b, "generate").dp = 4, strategy_of(b, "generate").tp = 2;
  entry_of(b, "values").mesh = {{{0}, {1}}};
  b.roles.push_back({RoleId{"actor"}, Residency::kDevice, Residency::kHost});
  b.calls.erase(b.calls.begin() + 1);
  EXPECT_EQ(diff(a, b), (std::vector<std::string>{"generate: dp: 8 -> 4", "generate: tp: 1 -> 2",
                                                  "only in the first: reward: mesh 0-7 dp8 tp1 pp1",
                                                  "values: mesh: 0-7 -> 0-1",
                                                  "role actor: optimizer: device -> host"}));
  EXPECT_THAT(diff(a, a), IsEmpty());
}

TEST(Lengths, LongestAndMean) {
  LengthDistribution lengths;
  lengths.mean = 100;
  EXPECT_EQ(longest_tokens(lengths), 100);
  lengths.kind = LengthDistribution::Kind::kLognormal;
  lengths.sigma = 0.5;  // exp(ln 100 - 0.125 + 1.5451) = 413.7
  EXPECT_EQ(longest_tokens(lengths), 414);
  lengths.longest = 300;
  EXPECT_EQ(longest_tokens(lengths), 300);
  lengths = {LengthDistribution::Kind::kEmpirical, 0, 0, 0, {10, 20, 60}};
  EXPECT_EQ(longest_tokens(lengths), 60);
  EXPECT_DOUBLE_EQ(mean_tokens(lengths), 30);
  lengths.longest = 30;
  EXPECT_DOUBLE_EQ(mean_tokens(lengths), 20);
}

}  // namespace
}  // namespace braid::inline plan
