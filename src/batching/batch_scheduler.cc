#include "batching/batch_scheduler.h"

#include <algorithm>

#include "base/status.h"

namespace braid::inline batching {

BatchScheduler::Group& BatchScheduler::group(const ScheduledSequence& s) {
  if (s.group >= static_cast<int64_t>(groups_.size())) groups_.resize(s.group + 1);
  return groups_[s.group];
}

// Keeps the group's counts when a running sequence appears, advances or leaves.
void BatchScheduler::count(const ScheduledSequence& s, int64_t by) {
  Group& of = group(s);
  (s.has_prompt() ? of.computed : of.computing) += by;
}

void BatchScheduler::submit(const ScheduledSequence& sequence) {
  BRAID_CHECK(sequence.prompt > 0 && sequence.response > 0, "an empty sequence");
  waiting_.push_back(sequence);
}

void BatchScheduler::submit_first(const ScheduledSequence& sequence) {
  BRAID_CHECK(sequence.prompt > 0 && sequence.response > 0, "an empty sequence");
  waiting_.push_front(sequence);
}

bool BatchScheduler::has_place(int64_t cached) const {
  return capacity_ - used_ >= pages_for(cached) &&
         static_cast<int64_t>(running_.size()) < limits_.max_concurrent;
}

void BatchScheduler::resume(ScheduledSequence sequence, int64_t cached) {
  BRAID_CHECK(has_place(cached), "no place for a sequence from elsewhere");
  sequence.cached = cached;
  provide(&sequence, cached);
  count(sequence, 1);
  running_.push_back(sequence);
}

void BatchScheduler::remove(int64_t id) {
  const auto is_it = [&](const ScheduledSequence& s) { return s.id == id; };
  if (const auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    count(*it, -1);
    release(&*it);
    running_.erase(it);
    return;
  }
  const auto it = std::find_if(waiting_.begin(), waiting_.end(), is_it);
  BRAID_CHECK(it != waiting_.end(), "a sequence that is not there");
  waiting_.erase(it);
}

const ScheduledRound& BatchScheduler::next_round(bool in_a_row) {
  round_.rounds = 1;
  round_.admitted.clear();
  round_.preempted.clear();
  round_.slices.clear();
  admit();
  if (in_a_row) round_.rounds = rounds_in_a_row();
  if (round_.rounds == 1) {
    choose_slices();
  } else {
    for (ScheduledSequence& s : running_) provide(&s, s.cached + round_.rounds);
  }
  return round_;
}

// Moves waiting sequences to the running ones while the pages for the tokens that they have, and
// for one more, are free. The first is always admitted: the cache holds any sequence alone. One
// whose twin still computes the same prompt waits, since it can share the pages then.
void BatchScheduler::admit() {
  if (limits_.longest_first)
    std::stable_sort(waiting_.begin(), waiting_.end(),
                     [](const ScheduledSequence& a, const ScheduledSequence& b) {
                       return a.expected > b.expected;
                     });
  int64_t promised = 0;  // pages that running sequences still need for the tokens they have
  for (const ScheduledSequence& s : running_) promised += pages_for(s.tokens()) - s.pages;
  size_t next = 0;
  while (next < waiting_.size() && static_cast<int64_t>(running_.size()) < limits_.max_concurrent) {
    const ScheduledSequence& candidate = waiting_[next];
    const Group& twins = group(candidate);
    if (twins.computing > 0) {
      ++next;
      continue;
    }
    const int64_t shared = twins.computed > 0 ? candidate.shareable() : 0;
    const int64_t need = pages_for(candidate.tokens() + 1) - shared;
    if (!running_.empty() && capacity_ - used_ - promised < need) break;
    promised += need;
    start(next);
  }
}

void BatchScheduler::start(size_t waiting) {
  ScheduledSequence sequence = waiting_[waiting];
  waiting_.erase(waiting_.begin() + static_cast<int64_t>(waiting));
  ScheduledRound::Admission admission{sequence.id};
  if (sequence.shareable() > 0 && group(sequence).computed > 0) {
    const auto donor = std::find_if(
        running_.begin(), running_.end(),
        [&](const ScheduledSequence& s) { return s.group == sequence.group && s.has_prompt(); });
    share(&*donor, &sequence);
    admission.donor = donor->id;
    admission.pages = sequence.shared;
  }
  round_.admitted.push_back(admission);
  count(sequence, 1);
  running_.push_back(sequence);
}

void BatchScheduler::share(ScheduledSequence* donor, ScheduledSequence* taker) {
  if (donor->prefix < 0) {
    donor->prefix = static_cast<int64_t>(prefix_users_.size());
    donor->shared = donor->shareable();
    prefix_users_.push_back(1);
  }
  ++prefix_users_[donor->prefix];
  taker->prefix = donor->prefix;
  taker->shared = taker->pages = donor->shared;
  taker->cached = donor->shared * kPageTokens;
}

// Its own pages; shared ones when the last user leaves.
void BatchScheduler::release(ScheduledSequence* s) {
  int64_t freed = s->pages - s->shared;
  if (s->prefix >= 0 && --prefix_users_[s->prefix] == 0) freed += s->shared;
  used_ -= freed;
  s->pages = s->shared = s->cached = 0;
  s->prefix = -1;
  if (used_ == 0) prefix_users_.clear();
}

// The youngest gives its pages back and waits at the front; its tokens stay and are recomputed.
void BatchScheduler::preempt_last() {
  ScheduledSequence s = running_.back();
  running_.pop_back();
  count(s, -1);
  release(&s);
  round_.preempted.push_back(s.id);
  waiting_.push_front(s);
}

std::vector<int64_t> BatchScheduler::preempt_all() {
  round_.preempted.clear();
  while (!running_.empty()) preempt_last();
  return round_.preempted;
}

// Pages for its first `tokens`, or as many as are free; whether that is all.
bool BatchScheduler::provide(ScheduledSequence* s, int64_t tokens) {
  const int64_t need = std::max<int64_t>(pages_for(tokens) - s->pages, 0);
  const int64_t taken = std::min(need, capacity_ - used_);
  s->pages += taken;
  used_ += taken;
  return taken == need;
}

// Rounds from now on in which every running sequence computes one token and none ends before the
// last or is preempted, a page's worth at most. Nobody is admitted in them: whoever waits behind
// running sequences that all decode waits for a place or for pages, and those only get fewer.
int64_t BatchScheduler::rounds_in_a_row() const {
  int64_t rounds =
      static_cast<int64_t>(running_.size()) <= limits_.max_batch_tokens ? kPageTokens : 1;
  for (const ScheduledSequence& s : running_)
    rounds = std::min(rounds, s.decoding() ? s.response - s.produced : 1);
  return rounds > 1 && used_ + missing_pages(rounds) <= capacity_ ? rounds : 1;
}

int64_t BatchScheduler::missing_pages(int64_t rounds) const {
  int64_t missing = 0;
  for (const ScheduledSequence& s : running_)
    missing += std::max<int64_t>(pages_for(s.cached + rounds) - s.pages, 0);
  return missing;
}

// Decodes first (one token each), then prefills, in order of admission within the limit of tokens;
// older sequences take pages first.
void BatchScheduler::choose_slices() {
  auto& slices = round_.slices;
  int64_t room = limits_.max_batch_tokens;
  for (const bool decode : {true, false})
    for (size_t i = 0; i < running_.size() && room > 0; ++i) {
      if (running_[i].decoding() != decode) continue;
      const int64_t missing = running_[i].tokens() - running_[i].cached;
      const int64_t tokens = std::min(room, missing), upto = running_[i].cached + tokens;
      while (!provide(&running_[i], upto) && i + 1 < running_.size()) {
        preempt_last();
        std::erase_if(slices, [&](const auto& slice) { return slice.running >= running_.size(); });
      }
      if (running_[i].pages < pages_for(upto)) {
        preempt_last();  // itself: the youngest, and still no room
        break;
      }
      slices.push_back({i, tokens, tokens == missing});
      room -= tokens;
    }
}

void BatchScheduler::advance(const ScheduledRound& round) {
  if (round.rounds > 1) {
    for (ScheduledSequence& s : running_) {
      s.cached += round.rounds;
      s.produced += round.rounds;
    }
    return;
  }
  for (const ScheduledRound::Slice& slice : round.slices) {
    ScheduledSequence& s = running_[slice.running];
    const bool had_prompt = s.has_prompt();
    s.cached += slice.tokens;
    if (!had_prompt && s.has_prompt()) {
      --group(s).computing;
      ++group(s).computed;
    }
    if (slice.due) ++s.produced;
  }
}

void BatchScheduler::retire() {
  size_t kept = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i].ended()) {
      count(running_[i], -1);
      release(&running_[i]);
    } else {
      if (kept != i) running_[kept] = running_[i];
      ++kept;
    }
  }
  running_.resize(kept);
}

}  // namespace braid::inline batching
