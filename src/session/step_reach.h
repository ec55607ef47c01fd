// How far a step is, and what a failure leaves of it: before its first update a step that fails has
// not begun; from then on it is open, and goes on where its last update ended. Not thread-safe.
#pragma once

#include <optional>
#include <utility>

#include "session/open_step.h"

namespace braid::inline session {

class StepReach {
 public:
  // The step that was left in the middle; none before its first update.
  const std::optional<StepProgress>& open() const { return open_; }
  void set_open(std::optional<StepProgress> open) { open_ = std::move(open); }

  // A step begins, or one that is open goes on: the session is at `start` then, and has made so
  // many updates since it began.
  void begin(StepProgress start, int64_t updates) {
    updates_before_ = updates;
    if (!open_) start_ = std::move(start);
  }
  // Before its first update a step may have drawn more of the data.
  void move_start(const RunPosition& position) { start_.position = position; }
  // So many updates have been made, with all that is noted of them; whether the step is open since,
  // because weights have changed.
  bool passed(int64_t updates, bool followed) {
    updates_noted_ = updates;
    return open_ || updates != updates_before_ || followed;
  }
  // Whether what is noted is that of so many updates.
  bool has_noted(int64_t updates) const { return updates == updates_noted_; }
  // Where the step goes on after a failure, from its begin where it is not open.
  const StepProgress& kept() const { return open_ ? *open_ : start_; }
  void end() { open_.reset(); }

 private:
  StepProgress start_;
  std::optional<StepProgress> open_;
  int64_t updates_before_ = 0, updates_noted_ = 0;
};

}  // namespace braid::inline session
