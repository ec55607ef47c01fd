// What is seen of an emulated rank: when what it did began and ended, and where ranks that met
// meant different things. Thread-safe.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "base/text.h"
#include "emulate/clock.h"
#include "emulate/fabric.h"
#include "sim/trace.h"

namespace braid::inline emulate {

class RankTrace {
 public:
  explicit RankTrace(DeviceId rank) : rank_(rank) {}

  // Before anything is noted.
  void set_clock(const EmulatedClock& clock) { clock_ = clock; }

  // On this rank's device.
  void note(TraceEvent event, const Fabric::Span& span) {
    event.device = rank_;
    note_there(event, span);
  }
  // Where the event says.
  void note_there(TraceEvent event, const Fabric::Span& span) {
    event.start_s = clock_.model_s(span.begin_ns), event.end_s = clock_.model_s(span.end_ns);
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  void note_misplaced(const std::string& what) {
    const std::lock_guard lock(mutex_);
    misplaced_.push_back(cat("rank ", rank_.value, ": ", what));
  }

  // REQUIRES: nothing is noted any more.
  const std::vector<TraceEvent>& events() const { return events_; }
  const std::vector<std::string>& misplaced() const { return misplaced_; }

 private:
  const DeviceId rank_;
  EmulatedClock clock_;
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
  std::vector<std::string> misplaced_;
};

}  // namespace braid::inline emulate
