// Sessions of several ranks that hand a generation over, told between steps when to.
#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "comm/rank_testing.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

// `fusion`: "" or the line of the plan.
Program handing_program(const Config& config, int64_t ranks, const std::string& fusion) {
  std::string text = cat("graph: grpo\ndevices: 1x", ranks, "\ncalls:\n");
  for (const char* call : {"generate", "old_logprob", "ref_logprob", "update_actor"})
    text += cat("  ", call, ": {mesh: all, dp: ", ranks, "}\n");
  return program_under(config, text + fusion);
}

std::string handed_at(const std::string& below) {
  return cat("fusion: {migrate_below_samples: ", below, "}\n");
}

// Rows of two steps on the first rank; `then`: the number from the second on, -1 for the plan's.
std::vector<Json> two_steps(World& world, const std::string& fusion, int64_t then = -1,
                            int64_t longest = 24) {
  Config config = tiny_run("grpo");
  config.rollout.max_response_length = longest;
  config.run.name = cat("handing-", ::getpid(), "-", world.global_rank());
  auto session =
      Session::create(config, handing_program(config, world.world_size(), fusion), &world);
  EXPECT_TRUE(session.ok()) << session.status().message();
  if (!session.ok()) return {};
  if (world.global_rank() != 0) {
    const Status followed = (*session)->follow();
    EXPECT_TRUE(followed.ok()) << followed.message();
    return {};
  }
  std::vector<Json> out;
  for (int step = 0; step < 2; ++step) {
    const auto row = (*session)->run_step();
    EXPECT_TRUE(row.ok()) << row.status().message();
    if (!row.ok()) break;
    out.push_back(timeless(*row));
    if (then >= 0) (*session)->set_hand_over_below(then);
  }
  EXPECT_TRUE((*session)->dismiss().ok());
  return out;
}

// What is computed does not depend on who generates what; means, over other ranks, differ in their
// last bits. (Jobs compare rollouts and weights: tests/runs/job_hand_over_test.cc.)
void expect_same_results(const Json& a, const Json& b) {
  for (const auto& [name, value] : a.items()) {
    if (name.rfind("rollout/", 0) == 0 || name.rfind("perf/", 0) == 0) continue;
    const auto expected = value.get<double>();
    EXPECT_NEAR(b[name].get<double>(), expected, 1e-9 * (1e-6 + std::abs(expected))) << name;
  }
}

RANK_TEST(HandOverSession, TheNumberMayChangeBetweenSteps, 2) {
  const std::vector<Json> few = two_steps(world, handed_at("2"), 2),
                          more = two_steps(world, handed_at("2"), 12);
  if (world.global_rank() != 0) return;
  ASSERT_EQ(few.size(), 2u);
  ASSERT_EQ(more.size(), 2u);
  const auto left = [](const Json& row) { return row["rollout/handed_over"].get<double>(); };
  EXPECT_EQ(left(few[0]), left(more[0]));
  EXPECT_LE(left(few[1]), 2);
  EXPECT_GT(left(more[1]), 2);
  EXPECT_LE(left(more[1]), 12);
  expect_same_results(few[1], more[1]);
}

// Those that are free at the first hand-over score while the others count, and decide again.
RANK_TEST(HandOverSession, AgainWithFewerLeft, 4) {
  const std::vector<Json> whole = two_steps(world, ""),
                          handed = two_steps(world, handed_at("[12, 5, 2]"));
  if (world.global_rank() != 0) return;
  ASSERT_EQ(whole.size(), 2u);
  ASSERT_EQ(handed.size(), 2u);
  std::array<double, 3> moved = {};
  for (size_t step = 0; step < 2; ++step) {
    expect_same_results(whole[step], handed[step]);
    double left = 12;
    for (const char* of : {"", "_2", "_3"}) {
      const double now = handed[step][cat("rollout/handed_over", of)].get<double>();
      EXPECT_LE(now, left);
      left = now;
      moved[*of == '\0' ? 0 : of[1] - '1'] +=
          handed[step][cat("rollout/migrated", of)].get<double>();
    }
    EXPECT_LE(left, 2);
  }
  EXPECT_GT(moved[0], 0);
  EXPECT_GT(moved[1] + moved[2], 0);
}

// Caches are copied ahead: what samples become does not depend on it, also where they are handed
// over again.
RANK_TEST(HandOverSession, CachesAreCopiedAhead, 4) {
  const std::vector<Json> whole = two_steps(world, "", -1, 48);
  double copied = 0, used = 0;
  for (const std::string below : {"3", "[4, 2]"}) {
    const std::vector<Json> handed = two_steps(
        world, cat("fusion: {migrate_below_samples: ", below, ", pre_copy_below_samples: 7}\n"), -1,
        48);
    if (world.global_rank() != 0) continue;
    ASSERT_EQ(handed.size(), 2u);
    for (size_t step = 0; step < 2; ++step) {
      expect_same_results(whole[step], handed[step]);
      const double of_step = handed[step]["rollout/pre_copied"].get<double>();
      const double in_vain = handed[step]["rollout/pre_copied_in_vain"].get<double>();
      EXPECT_LE(of_step - in_vain, handed[step]["rollout/migrated"].get<double>());
      copied += of_step, used += of_step - in_vain;
    }
  }
  if (world.global_rank() != 0) return;
  EXPECT_GT(copied, 0);
  EXPECT_GT(used, 0);
}

}  // namespace
}  // namespace braid::inline session
