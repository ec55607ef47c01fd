#include "sim/batching.h"

#include <algorithm>
#include <unordered_map>

#include "base/status.h"
#include "batching/batch_scheduler.h"

namespace braid::inline sim {
namespace {

BatchScheduler queued(const std::vector<BatchRequest>& requests, const BatchOptions& options) {
  BatchScheduler scheduler(
      {options.max_concurrent, options.max_batch_tokens, options.longest_first});
  int64_t longest = 1;
  std::vector<ScheduledSequence> coming;        // with what they have in the cache
  std::unordered_map<int64_t, int64_t> number;  // of a group
  for (const BatchRequest& request : requests) {
    ScheduledSequence sequence;
    sequence.id = &request - requests.data();
    sequence.prompt = request.prompt;
    sequence.response = request.response;
    const auto numbers = static_cast<int64_t>(number.size());
    sequence.group = number.emplace(request.group, numbers).first->second;
    sequence.produced = request.produced;
    sequence.expected = request.predicted;
    request.cached == 0 ? scheduler.submit(sequence) : coming.push_back(sequence);
    const int64_t most = std::max(options.most_response, request.response);
    longest = std::max(longest, pages_for(request.prompt + most));
  }
  int64_t pages = std::min(options.max_concurrent, std::ssize(requests)) * longest;
  if (options.kv_budget_tokens > 0) pages = std::min(pages, options.kv_budget_tokens / kPageTokens);
  scheduler.set_capacity(pages);
  for (const ScheduledSequence& sequence : coming) {
    const int64_t cached = requests[sequence.id].cached;
    scheduler.has_place(cached) ? scheduler.resume(sequence, cached)
                                : scheduler.submit_first(sequence);
  }
  return scheduler;
}

// What a round of the scheduler, before it advances, comes to.
BatchRound counted(const BatchScheduler& scheduler, const ScheduledRound& round) {
  BatchRound out;
  out.rounds = round.rounds;
  out.pages = scheduler.used_pages();
  if (round.rounds > 1) {
    out.decoding = out.due = static_cast<int64_t>(scheduler.running().size());
    for (const ScheduledSequence& s : scheduler.running())
      out.cached_tokens += round.rounds * s.cached + round.rounds * (round.rounds + 1) / 2;
  }
  for (const ScheduledRound::Slice& slice : round.slices) {
    const ScheduledSequence& s = scheduler.running()[slice.running];
    if (slice.due) ++out.due;
    if (s.decoding()) {
      ++out.decoding;
      out.cached_tokens += s.cached + 1;
    } else {
      out.prefill_tokens += slice.tokens;
    }
  }
  return out;
}

}  // namespace

bool same_work(const std::vector<BatchRequest>& a, const std::vector<BatchRequest>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [&](const BatchRequest& x, const BatchRequest& y) {
        return x.prompt == y.prompt && x.response == y.response && x.produced == y.produced &&
               x.cached == y.cached && x.predicted == y.predicted &&
               x.group - a.front().group == y.group - b.front().group;
      });
}

namespace {

// The next round of a scheduler, or several in a row. REQUIRES: it is not drained.
BatchRound run_next(BatchScheduler& scheduler, bool in_a_row) {
  const ScheduledRound& next = scheduler.next_round(in_a_row);
  BatchRound round = counted(scheduler, next);
  BRAID_CHECK(round.decoding + round.prefill_tokens > 0, "the cache holds no sequence");
  scheduler.advance(next);
  scheduler.retire();
  round.unfinished = scheduler.sequences();
  return round;
}

// Rounds of a scheduler, until it is drained or has made so many (-1: any number, several in a
// row).
int64_t run(BatchScheduler& scheduler, int64_t most,
            const std::function<void(const BatchRound&)>& visit) {
  int64_t rounds = 0;
  while (!scheduler.drained() && rounds != most) {
    const BatchRound round = run_next(scheduler, /*in_a_row=*/most < 0);
    visit(round);
    rounds += round.rounds;
  }
  return rounds;
}

// How far each request is.
std::vector<BatchRequest> progress_of(const BatchScheduler& scheduler,
                                      std::vector<BatchRequest> requests) {
  for (BatchRequest& request : requests) request.produced = request.response, request.cached = 0;
  for (const ScheduledSequence& s : scheduler.waiting()) requests[s.id].produced = s.produced;
  for (const ScheduledSequence& s : scheduler.running())
    requests[s.id].produced = s.produced, requests[s.id].cached = s.cached;
  return requests;
}

}  // namespace

int64_t run_batches(const std::vector<BatchRequest>& requests, const BatchOptions& options,
                    const std::function<void(const BatchRound&)>& visit) {
  BatchScheduler scheduler = queued(requests, options);
  return run(scheduler, -1, visit);
}

std::vector<BatchRequest> run_batches_until(const std::vector<BatchRequest>& requests,
                                            const BatchOptions& options, int64_t rounds,
                                            const std::function<void(const BatchRound&)>& visit) {
  BatchScheduler scheduler = queued(requests, options);
  run(scheduler, rounds, visit);
  return progress_of(scheduler, requests);
}

std::vector<BatchRequest> run_batches_until_enough(
    const std::vector<BatchRequest>& requests, const BatchOptions& options, const Enough& enough,
    const std::function<void(const BatchRound&)>& visit) {
  BatchScheduler scheduler = queued(requests, options);
  std::vector<BatchRequest> progress = requests;
  int64_t unfinished = scheduler.sequences();
  while (!scheduler.drained()) {
    const BatchRound round = run_next(scheduler, /*in_a_row=*/true);
    visit(round);
    if (round.unfinished == unfinished) continue;
    unfinished = round.unfinished;
    progress = progress_of(scheduler, requests);
    if (enough(progress)) break;
  }
  for (BatchRequest& request : progress) request.cached = 0;
  return progress;
}

}  // namespace braid::inline sim
