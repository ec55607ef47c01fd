// When what a rank does has ended: a time for each instruction of its list or op of a call, set by
// one thread and awaited by others. Waits end when the time is there or the rank has failed; they
// need no deadline of their own, since everything that a time comes from has one. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"

namespace braid::inline emulate {

class EndTimes {
 public:
  explicit EndTimes(size_t size) : size_(size), entries_(new Entry[size]) {}

  void set(size_t i, int64_t end_ns);
  // The time once it is there, or the failure of the rank.
  Result<int64_t> wait(size_t i) const;
  // Every wait ends with this from here on, where the time is not there. The first failure counts.
  void fail(const Status& failure);
  size_t size() const { return size_; }

 private:
  struct Entry {
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    bool ended = false;
    int64_t end_ns = 0;
    Status failure;
  };
  size_t size_;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace braid::inline emulate
