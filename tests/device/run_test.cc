// Whole runs on the test device against the same runs on the CPU: every algorithm, adapters, 16
// bits, recomputation, offloaded roles, reward models, checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "nn/parallel_testing.h"
#include "scoring/evaluate.h"
#include "session/testing.h"
#include "test_device.h"

namespace braid {
namespace {

constexpr int kSteps = 2;

using Row = std::map<std::string, double>;

Config run_on(Config config, const std::string& device) {
  config.device = device;
  return config;
}

// kSteps steps; their metrics.
std::vector<Row> run_steps(Session& session) {
  std::vector<Row> rows;
  for (int step = 0; step < kSteps; ++step) {
    const auto row = session.run_step();
    EXPECT_TRUE(row.ok()) << row.status().message();
    if (!row.ok()) break;
    rows.push_back(timeless(*row));
  }
  return rows;
}

void expect_near(const Row& actual, const Row& expected, double tolerance) {
  for (const auto& [name, value] : expected) {
    if (name.rfind("memory/", 0) == 0) continue;
    ASSERT_EQ(actual.count(name), 1u) << name;
    EXPECT_NEAR(actual.at(name), value, tolerance * std::max(1.0, std::abs(value))) << name;
  }
  EXPECT_EQ(actual.size(), expected.size());
}

void expect_all_on(const std::string& role, const ModelInstance& state, at::Device device) {
  for (const auto& [name, parameter] : state.model->parameters())
    EXPECT_EQ(parameter.device(), device) << role << " " << name;
}

// What trains lies on the device; others may rest on the host.
void expect_on(const Session& session, at::Device device) {
  for (const auto& [role, state] : session.roles())
    if (state.optimizer) expect_all_on(role, state, device);
}

// The same configuration on the CPU and on the device: metrics, responses and weights.
void expect_same_run(const Config& config, double tolerance) {
  const at::Device device = install_test_device();
  const Program program = program_of(config);
  const auto here = session_of(config, program);
  const auto there = session_of(run_on(config, kTestDevice), program);
  expect_on(*there, device);
  const auto expected = run_steps(*here), actual = run_steps(*there);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step)
    expect_near(actual[step], expected[step], tolerance);
  expect_on(*there, device);
  for (const auto& [role, state] : here->roles()) {
    const auto values = by_name(*there->roles().at(role).model);
    for (const auto& [name, parameter] : state.model->parameters())
      EXPECT_LE(relative_error(values.at(name).detach().to(at::kCPU), parameter.detach(), 0),
                tolerance)
          << role << " " << name;
  }
}

class DeviceRun : public testing::TestWithParam<const char*> {};

TEST_P(DeviceRun, EqualsTheRunOnTheCpu) { expect_same_run(tiny_run(GetParam()), 1e-3); }

TEST_P(DeviceRun, EqualsTheRunOnTheCpuWithAdapters) {
  Config config = tiny_run(GetParam());
  const std::string folder = join_path(config.run.dir, cat("device-model-", ::getpid()));
  const auto spec = parse_model_spec(*read_file(config.model.config), config.model.config);
  const auto base = make_model(*spec, {.seed = 4});
  ASSERT_EQ(save_model(**base, folder, {.source_folder = quickstart_model()}).message(), "");
  config.model.path = folder;
  config.model.config = "";
  config.lora.rank = 2;
  config.lora.dropout = 0.1;
  config.train.recompute = true;
  expect_same_run(config, 1e-3);
  std::filesystem::remove_all(folder);
}

// Half a run, its state through a file, the other half, on the device: the bits of a whole run.
TEST_P(DeviceRun, ContinuesBitForBitFromItsCheckpoint) {
  const at::Device device = install_test_device();
  const Config config = run_on(tiny_run(GetParam()), kTestDevice);
  const Program program = program_of(config);
  const auto whole = session_of(config, program), first = session_of(config, program),
             second = session_of(config, program);
  ASSERT_TRUE(first->run_step().ok());
  const std::string folder = join_path(join_path(config.run.dir, config.run.name), "device-saves");
  const auto saved = save_checkpoint(folder, {1, false}, {}, *first->save_state());
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  auto loaded = CheckpointReader::open(*saved);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(second->load_state(std::move(loaded).value()).message(), "");
  const auto expected = run_steps(*whole);
  const auto row = second->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(timeless(*row), expected.back());
  EXPECT_TRUE(same_weights(*whole, *second));
  expect_on(*second, device);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, DeviceRun, testing::Values("sft", "rm", "ppo", "grpo"));

// A run may go on with another device: its next step is the other's but for rounding.
TEST(DeviceRuns, ContinueOnTheCpuAndBack) {
  install_test_device();
  for (const bool from_device : {true, false}) {
    const Config begin = run_on(tiny_run("ppo"), from_device ? kTestDevice : "cpu");
    const Config end = run_on(begin, from_device ? "cpu" : kTestDevice);
    const Program program = program_of(begin);
    const auto whole = session_of(begin, program), first = session_of(begin, program),
               second = session_of(end, program);
    ASSERT_TRUE(first->run_step().ok());
    ASSERT_EQ(second->load_state(*first->save_state()).message(), "");
    const auto expected = run_steps(*whole);
    const auto row = second->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    expect_near(timeless(*row), expected.back(), 1e-3);
  }
}

TEST(DeviceRuns, EvaluateAsTheCpuDoes) {
  install_test_device();
  Config config = tiny_run("grpo");
  config.data.eval = "task:sort_digits";
  config.eval.prompts = 5;
  std::vector<Row> rows;
  for (const char* device : {"cpu", kTestDevice}) {
    const Config on = run_on(config, device);
    const auto policy = load_policy(on);
    ASSERT_TRUE(policy.ok()) << policy.status().message();
    const auto models = load_reward_models(on, {});
    const auto evaluator = Evaluator::create(on);
    ASSERT_TRUE(evaluator.ok()) << evaluator.status().message();
    const auto report = (*evaluator)->run(**policy, *models);
    ASSERT_TRUE(report.ok()) << report.status().message();
    rows.push_back(timeless(report->metrics));
  }
  expect_near(rows[1], rows[0], 1e-5);
}

// Frozen roles lie on the host between their calls unless train.offload is off; results are the
// same bits.
TEST(DeviceRuns, KeepRestingRolesOnTheHost) {
  const at::Device device = install_test_device();
  Config config = run_on(tiny_run("grpo"), kTestDevice);
  std::vector<std::vector<Row>> rows;
  for (const char* offload : {"auto", "off"}) {
    config.train.offload = offload;
    const auto session = session_of(config, program_of(config));
    rows.push_back(run_steps(*session));
    const bool rests = std::string(offload) == "auto";
    expect_all_on("reference", session->roles().at("reference"),
                  rests ? at::Device(at::kCPU) : device);
  }
  EXPECT_EQ(rows[0], rows[1]);
}

TEST(DeviceRuns, ComputeIn16Bits) {
  const at::Device device = install_test_device();
  Config config = run_on(tiny_run("grpo"), kTestDevice);
  config.model.dtype = "bf16";
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  for (const Row& row : run_steps(*session)) EXPECT_LE(row.at("mismatch/logprob_abs_max"), 0.1);
  expect_on(*session, device);
}

TEST(DeviceRuns, ExportWhatLoadsOnTheCpu) {
  install_test_device();
  const Config config = run_on(tiny_run("rm"), kTestDevice);
  const auto session = session_of(config, program_of(config));
  run_steps(*session);
  const std::string folder = join_path(config.run.dir, cat("device-export-", ::getpid()));
  ASSERT_EQ(session->export_models(folder).message(), "");
  const auto loaded = load_model(join_path(folder, "reward"), {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto values = by_name(**loaded);
  for (const auto& [name, parameter] : session->roles().at("reward").model->parameters())
    EXPECT_TRUE(at::equal(values.at(name), parameter.detach().to(at::kCPU))) << name;
  // As the reward of a run on the device.
  Config next = tiny_run("ppo");
  next.reward[0].type = "model";
  next.reward[0].rule = "";
  next.reward[0].path = join_path(folder, "reward");
  expect_same_run(next, 1e-3);
  std::filesystem::remove_all(folder);
}

// A tensor that is left on the host stops the step with an error.
TEST(DeviceRuns, FailWhereATensorIsMisplaced) {
  install_test_device();
  const Config config = run_on(tiny_run("sft"), kTestDevice);
  const auto session = session_of(config, program_of(config));
  Model& model = *session->roles().at("actor").model;
  const TokenBatch left_behind = pack_sequences({{1, 2, 3}}, at::kCPU);
  EXPECT_THROW(model.forward(left_behind, nullptr), c10::Error);
}

}  // namespace
}  // namespace braid
