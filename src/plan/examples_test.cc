// The gallery of examples/plans: every configuration makes a problem that its plan is legal for.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "config/load.h"
#include "plan/baselines/baselines.h"
#include "plan/make_problem.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid {
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

INSTANTIATE_TEST_SUITE_P(Gallery, ExamplePlan,
                         testing::Values("one_gpu_lora", "ppo_7b_8gpu", "ppo_70b_64gpu", "grpo_32b",
                                         "heterogeneous"));

}  // namespace
}  // namespace braid
