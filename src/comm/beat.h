// A sign of life: what a rank writes into the store about once a second, for the rank that watches
// it and for whoever waits for it. Plain values; last_positions() and last_position() look into the
// store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/position.h"
#include "comm/store.h"

namespace braid::inline comm {

struct Beat {
  int64_t number = 0;             // one more each time: the process lives
  uint64_t progress = 0;          // host/progress.h: it works
  std::optional<RankWait> waits;  // with peers where it takes long (PositionBoard::waiting())
  std::string position;
};

// What a rank writes in place of a beat when it has ended as planned.
inline constexpr const char* kDone = "done";

std::string beat_key(int64_t rank);
// Keys of one look into the store, where many are looked at.
inline constexpr size_t kBeatsAtOnce = 32;
// "NUMBER PROGRESS STATE POSITION"; STATE: "r", or of a rank that waits "wSECONDS:RUNS" ("0-6,9").
std::string beat_text(const Beat& beat);
// Text that is no beat, as kDone, is one with this position alone.
Beat parse_beat(std::string_view text);

// Where a rank last said it was, at most an interval ago; "" where it never did.
std::string last_position(Store& store, int64_t rank);
// "rank 2: step 3, train actor, ..." for each of the ranks, as they last said; of many only those
// that others may wait for: that do not wait themselves, or never came.
std::vector<std::string> last_positions(Store& store, const std::vector<int64_t>& ranks);

}  // namespace braid::inline comm
