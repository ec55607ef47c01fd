// Several ranks with a test device each: what they communicate passes through host memory, and the
// job computes what it does on CPUs.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_testing.h"
#include "device/device.h"
#include "nn/parallel_testing.h"
#include "plan/make_problem.h"
#include "runs/job_testing.h"
#include "session/testing.h"
#include "test_device.h"
#include "weights/load_models.h"

namespace braid {
namespace {

RANK_TEST(DeviceRanks, TransferTensorsOfTheirDevices, 2) {
  install_test_device();
  ASSERT_EQ(use_local_device(kTestDevice, world.global_rank()).message(), "");
  const at::Device device = *parse_device(kTestDevice, "device");
  ASSERT_EQ(device.index(), world.global_rank());
  Communicator& all = **world.everyone();
  const auto options = at::TensorOptions(device);
  const auto rank = static_cast<float>(world.global_rank());
  const auto here = [](const at::Tensor& tensor) { return tensor.to(at::kCPU); };

  const at::Tensor sum = at::full({3}, rank + 1, options);
  ASSERT_EQ(all.all_reduce(sum, Reduce::kSum, "sum").wait().message(), "");
  EXPECT_TRUE(at::equal(here(sum), at::full({3}, 3.0F)));

  const at::Tensor from_first = at::full({2}, rank, options);
  ASSERT_EQ(all.broadcast(from_first, 0, "first").wait().message(), "");
  EXPECT_TRUE(at::equal(here(from_first), at::zeros({2})));

  const at::Tensor gathered = at::zeros({4}, options), own = at::full({2}, rank, options);
  ASSERT_EQ(all.all_gather(gathered, own, "own").wait().message(), "");
  EXPECT_TRUE(at::equal(here(gathered), at::arange(4).div(2, "floor").to(at::kFloat)));

  const at::Tensor part = at::zeros({2}, options);
  ASSERT_EQ(all.reduce_scatter(part, gathered, "gathered").wait().message(), "");
  EXPECT_TRUE(at::equal(here(part), at::full({2}, 2 * rank)));

  const at::Tensor swapped = at::zeros({2}, options);
  ASSERT_EQ(all.all_to_all(swapped, own, {1, 1}, {1, 1}, "own").wait().message(), "");
  EXPECT_TRUE(at::equal(here(swapped), at::arange(2).to(at::kFloat)));

  const int64_t other = 1 - world.global_rank();
  const at::Tensor received = at::zeros({2}, options);
  Pending sent = all.send(own, other, 1, "own"), came = all.receive(received, other, 1, "own");
  ASSERT_EQ(sent.wait().message(), "");
  ASSERT_EQ(came.wait().message(), "");
  EXPECT_TRUE(at::equal(here(received), at::full({2}, 1 - rank)));
}

// Compiles a plan for the processes of this machine.
Program compiled(const Config& config, const std::string& plan) {
  Config planned = config;
  planned.plan.file = "plan";
  const auto read = [&](const std::string& path) -> Result<std::string> {
    return path == "plan" ? plan : read_file(path);
  };
  auto problem = make_problem(planned, read);
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  for (const RoleSpec& role : problem->graph.roles)
    if (const auto found = problem->models.find(role.role.value); found != problem->models.end())
      found->second.spec = *origin_spec(*role_origin(config, role.role.value), role.scalar_head);
  const auto stated = configured_plan(planned, *problem, read);
  EXPECT_TRUE(stated.ok()) << stated.status().message();
  auto program = compile(**stated, *problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

// What the first rank sees of two steps; the others come along.
std::vector<std::map<std::string, double>> steps_of(Session& session, World& world) {
  std::vector<std::map<std::string, double>> rows;
  if (world.global_rank() != 0) {
    EXPECT_EQ(session.follow().message(), "");
    return rows;
  }
  for (int step = 0; step < 2; ++step) {
    auto row = session.run_step();
    EXPECT_TRUE(row.ok()) << row.status().message();
    if (!row.ok()) break;
    rows.push_back(timeless(*row));
  }
  EXPECT_TRUE(session.save_state().ok());
  EXPECT_EQ(session.dismiss().message(), "");
  return rows;
}

Config job_config(World& world, const std::string& algorithm) {
  Config config = tiny_run(algorithm);
  config.run.name = cat("device-ranks-", world.membership().master_port);
  config.train.threads = 1;
  config.train.micro_tokens = 4096;
  config.data.max_prompt_length = 64;
  return config;
}

Program job_program(const Config& config, const std::string& calls) {
  return compiled(config, cat("graph: ", config.algorithm.name, "\ndevices: 1x2\ncalls:\n", calls));
}

// The same job on CPUs and on test devices.
void expect_same_job(World& world, const std::string& algorithm, const std::string& calls) {
  SCOPED_TRACE(calls);
  install_test_device();
  ASSERT_EQ(use_local_device(kTestDevice, world.global_rank()).message(), "");
  Config config = job_config(world, algorithm);
  const Program program = job_program(config, calls);
  std::vector<std::vector<std::map<std::string, double>>> runs;
  for (const char* device : {"cpu", kTestDevice}) {
    config.device = device;
    const auto session = Session::create(config, program, &world);
    ASSERT_TRUE(session.ok()) << session.status().message();
    runs.push_back(steps_of(**session, world));
  }
  ASSERT_EQ(runs[1].size(), runs[0].size());
  for (size_t step = 0; step < runs[0].size(); ++step)
    for (const auto& [name, value] : runs[0][step]) {
      if (name.rfind("memory/", 0) == 0) continue;
      // Of two dozen tokens one may lie on the edge of the clip, where another rounding decides.
      const double near = name.ends_with("/clipfrac") ? 1.01 / 24 : 1e-3;
      EXPECT_NEAR(runs[1][step].at(name), value, near * std::max(1.0, std::abs(value))) << name;
    }
}

RANK_TEST(DeviceRanks, ComputeWhatAJobOnCpusDoes, 2) {
  expect_same_job(world, "ppo", everywhere("ppo", "dp: 2", "dp: 2", "zero: 1"));
  expect_same_job(world, "ppo", everywhere("ppo", "tp: 2", "tp: 2, sequence_parallel: true"));
  expect_same_job(world, "grpo", everywhere("grpo", "dp: 2", "pp: 2, micro_batches: 2"));
  expect_same_job(world, "ppo", everywhere("ppo", "dp: 2", "dp: 2", "zero: 2"));
  expect_same_job(world, "grpo", everywhere("grpo", "dp: 2", "dp: 2, zero: 3"));
  expect_same_job(world, "ppo",
                  everywhere("ppo", "dp: 2", "tp: 2") +
                      "roles:\n  actor: {weights: host, optimizer: host}\n"
                      "  critic: {optimizer: host, weights: host, when: after_each_call}\n"
                      "  reference: {weights: host}\n");
  expect_same_job(world, "ppo",
                  "  generate: {mesh: all, tp: 2}\n  old_logprob: {mesh: all, dp: 2}\n"
                  "  ref_logprob: {mesh: all, pp: 2}\n  values: {mesh: all, tp: 2}\n"
                  "  update_critic: {mesh: all, pp: 2}\n  update_actor: {mesh: all, dp: 2}\n");
}

// Copies of the test device happen when they are waited for: who forgets that computes with what
// was there before.
RANK_TEST(DeviceRanks, PrefetchedStatesGiveTheSameBits, 2) {
  install_test_device();
  ASSERT_EQ(use_local_device(kTestDevice, world.global_rank()).message(), "");
  Config config = job_config(world, "ppo");
  for (const char* passes : {"tp: 2", "dp: 2, zero: 3"}) {
    SCOPED_TRACE(passes);
    std::vector<std::vector<std::map<std::string, double>>> runs;
    for (const char* ahead : {"", ", prefetch: true"}) {
      const std::string roles =
          cat("roles:\n  actor: {weights: host, optimizer: host", ahead, "}\n",
              "  critic: {weights: host, optimizer: host, when: after_each_call", ahead, "}\n",
              "  reference: {weights: host", ahead, "}\n");
      const Program program = job_program(config, everywhere("ppo", "dp: 2", passes) + roles);
      Config there = config;
      there.device = kTestDevice;
      const auto session = Session::create(there, program, &world);
      ASSERT_TRUE(session.ok()) << session.status().message();
      runs.push_back(steps_of(**session, world));
    }
    EXPECT_EQ(runs[0], runs[1]);
  }
}

TEST(DeviceRanks, TakeTheDeviceOfTheirPlaceOnTheMachine) {
  install_test_device();
  EXPECT_EQ(use_local_device("cpu", 7).message(), "");
  EXPECT_EQ(use_local_device("braidtest", 1).message(), "");
  EXPECT_EQ(parse_device("braidtest", "device")->index(), 1);
  EXPECT_EQ(use_local_device("braidtest", 0).message(), "");
  EXPECT_EQ(use_local_device("braidtest", 2).message(),
            "device: braidtest: 3 ranks on a machine where they find 2 braidtest devices; start at "
            "most one rank for each, and let every rank see all of them");
  EXPECT_THAT(use_local_device("braidtest:1", 0).message(), testing::HasSubstr("leave the number"));

  ::setenv("BRAID_SHARE_GPU", "1", 1);
  EXPECT_EQ(check_local_devices("braidtest", 5).message(), "");
  EXPECT_EQ(use_local_device("braidtest", 3).message(), "");
  EXPECT_EQ(parse_device("braidtest", "device")->index(), 1);
  EXPECT_FALSE(use_local_device("cuda", 0).ok()) << "sharing needs a device";
  ::unsetenv("BRAID_SHARE_GPU");
  EXPECT_FALSE(check_local_devices("braidtest", 5).ok());
  EXPECT_EQ(use_local_device("braidtest", 0).message(), "");  // as before, for the next test
}

}  // namespace
}  // namespace braid
