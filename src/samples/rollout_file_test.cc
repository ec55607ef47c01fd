#include "samples/rollout_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/text.h"

namespace braid::inline samples {
namespace {

using testing::HasSubstr;

std::string scratch_file(const std::string& text) {
  const std::string path = join_path(testing::TempDir(), cat("rollouts-", ::getpid(), ".jsonl"));
  EXPECT_TRUE(write_file_atomic(path, text).ok());
  return path;
}

RolloutRow row_of(int64_t step, int64_t sample) {
  RolloutRow row;
  row.step = step;
  row.sample = SampleId{sample};
  row.prompt_ids = {1, 2, 3};
  row.response_ids = {4, 5};
  row.logprobs = {-0.1f, -std::nextafterf(1.5f, 2)};
  row.reward = 0.1 + 0.2;
  row.raw_reward = 0.5;
  row.reward_values = {{"gold", 1.0 / 3}};
  return row;
}

TEST(RolloutFile, NumbersSurviveBitForBit) {
  RolloutRow row = row_of(3, 8);
  row.truncated = true;
  const std::string path = scratch_file(rollout_json(row).dump() + "\n");
  const auto found = RolloutReplay::open(path)->find(3, SampleId{8}, "", {1, 2, 3});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->response_ids, row.response_ids);
  EXPECT_EQ(found->logprobs, row.logprobs);
  EXPECT_EQ(found->reward, row.reward);
  EXPECT_EQ(found->raw_reward, 0.5);
  EXPECT_EQ(found->reward_values, row.reward_values);
  EXPECT_TRUE(found->truncated);
}

TEST(RolloutFile, DroppedSamplesHaveNoReward) {
  RolloutRow row = row_of(0, 0);
  row.reward.reset();
  row.raw_reward = std::nan("");
  const std::string path = scratch_file(rollout_json(row).dump());
  EXPECT_FALSE(RolloutReplay::open(path)->find(0, SampleId{0}, "", {1, 2, 3})->reward.has_value());
}

// The fields that the format promises are enough; others may be missing.
TEST(RolloutFile, ReadsFilesOfOtherPrograms) {
  const std::string path =
      scratch_file(R"({"step":0,"sample":1,"prompt_ids":[7],"response_ids":[8],"logprobs":[-1.5],)"
                   R"("finish":"stop","rewards":2})");
  const auto row = RolloutReplay::open(path)->find(0, SampleId{1}, "", {7});
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->reward, 2.0);
  EXPECT_EQ(row->raw_reward, 2.0);
}

// A second generation of a step has rows of its own, without log-probs.
TEST(RolloutFile, ResponsesOfTwoFieldsStandBesideEachOther) {
  RolloutRow greedy = row_of(0, 1);
  greedy.responses = "greedy_ids";
  greedy.response_ids = {9};
  greedy.logprobs.clear();
  const std::string path =
      scratch_file(rollout_json(row_of(0, 1)).dump() + "\n" + rollout_json(greedy).dump() + "\n");
  const auto replay = RolloutReplay::open(path);
  ASSERT_TRUE(replay.ok()) << replay.status().message();
  EXPECT_EQ(replay->find(0, SampleId{1}, "greedy_ids", {1, 2, 3})->response_ids,
            greedy.response_ids);
  EXPECT_EQ(replay->find(0, SampleId{1}, "", {1, 2, 3})->response_ids, row_of(0, 1).response_ids);
  EXPECT_THAT(replay->find(0, SampleId{2}, "greedy_ids", {1, 2, 3}).status().message(),
              HasSubstr("no sample 2 of step 0 (greedy_ids)"));
}

TEST(RolloutFile, ContinuingDropsRowsThatAreWrittenAgain) {
  std::string text;
  for (const int64_t step : {0, 1, 2}) text += rollout_json(row_of(step, step)).dump() + "\n";
  const std::string path = scratch_file(text + "{\"step\": 0, \"sam");  // cut short
  auto recorder = RolloutRecorder::open(path, 1);
  ASSERT_TRUE(recorder.ok());
  ASSERT_TRUE(recorder->append({row_of(1, 9)}).ok());
  const auto replay = RolloutReplay::open(path);
  ASSERT_TRUE(replay.ok()) << replay.status().message();
  EXPECT_TRUE(replay->find(0, SampleId{0}, "", {1, 2, 3}).ok());
  EXPECT_TRUE(replay->find(1, SampleId{9}, "", {1, 2, 3}).ok());
  EXPECT_FALSE(replay->find(1, SampleId{1}, "", {1, 2, 3}).ok());
}

TEST(RolloutFile, BadFilesAreNamedWithTheLine) {
  const auto failure = [](const std::string& text) {
    return RolloutReplay::open(scratch_file(text)).status().message();
  };
  const std::string good = rollout_json(row_of(0, 0)).dump() + "\n";
  EXPECT_THAT(failure(""), HasSubstr("has no lines"));
  EXPECT_THAT(failure(good + "{oops"), HasSubstr(".jsonl:2"));
  EXPECT_THAT(failure(good + good), HasSubstr(":2: sample 0 of step 0 occurs twice"));
  Json line = rollout_json(row_of(0, 0));
  line["logprobs"] = {-1};
  EXPECT_THAT(failure(line.dump()), HasSubstr(":1: logprobs has 1 numbers for 2 response_ids"));
  line = rollout_json(row_of(0, 0));
  line.erase("rewards");
  EXPECT_THAT(failure(line.dump()), HasSubstr(":1: missing key 'rewards'"));
  line = rollout_json(row_of(0, 0));
  line["finish"] = "eos";
  EXPECT_THAT(failure(line.dump()), HasSubstr("'eos' is neither stop nor length"));
  EXPECT_EQ(RolloutReplay::open("/no/such/file").status().code(), Code::kNotFound);
}

TEST(RolloutFile, OtherPromptsAndMissingSamplesAreErrors) {
  const std::string path = scratch_file(rollout_json(row_of(0, 0)).dump());
  const auto replay = RolloutReplay::open(path);
  EXPECT_THAT(replay->find(0, SampleId{0}, "", {1, 2}).status().message(),
              HasSubstr(":1: prompt_ids of sample 0 are not those of data.train"));
  EXPECT_THAT(replay->find(1, SampleId{0}, "", {1, 2, 3}).status().message(),
              HasSubstr("has no sample 0 of step 1"));
}

}  // namespace
}  // namespace braid::inline samples
