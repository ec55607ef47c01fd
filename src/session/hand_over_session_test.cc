// Sessions of several ranks that hand a generation over, told between steps when to.
#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

Program handing_program(const Config& config, int64_t below) {
  std::string text = "graph: grpo\ndevices: 1x2\ncalls:\n";
  for (const char* call : {"generate", "old_logprob", "ref_logprob", "update_actor"})
    text += cat("  ", call, ": {mesh: all, dp: 2}\n");
  return program_under(config, cat(text, "fusion: {migrate_below_samples: ", below, "}\n"));
}

// Rows of two steps on the first rank; `then`: the number from the second on.
std::vector<Json> two_steps(World& world, int64_t below, int64_t then) {
  Config config = tiny_run("grpo");
  config.rollout.max_response_length = 24;
  config.run.name = cat("handing-", ::getpid(), "-", world.global_rank());
  auto session = Session::create(config, handing_program(config, below), &world);
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
    (*session)->set_hand_over_below(then);
  }
  EXPECT_TRUE((*session)->dismiss().ok());
  return out;
}

RANK_TEST(HandOverSession, TheNumberMayChangeBetweenSteps, 2) {
  const std::vector<Json> few = two_steps(world, 2, 2), more = two_steps(world, 2, 12);
  if (world.global_rank() != 0) return;
  ASSERT_EQ(few.size(), 2u);
  ASSERT_EQ(more.size(), 2u);
  const auto left = [](const Json& row) { return row["rollout/handed_over"].get<double>(); };
  EXPECT_EQ(left(few[0]), left(more[0]));
  EXPECT_LE(left(few[1]), 2);
  EXPECT_GT(left(more[1]), 2);
  EXPECT_LE(left(more[1]), 12);
  for (const auto& [name, value] : few[1].items()) {  // what is computed is the same
    if (name.rfind("rollout/", 0) == 0) continue;
    EXPECT_EQ(value, more[1][name]) << name;
  }
}

}  // namespace
}  // namespace braid::inline session
