#include "data/tokenizer/bpe_merge.h"

#include <limits>
#include <queue>

namespace braid::inline data {
namespace {

constexpr size_t kLinearSearchSymbols = 24;
constexpr int32_t kNoMerge = std::numeric_limits<int32_t>::max();

MergeTable::Merge merge_of(const MergeTable& merges, int32_t left, int32_t right) {
  const MergeTable::Merge* found = merges.find(left, right);
  return found != nullptr ? *found : MergeTable::Merge{kNoMerge, -1};
}

// pair[i] is the merge of symbols i and i + 1.
void merge_short(const MergeTable& merges, std::vector<int32_t>* symbols) {
  MergeTable::Merge pair[kLinearSearchSymbols];
  std::vector<int32_t>& ids = *symbols;
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) pair[i] = merge_of(merges, ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pair[i].rank < pair[best].rank) best = i;
    if (pair[best].rank == kNoMerge) break;
    ids[best] = pair[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      pair[i] = pair[i + 1];
    }
    --count;
    if (best > 0) pair[best - 1] = merge_of(merges, ids[best - 1], ids[best]);
    if (best + 1 < count) pair[best] = merge_of(merges, ids[best], ids[best + 1]);
  }
  ids.resize(count);
}

struct Candidate {
  int32_t rank;
  int32_t position;
  int32_t id;
  friend bool operator<(const Candidate& a, const Candidate& b) {  // for a queue of minima
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
};

// A doubly linked list over the positions of a word; a merged-away position holds -1.
class LongWord {
 public:
  LongWord(const MergeTable& merges, std::vector<int32_t>* symbols)
      : merges_(merges), ids_(*symbols), previous_(ids_.size()), next_(ids_.size()) {
    for (size_t i = 0; i < ids_.size(); ++i) {
      previous_[i] = static_cast<int32_t>(i) - 1;
      next_[i] = i + 1 < ids_.size() ? static_cast<int32_t>(i) + 1 : -1;
    }
  }

  void run() {
    for (size_t i = 0; i < ids_.size(); ++i) propose(i);
    while (!queue_.empty()) {
      const Candidate candidate = queue_.top();
      queue_.pop();
      if (is_current(candidate)) merge(candidate);
    }
    size_t kept = 0;
    for (const int32_t id : ids_)
      if (id >= 0) ids_[kept++] = id;
    ids_.resize(kept);
  }

 private:
  void propose(int32_t position) {
    if (position < 0 || next_[position] < 0) return;
    const auto* merge = merges_.find(ids_[position], ids_[next_[position]]);
    if (merge != nullptr) queue_.push({merge->rank, position, merge->id});
  }

  bool is_current(const Candidate& candidate) const {
    const int32_t position = candidate.position;
    if (ids_[position] < 0 || next_[position] < 0) return false;
    const auto* merge = merges_.find(ids_[position], ids_[next_[position]]);
    return merge != nullptr && merge->rank == candidate.rank;
  }

  void merge(const Candidate& candidate) {
    const int32_t left = candidate.position, right = next_[left];
    ids_[left] = candidate.id;
    ids_[right] = -1;
    next_[left] = next_[right];
    if (next_[left] >= 0) previous_[next_[left]] = left;
    propose(previous_[left]);
    propose(left);
  }

  const MergeTable& merges_;
  std::vector<int32_t>& ids_;
  std::vector<int32_t> previous_;
  std::vector<int32_t> next_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void apply_merges(const MergeTable& merges, std::vector<int32_t>* symbols) {
  if (symbols->size() <= kLinearSearchSymbols)
    merge_short(merges, symbols);
  else
    LongWord(merges, symbols).run();
}

}  // namespace braid::inline data
