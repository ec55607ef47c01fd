// What several searches or their threads have computed already, by key. Any number of threads may
// ask; a value may be computed twice at the same time, and does not depend on who did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace braid::optimize {

template <typename Key, typename Value>
class SharedMemo {
 public:
  // Forgets all where more than `most` is kept.
  explicit SharedMemo(size_t most = SIZE_MAX) : most_(most) {}

  // Null: not known.
  std::shared_ptr<const Value> find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second;
  }

  void keep(const Key& key, Value value, size_t size = 1) {
    auto kept = std::make_shared<const Value>(std::move(value));
    const std::lock_guard lock(mutex_);
    if (kept_ + size > most_) known_.clear(), kept_ = 0;
    if (known_.emplace(key, std::move(kept)).second) kept_ += size;
  }

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Value>> known_;
  size_t kept_ = 0;
};

}  // namespace braid::optimize
