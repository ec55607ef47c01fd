#include "sim/batching.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/status.h"

namespace braid {
namespace {

int64_t pages_for(int64_t tokens) { return (tokens + kCachePageTokens - 1) / kCachePageTokens; }

struct Sequence {
  BatchRequest request;
  int64_t produced = 0;
  int64_t cached = 0;
  int64_t pages = 0;   // in its table, shared ones included
  int64_t shared = 0;  // full prompt pages that it may share with its group

  int64_t tokens() const { return request.prompt + produced; }
  bool decoding() const { return cached > 0 && cached + 1 >= tokens(); }
  int64_t shareable() const { return (request.prompt - 1) / kCachePageTokens; }
};

// Running sequences of one group: pages of the common prompt and who still computes it.
struct Group {
  int64_t computing = 0;  // running, prompt pages not all computed
  int64_t computed = 0;
  int64_t page_users = 0;  // sequences that hold the shared pages
};

class Batcher {
 public:
  Batcher(const std::vector<BatchRequest>& requests, const BatchOptions& options)
      : options_(options) {
    int64_t longest = 1;
    std::unordered_map<int64_t, int64_t> number;  // of a group
    for (const BatchRequest& request : requests) {
      BRAID_CHECK(request.prompt > 0 && request.response > 0, "empty request");
      waiting_.push_back({request});
      int64_t& group = waiting_.back().request.group;
      group = number.emplace(group, static_cast<int64_t>(number.size())).first->second;
      const int64_t most = std::max(options.most_response, request.response);
      longest = std::max(longest, pages_for(request.prompt + most));
    }
    groups_.resize(number.size());
    const auto live = static_cast<int64_t>(requests.size());
    capacity_ = std::min(options.max_concurrent, live) * longest;
    if (options.kv_budget_tokens > 0)
      capacity_ = std::min(capacity_, options.kv_budget_tokens / kCachePageTokens);
  }

  bool done() const { return waiting_.empty() && running_.empty(); }

  BatchRound step() {
    admit();
    const int64_t alike = rounds_alike();
    BatchRound round = alike > 1 ? decode(alike) : forward();
    round.pages = used_;
    retire();
    round.unfinished = static_cast<int64_t>(waiting_.size() + running_.size());
    return round;
  }

 private:
  Group& group(const Sequence& s) { return groups_[s.request.group]; }

  static bool shares(const Sequence& s) { return s.cached >= s.shareable() * kCachePageTokens; }

  // Keeps the group's counts when a running sequence appears, advances or leaves.
  void count(const Sequence& s, int64_t by) {
    (shares(s) ? group(s).computed : group(s).computing) += by;
  }

  void admit() {
    int64_t promised = 0;
    for (const Sequence& s : running_) promised += pages_for(s.tokens()) - s.pages;
    size_t next = 0;
    while (next < waiting_.size() &&
           static_cast<int64_t>(running_.size()) < options_.max_concurrent) {
      Sequence& candidate = waiting_[next];
      if (group(candidate).computing > 0) {  // waits for its twin's pages
        ++next;
        continue;
      }
      const bool donor = candidate.shareable() > 0 && group(candidate).computed > 0;
      const int64_t need = pages_for(candidate.tokens() + 1) - (donor ? candidate.shareable() : 0);
      if (!running_.empty() && capacity_ - used_ - promised < need) break;
      promised += need;
      start(next, donor);
    }
  }

  void start(size_t index, bool donor) {
    Sequence sequence = waiting_[index];
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(index));
    if (donor) {
      sequence.shared = sequence.pages = sequence.shareable();
      sequence.cached = sequence.shared * kCachePageTokens;
      ++group(sequence).page_users;
    }
    count(sequence, 1);
    running_.push_back(sequence);
  }

  // Its own pages; shared ones when the last user leaves.
  void release(Sequence& s) {
    int64_t freed = s.pages - s.shared;
    if (s.shared > 0 && --group(s).page_users == 0) freed += s.shared;
    used_ -= freed;
    s.pages = s.shared = s.cached = 0;
  }

  void preempt_last() {
    Sequence s = running_.back();
    running_.pop_back();
    count(s, -1);
    release(s);
    waiting_.push_front(s);
  }

  bool provide(Sequence& s, int64_t tokens) {
    const int64_t need = std::max<int64_t>(pages_for(tokens) - s.pages, 0);
    const int64_t taken = std::min(need, capacity_ - used_);
    s.pages += taken;
    used_ += taken;
    return taken == need;
  }

  // Rounds from now on in which every running sequence decodes one token and none ends before the
  // last or is preempted, a page's worth at most. Nobody is admitted in them: whoever waits behind
  // running sequences that all decode waits for a place or for pages, and those only get fewer.
  int64_t rounds_alike() const {
    int64_t rounds =
        static_cast<int64_t>(running_.size()) <= options_.max_batch_tokens ? kCachePageTokens : 1;
    for (const Sequence& s : running_)
      rounds = std::min(rounds, s.decoding() ? s.request.response - s.produced : 1);
    return rounds > 1 && used_ + missing_pages(rounds) <= capacity_ ? rounds : 1;
  }

  int64_t missing_pages(int64_t rounds) const {
    int64_t missing = 0;
    for (const Sequence& s : running_)
      missing += std::max<int64_t>(pages_for(s.cached + rounds) - s.pages, 0);
    return missing;
  }

  BatchRound decode(int64_t rounds) {
    BatchRound out;
    out.rounds = rounds;
    out.decoding = static_cast<int64_t>(running_.size());
    for (Sequence& s : running_) {
      out.cached_tokens += rounds * s.cached + rounds * (rounds + 1) / 2;
      provide(s, s.cached + rounds);
      s.cached += rounds;
      s.produced += rounds;
    }
    return out;
  }

  // Decodes first, then prefills, in order of admission within the token limit.
  BatchRound forward() {
    slices_.clear();
    int64_t room = options_.max_batch_tokens;
    for (const bool decode : {true, false})
      for (size_t i = 0; i < running_.size() && room > 0; ++i) {
        if (running_[i].decoding() != decode) continue;
        const int64_t tokens = std::min(room, running_[i].tokens() - running_[i].cached);
        while (!provide(running_[i], running_[i].cached + tokens) && i + 1 < running_.size()) {
          preempt_last();
          std::erase_if(slices_, [&](const auto& slice) { return slice.first >= running_.size(); });
        }
        if (running_[i].pages < pages_for(running_[i].cached + tokens)) {
          preempt_last();  // itself
          break;
        }
        slices_.push_back({i, tokens});
        room -= tokens;
      }
    return advance();
  }

  BatchRound advance() {
    BatchRound round;
    for (const auto& [index, tokens] : slices_) {
      Sequence& s = running_[index];
      if (s.decoding()) {
        ++round.decoding;
        round.cached_tokens += s.cached + 1;
      } else {
        round.prefill_tokens += tokens;
      }
      const bool due = s.cached + tokens >= s.tokens(), shared_before = shares(s);
      s.cached += tokens;
      if (!shared_before && shares(s)) publish(s);
      if (due) ++s.produced;
    }
    return round;
  }

  // The prompt's full pages are computed: others of the group may share them from now on.
  void publish(Sequence& s) {
    --group(s).computing;
    ++group(s).computed;
    if (group(s).page_users == 0 && s.shareable() > 0) {
      s.shared = s.shareable();
      group(s).page_users = 1;
    }
  }

  void retire() {
    size_t kept = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].produced >= running_[i].request.response) {
        count(running_[i], -1);
        release(running_[i]);
      } else {
        if (kept != i) running_[kept] = running_[i];
        ++kept;
      }
    }
    running_.resize(kept);
  }

  BatchOptions options_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;
  std::vector<std::pair<size_t, int64_t>> slices_;  // running index, tokens
  std::vector<Group> groups_;                       // by number
  int64_t capacity_ = 0, used_ = 0;                 // pages
};

}  // namespace

bool same_work(const std::vector<BatchRequest>& a, const std::vector<BatchRequest>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const BatchRequest& x, const BatchRequest& y) {
                      return x.prompt == y.prompt && x.response == y.response &&
                             x.group - a.front().group == y.group - b.front().group;
                    });
}

int64_t run_batches(const std::vector<BatchRequest>& requests, const BatchOptions& options,
                    const std::function<void(const BatchRound&)>& visit) {
  Batcher batcher(requests, options);
  int64_t rounds = 0;
  while (!batcher.done()) {
    const BatchRound round = batcher.step();
    BRAID_CHECK(round.decoding + round.prefill_tokens > 0, "the cache holds no sequence");
    visit(round);
    rounds += round.rounds;
  }
  return rounds;
}

}  // namespace braid
