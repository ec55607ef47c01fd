// Finds a rank that lives and is stuck, by its beats: it works and makes no progress, or it waits
// for ranks that all wait too. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "comm/beat.h"
#include "comm/failure.h"

namespace braid::inline comm {

class StallJudge {
 public:
  explicit StallJudge(int64_t rank) : rank_(rank) {}

  // The failure that the newest beat of the rank shows at this time, after `stall_s` without
  // progress. Of a rank that waits, others are looked up in the store: those that it waits for, and
  // so on until one is found that works or has begun to wait only now; that one is judged by the
  // rank that watches it. None where nothing is found, or the store does not answer.
  std::optional<RankFailure> judge(const Beat& beat, double now_s, double stall_s, Store& store);

  // The judge stood still for so long itself.
  void forgive(double seconds) { progressed_s_ += seconds; }

 private:
  using Waiters = std::map<int64_t, Beat>;
  bool goes_on(int64_t rank, const std::optional<std::string>& text, double stall_s,
               Waiters* waiters);
  bool again(Waiters waiters);
  std::optional<Waiters> circle(const Beat& first, double stall_s, Store& store);

  int64_t rank_;
  std::optional<uint64_t> progress_;
  double progressed_s_ = 0;         // when it was last seen to change
  std::optional<int64_t> working_;  // found at the end of the chain the last time
  Waiters suspects_;                // found to wait for each other the last time
};

}  // namespace braid::inline comm
