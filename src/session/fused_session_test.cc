// Sessions of several ranks whose updates are fused: what they hold beside what the schedule says.
#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "device/tensor_memory.h"
#include "host/file.h"
#include "program/fused.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

// Prompts and responses of one length each, so that micro-batches are alike.
Config even_run(World& world) {
  Config config = tiny_run("ppo");
  const std::string name = cat("fused-", ::getpid(), "-", world.global_rank());
  config.run.name = name;
  std::string rows;
  for (const char* digits : {"3 1 2", "5 4 9", "7 7 1", "0 2 8"})
    rows += cat("{\"prompt\": \"", digits, "\", \"label\": \"1\"}\n");
  config.data.train = join_path(testing::TempDir(), name + ".jsonl");
  EXPECT_TRUE(write_file_atomic(config.data.train, rows).ok());
  config.rollout.samples_per_prompt = 2;
  config.rollout.min_response_length = config.rollout.max_response_length;
  config.train.memory_limit_gib = 16;  // what passes take is measured
  count_tensor_memory();
  return config;
}

Program fused_program(const Config& config, const std::string& updates) {
  std::string text = "graph: ppo\ndevices: 1x2\ncalls:\n";
  for (const char* call : {"generate", "old_logprob", "ref_logprob", "values"})
    text += cat("  ", call, ": {mesh: all, dp: 2}\n");
  return program_under(config, text + updates + "fusion: {train_schedules: true, units: 2}\n");
}

// The most micro-batches of a call, of each virtual pipeline stage one, that the order has between
// a forward and its backward on a rank.
int64_t live_by_schedule(const Program& program, int call, DeviceId rank) {
  int64_t live = 0, most = 0;
  for (const FusedPass& pass : fused_passes(program, program.fused[0], rank)) {
    if (pass.call != call) continue;
    live += pass.op.kind == ScheduleOp::Kind::kForward ? 1 : -1;
    most = std::max(most, live);
  }
  return most;
}

RANK_TEST(FusedSession, HoldsNoMoreThanTheScheduleSays, 2) {
  const DeviceId rank{static_cast<int>(world.global_rank())};
  for (const char* critic :
       {"mesh: \"1,0\", pp: 2, micro_batches: 4", "mesh: \"0,1\", pp: 2, micro_batches: 2",
        "mesh: \"1,0\", pp: 2, micro_batches: 4, interleave: 2"}) {
    SCOPED_TRACE(critic);
    const Config config = even_run(world);
    const Program program =
        fused_program(config, cat("  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 4}\n",
                                  "  update_critic: {", critic, "}\n"));
    auto session = Session::create(config, program, &world);
    ASSERT_TRUE(session.ok()) << session.status().message();
    if (rank.value == 0) {
      const auto row = (*session)->run_step();
      ASSERT_TRUE(row.ok()) << row.status().message();
      ASSERT_TRUE((*session)->dismiss().ok());
    } else {
      ASSERT_TRUE((*session)->follow().ok());
    }
    for (int call = 0; call < 2; ++call) {
      const Training& training = (*session)->training(program.fused[0].calls[call]);
      EXPECT_TRUE(training.fused());
      const HeldByPasses& held = training.held();
      const int64_t live = live_by_schedule(program, call, rank);
      EXPECT_GE(live, 1);
      EXPECT_LE(held.most_micro_batches, live);
      EXPECT_GT(held.most_of_one, 0);
      EXPECT_LE(static_cast<double>(held.most_bytes),
                1.02 * static_cast<double>(live * held.most_of_one))
          << "call " << call << ", " << live << " micro-batches of " << held.most_of_one;
    }
  }
  set_tensor_memory_limit(0);
}

}  // namespace
}  // namespace braid::inline session
