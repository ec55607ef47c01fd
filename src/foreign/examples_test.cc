// The gallery of examples/plans: every configuration makes a problem that its plan is legal for.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "config/load.h"
#include "foreign/baselines/baselines.h"
#include "foreign/foreign.h"
#include "plan/make_problem.h"
#include "plan/plan_text.h"
#include "plan/validate.h"
#include "test_paths.h"

namespace braid::inline foreign {
namespace {

// Paths in a configuration are relative to where braid is started: the top of the repository.
Result<std::string> read_from_top(const std::string& path) {
  std::ifstream file(std::string(BRAID_SOURCE_DIR) + "/" + path);
  if (!file) return not_found(path + " does not exist");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class ExamplePlan : public testing::TestWithParam<const char*> {};

TEST_P(ExamplePlan, IsLegalForItsConfiguration) {
  const std::string name = std::string("examples/plans/") + GetParam();
  ConfigSources sources;
  const auto text = read_from_top(name + ".yaml");
  ASSERT_TRUE(text.ok()) << text.status().message();
  sources.files = {{name + ".yaml", *text}};
  sources.overrides = {"plan.file=" + name + ".plan.yaml"};
  const auto loaded = load_config(sources);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto problem = make_problem(loaded->config, read_from_top);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  const auto plan = configured_plan(loaded->config, *problem, read_from_top);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(plan->has_value());
  EXPECT_EQ(*parse_plan(plan_to_yaml(**plan), name), **plan);
  int made = 0;
  for (const Baseline& baseline : baselines()) made += baseline.make(*problem).ok() ? 1 : 0;
  EXPECT_GE(made, 3);
}

// A framework that cannot say a plan exactly must not ask for devices that are not there.
void expect_export_stays_on_the_cluster(const PlanningProblem& problem, const ExecutionPlan& plan) {
  ImportOptions options;
  options.gpu = "a100-80g";
  options.gpus_per_node = problem.cluster.nodes.front().devices;
  const Framework& framework = **find_framework("openrlhf");
  const ExportedConfig exported = framework.export_plan(problem, plan);
  const std::string text = config_text(framework, exported);
  const auto keys = framework.parse(text, "export");
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  const auto imported = framework.import_keys(*keys, options);
  ASSERT_TRUE(imported.ok()) << imported.status().message() << "\n" << text;
  EXPECT_LE(imported->plan.devices, device_count(problem.cluster)) << text;
  const bool same = imported->plan.devices == plan.devices;
  EXPECT_TRUE(same || !exported.not_expressed.empty()) << text;
}

TEST_P(ExamplePlan, ExportsNeedNoMoreDevicesThanItsCluster) {
  const std::string name = std::string("examples/plans/") + GetParam();
  ConfigSources sources;
  sources.files = {{name + ".yaml", *read_from_top(name + ".yaml")}};
  sources.overrides = {"plan.file=" + name + ".plan.yaml"};
  const auto loaded = load_config(sources);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto problem = make_problem(loaded->config, read_from_top);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  expect_export_stays_on_the_cluster(*problem,
                                     **configured_plan(loaded->config, *problem, read_from_top));
  for (const Baseline& baseline : baselines())
    if (const auto plan = baseline.make(*problem); plan.ok())
      expect_export_stays_on_the_cluster(*problem, *plan);
}

INSTANTIATE_TEST_SUITE_P(Gallery, ExamplePlan,
                         testing::Values("one_gpu_lora", "ppo_7b_8gpu", "ppo_70b_64gpu", "grpo_32b",
                                         "heterogeneous"));

}  // namespace
}  // namespace braid::inline foreign
