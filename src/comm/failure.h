// What a failing rank leaves in the store for all others: who, why, where. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::inline comm {

// In place of a rank.
inline constexpr int64_t kLaunchersStore = -1;
inline constexpr int64_t kNoneAlone = -2;  // ranks wait for each other

struct RankFailure {
  int64_t global_rank = 0;
  std::string cause;
  std::string position;
  bool given_up = false;  // another rank found it: this one may not know

  friend bool operator==(const RankFailure&, const RankFailure&) = default;
};

inline constexpr const char* kFailureKey = "failure";
inline constexpr const char* kEndedKey = "ended/";  // + rank: it has read the failure

// Where a rank is that has not told anybody yet.
inline constexpr const char* kBeforeMeeting = "starting, before it met the other ranks";

std::string failure_record(const RankFailure& failure);
// The failure of a record; text that is none is an error.
Result<RankFailure> parse_failure(std::string_view record);
// "rank 1 failed".
std::string failed_text(const RankFailure& failure);
// "rank 1 failed: CAUSE (at POSITION)".
std::string failure_text(const RankFailure& failure);

}  // namespace braid::inline comm
