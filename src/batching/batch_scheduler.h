// Which sequences a generation engine runs next: admission, pages of the cache, prompts that are
// computed once for several samples, preemption, and the order in a forward. The engine carries out
// what this decides, the simulator prices it; neither decides anything itself. It counts pages and
// tokens and knows no tensor. Not thread-safe; equal calls give equal decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "batching/cache_pages.h"

namespace braid::inline batching {

struct BatchLimits {
  int64_t max_concurrent = 256;     // sequences that run at a time
  int64_t max_batch_tokens = 2048;  // tokens of one forward
  bool longest_first = false;       // admits those with the most expected tokens first
};

// A sequence that waits (without pages) or runs. Its first `cached` tokens are in the cache.
struct ScheduledSequence {
  int64_t id = 0;        // the caller's; no two sequences of a scheduler have one
  int64_t prompt = 0;    // tokens, at least 1
  int64_t response = 0;  // new tokens after which it ends, at least 1
  int64_t group = 0;     // from 0, without large gaps: those of one group have the same prompt
  int64_t expected = 0;  // new tokens, for longest_first
  int64_t produced = 0;  // new tokens so far
  int64_t cached = 0;
  int64_t pages = 0;    // those that it shares included
  int64_t shared = 0;   // of them, those of the prefix
  int64_t prefix = -1;  // pages of its prompt that it has in common with others; -1: none

  int64_t tokens() const { return prompt + produced; }
  bool decoding() const { return cached > 0 && cached + 1 >= tokens(); }
  bool ended() const { return produced >= response; }
  // Full pages of the prompt. Its last token is always computed anew, as its hidden state gives the
  // first new one.
  int64_t shareable() const { return (prompt - 1) / kPageTokens; }
  bool has_prompt() const { return cached >= shareable() * kPageTokens; }
};

// What happens in a round, in this order: sequences get a place, others lose theirs and all their
// pages, and the slices are computed after their sequences got pages for all tokens up to there.
struct ScheduledRound {
  struct Admission {
    int64_t id = 0;
    int64_t donor = -1;  // a running sequence whose first `pages` pages this one shares
    int64_t pages = 0;
  };
  struct Slice {
    size_t running = 0;  // index into running()
    int64_t tokens = 0;  // after those that are cached
    bool due = false;    // the last of them gives a new token
  };
  int64_t rounds = 1;  // so many in a row, each the next token of every running sequence
  std::vector<Admission> admitted;
  std::vector<int64_t> preempted;
  std::vector<Slice> slices;  // empty where `rounds` are several
};

class BatchScheduler {
 public:
  explicit BatchScheduler(const BatchLimits& limits) : limits_(limits) {}

  // Pages of the cache; those in use stay. REQUIRES: not fewer than are held.
  void set_capacity(int64_t pages) { capacity_ = pages; }
  // Tokens of one forward from here on.
  void set_batch_tokens(int64_t tokens) { limits_.max_batch_tokens = tokens; }

  // Queues a sequence, without tokens in the cache, behind or before all that wait.
  void submit(const ScheduledSequence& sequence);
  void submit_first(const ScheduledSequence& sequence);
  // Runs a sequence whose first tokens come from elsewhere. REQUIRES: has_place().
  void resume(ScheduledSequence sequence, int64_t cached);
  bool has_place(int64_t cached) const;
  // Takes a sequence out; its pages are free. REQUIRES: it is there.
  void remove(int64_t id);
  // All that run wait again, and no page is held; their ids, in the order in which they left.
  std::vector<int64_t> preempt_all();

  bool drained() const { return waiting_.empty() && running_.empty(); }
  const std::deque<ScheduledSequence>& waiting() const { return waiting_; }
  const std::vector<ScheduledSequence>& running() const { return running_; }  // as admitted
  int64_t sequences() const { return static_cast<int64_t>(waiting_.size() + running_.size()); }
  int64_t used_pages() const { return used_; }

  // Admits sequences and chooses what the next forward computes. Nothing has advanced, so that a
  // round that failed may be chosen again. `in_a_row`: rounds in which all that run compute one
  // token, and nothing else happens, come as one. The reference holds until the next call.
  const ScheduledRound& next_round(bool in_a_row = false);
  // The round was computed: its tokens are cached, and due sequences have one more.
  void advance(const ScheduledRound& round);
  // A running sequence ends with the tokens that it has.
  void end(size_t running) { running_[running].response = running_[running].produced; }
  // Sequences that ended leave and give their pages back.
  void retire();

 private:
  // Of the running sequences of one group, how many compute the pages of the prompt, and how many
  // have them.
  struct Group {
    int64_t computing = 0, computed = 0;
  };

  Group& group(const ScheduledSequence& s);
  void count(const ScheduledSequence& s, int64_t by);
  void admit();
  void start(size_t waiting);
  void share(ScheduledSequence* donor, ScheduledSequence* taker);
  void release(ScheduledSequence* s);
  void preempt_last();
  bool provide(ScheduledSequence* s, int64_t tokens);
  int64_t rounds_in_a_row() const;
  int64_t missing_pages(int64_t rounds) const;
  void choose_slices();

  BatchLimits limits_;
  std::deque<ScheduledSequence> waiting_;
  std::vector<ScheduledSequence> running_;
  std::vector<Group> groups_;          // by number
  std::vector<int64_t> prefix_users_;  // by prefix: running sequences that hold its pages
  ScheduledRound round_;
  int64_t capacity_ = 0, used_ = 0;  // pages
};

}  // namespace braid::inline batching
