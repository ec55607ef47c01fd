// Memory that runs out in a micro-batch: what was begun is repeated with smaller ones, on all ranks
// of the call, and gives what smaller ones give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/tensor_memory.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;
using Row = std::map<std::string, double>;

constexpr const char* kRepeats = "memory/repeats";
constexpr const char* kMicroTokens = "memory/micro_tokens_min";

// A limit for the scope.
class Limit {
 public:
  explicit Limit(int64_t bytes) { set_tensor_memory_limit(bytes); }
  ~Limit() { set_tensor_memory_limit(0); }
};

Config packed_run(const std::string& algorithm) {
  count_tensor_memory();
  Config config = tiny_run(algorithm);
  config.train.micro_tokens = 1 << 20;
  config.train.minibatches = 1;
  // Activations are most of what a step takes.
  config.rollout.prompts_per_step = 16;
  config.rollout.max_response_length = 40;
  config.rollout.ignore_eos = true;
  config.data.max_prompt_length = 64;
  return config;
}

// Bytes of the session itself, and by how much a step exceeds them.
struct StepMemory {
  int64_t begin = 0, rise = 0;
};
StepMemory step_memory(const Config& config) {
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  StepMemory out;
  out.begin = tensor_bytes();
  const PeakMeter meter(at::kCPU);
  EXPECT_TRUE(session->run_step().ok());
  out.rise = meter.most_bytes();
  return out;
}

class OutOfMemory : public testing::TestWithParam<const char*> {};

// The first limit that is too low: the step ends with the weights of one that had smaller
// micro-batches from the beginning, bit for bit, and so does the next.
TEST_P(OutOfMemory, StepIsRepeatedWithSmallerMicroBatches) {
  const Config config = packed_run(GetParam());
  const Program program = program_of(config);
  const int64_t rise = step_memory(config).rise;
  for (int share = 97; share > 50; share -= 3) {
    const auto session = session_of(config, program);
    Row row;
    {
      const Limit limit(tensor_bytes() + rise * share / 100);
      const auto ended = session->run_step();
      ASSERT_TRUE(ended.ok()) << share << ": " << ended.status().message();
      row = *ended;
    }
    if (row.count(kRepeats) == 0) continue;
    EXPECT_GE(row[kRepeats], 1);
    Config small = config;
    small.train.micro_tokens = static_cast<int64_t>(row.at(kMicroTokens));
    const Program other = program_of(small);
    const auto expected = session_of(small, other);
    const Row without = *expected->run_step();
    EXPECT_TRUE(same_weights(*session, *expected));
    for (const auto& [name, value] : timeless(without)) EXPECT_EQ(row.at(name), value) << name;
    const Row next = *session->run_step();
    EXPECT_EQ(next.count(kRepeats), 0u);
    EXPECT_EQ(next.at(kMicroTokens), row.at(kMicroTokens));
    ASSERT_TRUE(expected->run_step().ok());
    EXPECT_TRUE(same_weights(*session, *expected));
    return;
  }
  ADD_FAILURE() << "no limit made a step repeat anything";
}

INSTANTIATE_TEST_SUITE_P(Names, OutOfMemory, testing::Values("ppo", "grpo"));

// What passes were measured to take is reserved before the next ones: a step for which it is not
// there begins with smaller micro-batches at once.
TEST_P(OutOfMemory, WhatIsDeclaredIsReserved) {
  const Config config = packed_run(GetParam());
  const Program program = program_of(config);
  const auto session = session_of(config, program), small = session_of(config, program);
  Row row;
  {
    const Limit limit(int64_t{1} << 40);
    const int64_t before = tensor_bytes();
    const PeakMeter meter(at::kCPU);
    ASSERT_TRUE(session->run_step().ok());
    set_tensor_memory_limit(before + meter.most_bytes() * 3 / 4);
    testing::internal::CaptureStderr();
    const auto second = session->run_step();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("declare is not free"));
    ASSERT_TRUE(second.ok()) << second.status().message();
    EXPECT_GE(second->at(kRepeats), 1);
  }
}

// The rehearsal changes no bit of what follows, and where it fits the steps do.
TEST_P(OutOfMemory, RehearsalChangesNothingAndWhatItAllowsFits) {
  Config config = packed_run(GetParam());
  const Program program = program_of(config);
  const auto plain = session_of(config, program), rehearsed = session_of(config, program);
  const int64_t before = tensor_bytes();
  const Limit limit(int64_t{1} << 40);
  {
    const PeakMeter meter(at::kCPU);
    const Status status = rehearsed->rehearse();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_LE(tensor_bytes(), before + (1 << 17));  // tables of positions stay
    set_tensor_memory_limit(before + meter.most_bytes() + (1 << 17));
  }
  for (int step = 0; step < 2; ++step) {
    const auto row = rehearsed->run_step(), expected = plain->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    EXPECT_EQ(timeless(*row), timeless(*expected));
  }
  EXPECT_TRUE(same_weights(*plain, *rehearsed));
  EXPECT_EQ(plain->save_state()->numbers, rehearsed->save_state()->numbers);
}

TEST_P(OutOfMemory, RehearsalThatDoesNotFitNamesOwnersAndThreeKeys) {
  const Config config = packed_run(GetParam());
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  const Limit limit(tensor_bytes() + (24 << 20));  // enough for generation
  const Status status = session->rehearse();
  EXPECT_EQ(status.code(), Code::kInfeasible);
  EXPECT_THAT(status.message(),
              testing::AllOf(HasSubstr("before the first step: rank 0 runs out of memory in call"),
                             HasSubstr("its longest micro-batch"), HasSubstr("weights of actor"),
                             HasSubstr("main weights and moments"), HasSubstr("gradients"),
                             HasSubstr("What would help most: train.recompute=true, "),
                             HasSubstr("train.micro_tokens")));
}

// Where one sample alone is too much the step fails, and the session goes on once there is room.
TEST(OutOfMemoryAtLast, OneSampleThatDoesNotFitEndsTheStep) {
  Config config = packed_run("grpo");
  config.rollout.replay.clear();
  const Program program = program_of(config);
  const auto session = session_of(config, program), whole = session_of(config, program);
  const auto first = session->run_step();
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(whole->run_step().ok());
  // Generation needs memory too, so the limit comes when the first call that scores begins.
  size_t updates = 0;
  const auto& instructions = program.ranks[0].instructions;
  while (instructions[updates].kind != OpKind::kPasses) ++updates;
  const auto failed = session->run_step([&](size_t index) {
    if (index == updates) set_tensor_memory_limit(tensor_bytes() + 1000);
  });
  set_tensor_memory_limit(0);
  EXPECT_EQ(failed.status().code(), Code::kOutOfMemory);
  EXPECT_THAT(failed.status().message(), HasSubstr("one sample in each micro-batch"));
  EXPECT_THAT(failed.status().message(), HasSubstr("call update_actor"));
  const auto again = session->run_step();
  ASSERT_TRUE(again.ok()) << again.status().message();
}

}  // namespace
}  // namespace braid::inline session
