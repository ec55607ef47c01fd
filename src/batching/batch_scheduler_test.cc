#include "batching/batch_scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/rng.h"

namespace braid::inline batching {
namespace {

// What an engine holds: numbered pages with counts of their holders, kept by the decisions alone.
class HeldPages {
 public:
  void follow(const ScheduledRound& round, const BatchScheduler& scheduler) {
    for (const ScheduledRound::Admission& admission : round.admitted) {
      ASSERT_TRUE(pages_[admission.id].empty());
      for (int64_t i = 0; admission.donor >= 0 && i < admission.pages; ++i)
        hold(admission.id, pages_[admission.donor].at(i));
    }
    for (const int64_t id : round.preempted) give_back(id);
    for (const ScheduledSequence& s : scheduler.running())
      while (static_cast<int64_t>(pages_[s.id].size()) < s.pages) hold(s.id, next_++);
    EXPECT_EQ(static_cast<int64_t>(holders_.size()), scheduler.used_pages());
  }
  void give_back(int64_t id) {
    for (const int64_t page : pages_[id])
      if (--holders_[page] == 0) holders_.erase(page);
    pages_[id].clear();
  }
  bool empty() const { return holders_.empty(); }

 private:
  void hold(int64_t id, int64_t page) {
    pages_[id].push_back(page);
    ++holders_[page];
  }
  std::map<int64_t, std::vector<int64_t>> pages_;  // by sequence, in order
  std::map<int64_t, int64_t> holders_;             // by page
  int64_t next_ = 0;
};

struct Load {
  BatchLimits limits;
  int64_t capacity = 0;
  std::vector<ScheduledSequence> sequences;
};

Load random_load(RandomStream& random) {
  Load load;
  int64_t longest = 0;
  for (int64_t group = 0; group < 4; ++group) {
    const auto prompt = static_cast<int64_t>(1 + random.below(110));
    for (int k = 0; k < 3; ++k) {
      ScheduledSequence s;
      s.id = static_cast<int64_t>(load.sequences.size());
      s.prompt = prompt;
      s.group = group;
      s.response = static_cast<int64_t>(1 + random.below(60));
      longest = std::max(longest, s.prompt + s.response);
      load.sequences.push_back(s);
    }
  }
  load.limits.max_concurrent = static_cast<int64_t>(1 + random.below(12));
  load.limits.max_batch_tokens = static_cast<int64_t>(16 + random.below(200));
  load.capacity = pages_for(longest) + static_cast<int64_t>(random.below(6));
  return load;
}

BatchScheduler queued(const Load& load) {
  BatchScheduler scheduler(load.limits);
  scheduler.set_capacity(load.capacity);
  for (const ScheduledSequence& s : load.sequences) scheduler.submit(s);
  return scheduler;
}

// One round, of a forward within the limits, after which the pages are those that are counted.
// Returns how many were preempted.
size_t take_round(const Load& load, BatchScheduler* scheduler, HeldPages* held) {
  const ScheduledRound& round = scheduler->next_round();
  const size_t preempted = round.preempted.size();
  held->follow(round, *scheduler);
  int64_t tokens = 0;
  for (const ScheduledRound::Slice& slice : round.slices) {
    const ScheduledSequence& s = scheduler->running()[slice.running];
    EXPECT_GE(s.pages, pages_for(s.cached + slice.tokens));
    EXPECT_EQ(slice.due, s.cached + slice.tokens == s.tokens());
    tokens += slice.tokens;
  }
  EXPECT_GT(tokens, 0);
  EXPECT_LE(tokens, load.limits.max_batch_tokens);
  EXPECT_LE(static_cast<int64_t>(scheduler->running().size()), load.limits.max_concurrent);
  EXPECT_LE(scheduler->used_pages(), load.capacity);
  scheduler->advance(round);
  for (const ScheduledSequence& s : scheduler->running())
    if (s.ended()) held->give_back(s.id);
  scheduler->retire();
  return preempted;
}

TEST(BatchScheduler, HoldsJustThePagesThatItsDecisionsGive) {
  RandomStream random(9, 0);
  size_t preempted = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Load load = random_load(random);
    BatchScheduler scheduler = queued(load);
    HeldPages held;
    for (int round = 0; !scheduler.drained(); ++round) {
      ASSERT_LT(round, 3000) << "trial " << trial;
      preempted += take_round(load, &scheduler, &held);
      if (::testing::Test::HasFailure()) FAIL() << "trial " << trial << ", round " << round;
    }
    EXPECT_TRUE(held.empty());
    EXPECT_EQ(scheduler.used_pages(), 0);
  }
  EXPECT_GT(preempted, 100u);
}

TEST(BatchScheduler, RoundsInARowAreThoseOneByOne) {
  RandomStream random(10, 0);
  int64_t together = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Load load = random_load(random);
    BatchScheduler single = queued(load), in_a_row = queued(load);
    while (!in_a_row.drained()) {
      const ScheduledRound& round = in_a_row.next_round(true);
      together += round.rounds > 1 ? round.rounds : 0;
      in_a_row.advance(round);
      for (int64_t i = 0; i < round.rounds; ++i) {
        const ScheduledRound& one = single.next_round();
        EXPECT_TRUE(one.preempted.empty() || round.rounds == 1);
        single.advance(one);
        single.retire();
      }
      in_a_row.retire();
      ASSERT_EQ(single.running().size(), in_a_row.running().size()) << "trial " << trial;
      for (size_t i = 0; i < single.running().size(); ++i) {
        EXPECT_EQ(single.running()[i].id, in_a_row.running()[i].id);
        EXPECT_EQ(single.running()[i].produced, in_a_row.running()[i].produced);
      }
      EXPECT_EQ(single.waiting().size(), in_a_row.waiting().size());
      EXPECT_EQ(single.used_pages(), in_a_row.used_pages());
    }
    EXPECT_TRUE(single.drained());
  }
  EXPECT_GT(together, 1000);
}

TEST(BatchScheduler, ATwinWaitsForThePromptAndSharesItsPages) {
  BatchScheduler scheduler({8, 64});
  scheduler.set_capacity(16);
  for (int64_t id : {0, 1}) {
    ScheduledSequence s;
    s.id = id;
    s.prompt = 3 * kPageTokens + 1;
    s.response = 2;
    scheduler.submit(s);
  }
  scheduler.advance(scheduler.next_round());  // 64 tokens of the first one's prompt
  EXPECT_EQ(scheduler.running().size(), 1u);
  scheduler.advance(scheduler.next_round());  // the other 33
  const ScheduledRound& round = scheduler.next_round();
  ASSERT_EQ(round.admitted.size(), 1u);
  EXPECT_EQ(round.admitted[0].donor, 0);
  EXPECT_EQ(round.admitted[0].pages, 3);
  EXPECT_EQ(scheduler.used_pages(), 5);  // three together, one each
  scheduler.remove(0);
  EXPECT_EQ(scheduler.used_pages(), 4);
  scheduler.remove(1);
  EXPECT_EQ(scheduler.used_pages(), 0);
}

TEST(BatchScheduler, LongestFirstAdmitsByWhatIsExpected) {
  BatchScheduler scheduler({1, 64, /*longest_first=*/true});
  scheduler.set_capacity(16);
  for (int64_t id : {0, 1, 2}) {
    ScheduledSequence s;
    s.id = id, s.group = id, s.prompt = 4, s.response = 2, s.expected = id == 1 ? 9 : 3;
    scheduler.submit(s);
  }
  EXPECT_EQ(scheduler.next_round().admitted.at(0).id, 1);
}

// Sequences that come and go between engines, and a cache that is given up, leave no page behind.
TEST(BatchScheduler, ResumedRemovedAndPreemptedSequencesKeepTheCounts) {
  RandomStream random(11, 0);
  for (int trial = 0; trial < 100; ++trial) {
    Load load = random_load(random);
    load.capacity *= 2;
    BatchScheduler scheduler = queued(load);
    HeldPages held;
    for (int round = 0; !scheduler.drained(); ++round) {
      ASSERT_LT(round, 5000);
      take_round(load, &scheduler, &held);
      if (random.below(4) == 0 && !scheduler.running().empty()) {
        ScheduledSequence moved = scheduler.running()[random.below(scheduler.running().size())];
        const int64_t cached = moved.cached;
        held.give_back(moved.id);
        scheduler.remove(moved.id);
        moved.pages = moved.shared = moved.cached = 0, moved.prefix = -1;
        if (scheduler.has_place(cached)) {
          scheduler.resume(moved, cached);
          held.follow({}, scheduler);
        } else {
          scheduler.submit_first(moved);
        }
      }
      if (random.below(40) == 0) {
        for (const int64_t id : scheduler.preempt_all()) held.give_back(id);
        EXPECT_EQ(scheduler.used_pages(), 0);
      }
      if (::testing::Test::HasFailure()) FAIL() << "trial " << trial << ", round " << round;
    }
    EXPECT_TRUE(held.empty());
  }
}

}  // namespace
}  // namespace braid::inline batching
