#include "emulate/end_times.h"

namespace braid::inline emulate {

void EndTimes::set(size_t i, int64_t end_ns) {
  Entry& entry = entries_[i];
  {
    const std::lock_guard lock(entry.mutex);
    entry.ended = true;
    entry.end_ns = end_ns;
  }
  entry.changed.notify_all();
}

Result<int64_t> EndTimes::wait(size_t i) const {
  const Entry& entry = entries_[i];
  std::unique_lock lock(entry.mutex);
  entry.changed.wait(lock, [&] { return entry.ended || !entry.failure.ok(); });
  if (entry.ended) return entry.end_ns;
  return entry.failure;
}

void EndTimes::fail(const Status& failure) {
  for (size_t i = 0; i < size_; ++i) {
    {
      const std::lock_guard lock(entries_[i].mutex);
      if (entries_[i].failure.ok()) entries_[i].failure = failure;
    }
    entries_[i].changed.notify_all();
  }
}

}  // namespace braid::inline emulate
