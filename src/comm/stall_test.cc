#include "comm/stall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace braid::inline comm {
namespace {

using testing::HasSubstr;

constexpr double kLimit_s = 10;

TEST(Beat, IsReadBack) {
  for (const Beat& beat :
       {Beat{3, 17, {}, "step 1, call reward"}, Beat{4, 18, RankWait{{}, 2}, ""},
        Beat{5, 18, RankWait{{0, 12}, 400}, "step 1, waiting: x with ranks 0, 12"},
        Beat{6, 18, RankWait{{3, 0, 1, 2, 9, 8}, 400}, "in another order"}}) {
    const Beat again = parse_beat(beat_text(beat));
    EXPECT_EQ(again.number, beat.number);
    EXPECT_EQ(again.progress, beat.progress);
    EXPECT_EQ(again.waits, beat.waits);
    EXPECT_EQ(again.position, beat.position);
  }
  for (const char* other : {"done", "", "1 2 x y", "1 b r y", "a place of more words"}) {
    EXPECT_EQ(parse_beat(other).position, other);
    EXPECT_EQ(parse_beat(other).number, 0);
  }
}

TEST(Beat, IsAsLongInALargeJob) {
  RankWait waits{{}, 12};
  for (int64_t rank = 0; rank < 1024; ++rank)
    if (rank != 7) waits.peers.push_back(rank);
  const std::string text = beat_text({5, 18, waits, "step 1"});
  EXPECT_EQ(text, "5 18 w12:0-6,8-1023 step 1");
  EXPECT_EQ(parse_beat(text).waits, waits);
  waits.peers.clear();
  for (int64_t rank = 3; rank < 4096; rank += 8) waits.peers.push_back(rank);
  const std::string strided = beat_text({5, 18, waits, "step 1"});
  EXPECT_EQ(strided, "5 18 w12:3-4091/8 step 1");
  EXPECT_EQ(parse_beat(strided).waits, waits);
}

// Rank 0 is judged; the beats of all lie in a store.
class Stall : public testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::serve_local("stall");
    ASSERT_TRUE(store.ok());
    store_ = std::move(*store);
  }

  // All write once more, at this time.
  std::optional<RankFailure> judge(double now_s) {
    for (auto& [rank, beat] : beats_) {
      ++beat.number;
      EXPECT_TRUE(store_->set(beat_key(rank), beat_text(beat)).ok());
    }
    return judge_.judge(beats_.at(0), now_s, kLimit_s, *store_);
  }

  void waits(int64_t rank, std::vector<int64_t> peers, double seconds = 2 * kLimit_s) {
    beats_[rank].waits = RankWait{std::move(peers), seconds};
    beats_[rank].position = cat("place ", rank);
  }

  std::unique_ptr<Store> store_;
  StallJudge judge_{0};
  std::map<int64_t, Beat> beats_ = {{0, {}}, {1, {}}, {2, {}}};
};

TEST_F(Stall, WorkWithoutProgressIsAFailureAfterTheLimit) {
  EXPECT_FALSE(judge(100));
  EXPECT_FALSE(judge(100 + kLimit_s));
  ++beats_[0].progress;
  EXPECT_FALSE(judge(101 + kLimit_s));
  EXPECT_FALSE(judge(101 + 2 * kLimit_s));
  const auto failure = judge(102 + 2 * kLimit_s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->global_rank, 0);
  EXPECT_THAT(failure->cause, HasSubstr("no progress for 11"));
  EXPECT_TRUE(failure->given_up);
}

TEST_F(Stall, TimeInWhichTheJudgeStoodStillDoesNotCount) {
  EXPECT_FALSE(judge(100));
  judge_.forgive(500);
  EXPECT_FALSE(judge(600));
  EXPECT_TRUE(judge(601 + kLimit_s));
}

TEST_F(Stall, WhoeverWaitsForARankThatWorksIsLeftAlone) {
  waits(0, {1, 2});
  waits(1, {2, 0});
  EXPECT_FALSE(judge(100));
  for (int look = 1; look < 5; ++look) EXPECT_FALSE(judge(100 + look * 2 * kLimit_s));
  // Now all of them wait, one of them only since a moment.
  waits(2, {0, 1}, kLimit_s / 2);
  EXPECT_FALSE(judge(300));
  EXPECT_FALSE(judge(301));
}

TEST_F(Stall, ACircleIsNamedOnceAllHaveSaidItTwice) {
  waits(0, {1});
  waits(1, {2});
  waits(2, {0});
  EXPECT_FALSE(judge(100));
  EXPECT_FALSE(judge(200));
  ++beats_[2].progress;  // freed between the two looks
  EXPECT_FALSE(judge(201));
  const auto failure = judge(202);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->global_rank, kNoneAlone);
  EXPECT_THAT(failure_text(*failure),
              HasSubstr("the job is stuck: ranks wait for each other, and there is no progress"));
  EXPECT_THAT(failure->cause, HasSubstr("rank 0: place 0; rank 1: place 1; rank 2: place 2"));
}

TEST_F(Stall, AWaitForARankThatHasEndedIsNamed) {
  waits(0, {5});
  ASSERT_TRUE(store_->set(beat_key(5), kDone).ok());
  EXPECT_FALSE(judge(100));
  EXPECT_FALSE(judge(200));
  const auto failure = judge(201);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->cause, HasSubstr("rank 5: done"));
}

TEST_F(Stall, WaitsWithDeadlinesOfTheirOwnAndAbsentRanksAreLeftAlone) {
  waits(0, {1});
  waits(1, {});
  EXPECT_FALSE(judge(100));
  EXPECT_FALSE(judge(200));
  EXPECT_FALSE(judge(201));
  waits(1, {9});  // never came
  EXPECT_FALSE(judge(202));
  EXPECT_FALSE(judge(203));
  waits(0, {});
  EXPECT_FALSE(judge(300));
}

}  // namespace
}  // namespace braid::inline comm
