// What ranks tell each other of a generation between its hand-overs: all come to know it, in the
// order of the messages, and nobody waits for a rank that is free but others that are.
#include "program/hand_over_messages.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "base/tree_place.h"

namespace braid::inline program {
namespace {

// A generation on some of the job's ranks, and who went on with what at a hand-over.
struct Job {
  CallPlacement generate;
  HandOver before;
  int64_t ranks = 0;
};

Job random_job(RandomStream& random) {
  Job out;
  Strategy& strategy = out.generate.strategy;
  strategy.dp = 1 + static_cast<int>(random.below(20));
  strategy.tp = 1 + static_cast<int>(random.below(2));
  strategy.pp = 1 + static_cast<int>(random.below(2));
  const int generating = strategy.dp * strategy.tp * strategy.pp;
  const auto first = static_cast<int32_t>(random.below(5));
  for (int i = 0; i < generating; ++i)
    out.generate.mesh.devices.push_back(DeviceId{first + static_cast<int32_t>(i)});
  out.ranks = first + generating + static_cast<int64_t>(random.below(40));
  int32_t row = 0;
  for (int replica = 0; replica < strategy.dp; ++replica) {
    out.before.goes_on.push_back(random.below(2) == 0);
    SampleRows& left = out.before.left.emplace_back();
    const uint64_t samples = out.before.goes_on.back() ? random.below(4) : 0;
    for (uint64_t i = 0; i < samples; ++i) left.push_back(row++);
  }
  return out;
}

TEST(HandOverMessages, AllComeToKnowWhatTheSpeakersKnow) {
  RandomStream random(5, 0);
  for (int round = 0; round < 200; ++round) {
    const Job job = random_job(random);
    const Telling telling = progress_told(job.generate, job.before, job.ranks);
    const std::vector<DeviceId> on = ranks_going_on(job.generate, job.before);
    const std::set<DeviceId> generating(on.begin(), on.end());
    std::map<DeviceId, std::set<int64_t>> known;
    int64_t next = 0;
    for (size_t replica = 0; replica < job.before.left.size(); ++replica)
      for (const int32_t row : job.before.left[replica]) {
        EXPECT_EQ(telling.rows[next], row);
        known[speaker_of(job.generate, static_cast<int32_t>(replica))].insert(next++);
      }
    ASSERT_EQ(std::ssize(telling.rows), next);
    EXPECT_EQ(telling.messages.empty(), next == 0);
    std::map<DeviceId, int> sent, heard;
    for (const ToldMessage& message : telling.messages) {
      EXPECT_NE(message.from, message.to);
      EXPECT_TRUE(generating.count(message.to) == 0 || generating.count(message.from) > 0)
          << "who generates waits for who is free";
      EXPECT_EQ(message.bytes(), 8 * message.numbers.size());
      for (int64_t i = message.numbers.begin; i < message.numbers.end; ++i) {
        EXPECT_EQ(known[message.from].count(i), 1u) << "tells what it does not know yet";
        known[message.to].insert(i);
      }
      ++sent[message.from], ++heard[message.to];
    }
    for (DeviceId rank{0}; next > 0 && rank.value < job.ranks; ++rank.value) {
      EXPECT_EQ(std::ssize(known[rank]), next) << rank;
      EXPECT_LE(sent[rank], kTreeFanOut + 1);
      EXPECT_LE(heard[rank], kTreeFanOut + 1);
    }
  }
}

TEST(HandOverMessages, ThoseThatWentOnHearEachCountOnce) {
  RandomStream random(6, 0);
  for (int round = 0; round < 50; ++round) {
    const Job job = random_job(random);
    std::map<DeviceId, std::vector<int64_t>> known;
    std::vector<int64_t> replicas;
    for (size_t replica = 0; replica < job.before.goes_on.size(); ++replica)
      if (job.before.goes_on[replica]) {
        const auto number = static_cast<int64_t>(replica);
        replicas.push_back(number);
        known[speaker_of(job.generate, static_cast<int32_t>(replica))].push_back(number);
      }
    for (const ToldMessage& message : counts_told(job.generate, job.before)) {
      EXPECT_EQ(message.bytes(), kTallyBytes);
      EXPECT_EQ(message.from,
                speaker_of(job.generate, static_cast<int32_t>(message.numbers.begin)));
      known[message.to].push_back(message.numbers.begin);
    }
    EXPECT_EQ(known.size(), ranks_going_on(job.generate, job.before).size());
    for (const auto& [rank, numbers] : known)
      EXPECT_THAT(numbers, testing::UnorderedElementsAreArray(replicas)) << rank;
  }
}

}  // namespace
}  // namespace braid::inline program
