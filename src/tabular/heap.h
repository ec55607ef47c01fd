// The priority queue of the tabulated format (rule 6): a binary heap in an array that compares
// `ready` alone. The order among equal entries is part of the format's definition of cost, so it is
// spelled out and not left to a library. Not thread-safe; a popped-empty heap keeps its storage for
// reuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::tabular {

class ReadyHeap {
 public:
  struct Entry {
    int64_t ready = 0;
    int32_t node = 0;
  };

  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }

  void push(Entry entry) {
    entries_.push_back(entry);
    place(entries_.size() - 1, entry);
  }

  // The root leaves; a hole sinks from the root to the bottom, to the right where the children are
  // equal, and the last entry rises from there.
  Entry pop() {
    const Entry top = entries_.front();
    const Entry last = entries_.back();
    entries_.pop_back();
    const size_t size = entries_.size();
    if (size == 0) return top;
    size_t hole = 0;
    while (2 * hole + 1 < size) {
      size_t child = 2 * hole + 2;
      if (child >= size || entries_[child].ready > entries_[child - 1].ready) --child;
      entries_[hole] = entries_[child];
      hole = child;
    }
    place(hole, last);
    return top;
  }

 private:
  void place(size_t hole, Entry entry) {
    while (hole > 0 && entries_[(hole - 1) / 2].ready > entry.ready) {
      entries_[hole] = entries_[(hole - 1) / 2];
      hole = (hole - 1) / 2;
    }
    entries_[hole] = entry;
  }

  std::vector<Entry> entries_;
};

}  // namespace braid::tabular
