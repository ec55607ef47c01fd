// A cluster or a step that is better in some number is planned no slower, and the order in which
// nodes are listed changes nothing. BRAID_TEST_FULL=1 runs all cases, otherwise a sample.
#include <gtest/gtest.h>

#include <map>

#include "cluster/kind_order.h"
#include "plan/test_problem.h"
#include "search/test_search.h"

namespace braid::inline search {
namespace {

struct Better {
  std::string name;
  void (*make)(PlanningProblem& problem);
};

template <auto kNumber, int kPercent>
void more(PlanningProblem& p) {
  for (Node& node : p.cluster.nodes) node.gpu.*kNumber *= kPercent / 100.0;
}
template <int kPercent>
void more_network(PlanningProblem& p) {
  for (Node& node : p.cluster.nodes) node.nic_gbps_per_gpu *= kPercent / 100.0;
}

void twice_the_nodes(PlanningProblem& p) {
  const Node& node = p.cluster.nodes[0];
  p.cluster = *make_cluster(node.gpu, 2 * static_cast<int>(p.cluster.nodes.size()), node.devices);
}

void smaller(PlanningProblem& p, bool policies) {
  for (auto& [role, model] : p.models)
    if ((role == "actor" || role == "reference") == policies)
      model.spec = {*find_model("llama3.2-1b")};
}

const std::vector<Better>& betters() {
  static const std::vector<Better> all = {
      {"memory +25 %", more<&GpuSpec::hbm_bytes, 125>},
      {"memory rate +20 %", more<&GpuSpec::hbm_gbytes_per_s, 120>},
      {"GEMMs +20 %", more<&GpuSpec::bf16_tflops, 120>},
      {"NVLink x 2", more<&GpuSpec::nvlink_gbytes_per_s, 200>},
      {"host link x 2", more<&GpuSpec::pcie_gbytes_per_s, 200>},
      {"network x 2", more_network<200>},
      {"twice the nodes", twice_the_nodes},
      {"shorter responses", [](PlanningProblem& p) { p.workload.response.mean *= 0.75; }},
      {"shorter prompts", [](PlanningProblem& p) { p.workload.prompt.mean *= 0.5; }},
      {"half the prompts", [](PlanningProblem& p) { p.workload.prompts /= 2; }},
      {"a smaller critic", [](PlanningProblem& p) { smaller(p, false); }},
      {"a smaller actor", [](PlanningProblem& p) { smaller(p, true); }},
      {"memory +5 %", more<&GpuSpec::hbm_bytes, 105>},
      {"memory x 2", more<&GpuSpec::hbm_bytes, 200>},
      {"memory rate +3 %", more<&GpuSpec::hbm_gbytes_per_s, 103>},
      {"memory rate x 2", more<&GpuSpec::hbm_gbytes_per_s, 200>},
      {"GEMMs +3 %", more<&GpuSpec::bf16_tflops, 103>},
      {"GEMMs x 2", more<&GpuSpec::bf16_tflops, 200>},
      {"NVLink +25 %", more<&GpuSpec::nvlink_gbytes_per_s, 125>},
      {"host link +25 %", more<&GpuSpec::pcie_gbytes_per_s, 125>},
      {"network +25 %", more_network<125>},
  };
  return all;
}

std::vector<NamedProblem> bases() {
  const auto grpo = [](const char* gpu, int nodes, const char* actor) {
    return make_test_problem({.algorithm = "grpo",
                              .actor = actor,
                              .gpu = gpu,
                              .nodes = nodes,
                              .prompts = 64,
                              .samples = 4});
  };
  return {{"ppo 7b, 8 a100", make_test_problem({.prompts = 128})},
          {"grpo 7b, 8 h100", grpo("h100-80g", 1, "llama2-7b")},
          {"ppo 13b+7b, 16 h800",
           make_test_problem({.actor = "llama2-13b", .gpu = "h800", .nodes = 2})},
          {"grpo 1b, 4 l40s", make_test_problem({.algorithm = "grpo",
                                                 .actor = "llama3.2-1b",
                                                 .gpu = "l40s",
                                                 .devices = 4,
                                                 .prompts = 32,
                                                 .samples = 4})},
          {"sft 7b, 8 a100", make_test_problem({.algorithm = "sft", .prompts = 256})},
          {"grpo 13b, 8 h200", grpo("h200", 1, "llama2-13b")},
          {"grpo 7b, 16 a100", grpo("a100-80g", 2, "llama2-7b")},
          {"grpo 13b, 16 h100", grpo("h100-80g", 2, "llama2-13b")},
          {"ppo 7b, 4 h100", make_test_problem({.gpu = "h100-80g", .devices = 4, .prompts = 64})},
          {"ppo 7b+1b, 8 a100-40g",
           make_test_problem({.critic = "llama3.2-1b", .gpu = "a100-40g", .prompts = 64})},
          {"sft 13b, 16 h100",
           make_test_problem(
               {.algorithm = "sft", .actor = "llama2-13b", .gpu = "h100-80g", .nodes = 2})},
          {"grpo 7b of 8k, 8 h100", make_test_problem({.algorithm = "grpo",
                                                       .actor = "qwen2.5-7b",
                                                       .gpu = "h100-80g",
                                                       .prompts = 32,
                                                       .samples = 8,
                                                       .prompt_tokens = 1024,
                                                       .response_tokens = 8192})}};
}

constexpr double kNoise = 0.003;  // of a search that proves nothing

int64_t physics_units() { return full_tier() ? 64 : 20; }

// The fastest plan of each base, searched once.
double base_step_s(size_t base) {
  static std::map<size_t, double> known;
  const auto found = known.find(base);
  if (found != known.end()) return found->second;
  return known[base] = step_s(searched_plan(bases()[base].problem, physics_units(), 0));
}

using Case = std::pair<size_t, size_t>;  // base, better

// The full tier takes all.
std::vector<Case> physics_cases() {
  std::vector<Case> cases;
  const size_t step = full_tier() ? 1 : 4, stride = full_tier() ? 1 : 7;
  for (size_t b = 0; b < (full_tier() ? bases().size() : 5); b += step)
    for (size_t i = b % step; i < betters().size(); i += stride) cases.emplace_back(b, i);
  return cases;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return words_of(bases()[info.param.first].name + " " + betters()[info.param.second].name);
}

class PlanPhysics : public testing::TestWithParam<Case> {};

TEST_P(PlanPhysics, WhatIsBetterInOneNumberIsPlannedNoSlower) {
  const auto [base, better] = GetParam();
  PlanningProblem problem = bases()[base].problem;
  betters()[better].make(problem);
  EXPECT_LT(base_step_s(base), HUGE_VAL);
  EXPECT_LE(step_s(searched_plan(problem, physics_units(), 0)), base_step_s(base) * (1 + kNoise));
}

INSTANTIATE_TEST_SUITE_P(Cases, PlanPhysics, testing::ValuesIn(physics_cases()), case_name);

PlanningProblem on(const std::vector<const char*>& gpus) {
  PlanningProblem problem = make_test_problem({.actor = "llama2-13b", .prompts = 64});
  problem.cluster.nodes.clear();
  for (const char* gpu : gpus)
    problem.cluster.nodes.push_back(make_cluster(*find_gpu(gpu), 1, 4)->nodes[0]);
  problem.cluster = in_kind_order(problem.cluster);
  return problem;
}

TEST(PlanPhysicsOfDevices, TheOrderOfNodesChangesNothing) {
  const auto sorted = searched_plan(on({"h100-80g", "h100-80g", "a100-80g"}), 8);
  const auto mixed = searched_plan(on({"h100-80g", "a100-80g", "h100-80g"}), 8);
  ASSERT_TRUE(sorted.ok() && mixed.ok());
  EXPECT_EQ(sorted->plan, mixed->plan);
  EXPECT_EQ(sorted->verdict->step_s, mixed->verdict->step_s);
  EXPECT_EQ(device_numbers_text(on({"a100-80g", "h100-80g", "a100-80g"}).cluster),
            "devices 0-3: h100-80g, 4-11: a100-80g");
}

TEST(PlanPhysicsOfDevices, ADeviceThatIsNoBetterIsNotPlannedFaster) {
  const auto on_gpu = [](const char* gpu) {
    return make_test_problem({.gpu = gpu, .prompts = 128});
  };
  const double h100_s = step_s(searched_plan(on_gpu("h100-80g"), 20, 0));
  EXPECT_GE(step_s(searched_plan(on_gpu("h800"), 20, 0)), h100_s * (1 - kNoise));
  PlanningProblem equal = on_gpu("h800");
  for (Node& node : equal.cluster.nodes)
    node.gpu.nvlink_gbytes_per_s = find_gpu("h100-80g")->nvlink_gbytes_per_s;
  EXPECT_DOUBLE_EQ(step_s(searched_plan(equal, 20, 0)), h100_s);
  EXPECT_LE(step_s(searched_plan(on_gpu("h200"), 20, 0)), h100_s * (1 + kNoise));
}

}  // namespace
}  // namespace braid::inline search
