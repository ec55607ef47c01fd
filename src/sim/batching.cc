#include "sim/batching.h"

#include <algorithm>
#include <unordered_map>

#include "base/status.h"
#include "batching/batch_scheduler.h"

namespace braid::inline sim {
namespace {

BatchScheduler queued(const std::vector<BatchRequest>& requests, const BatchOptions& options) {
  BatchScheduler scheduler({options.max_concurrent, options.max_batch_tokens});
  int64_t longest = 1;
  std::unordered_map<int64_t, int64_t> number;  // of a group
  for (const BatchRequest& request : requests) {
    ScheduledSequence sequence;
    sequence.id = scheduler.sequences();
    sequence.prompt = request.prompt;
    sequence.response = request.response;
    const auto numbers = static_cast<int64_t>(number.size());
    sequence.group = number.emplace(request.group, numbers).first->second;
    scheduler.submit(sequence);
    const int64_t most = std::max(options.most_response, request.response);
    longest = std::max(longest, pages_for(request.prompt + most));
  }
  int64_t pages = std::min(options.max_concurrent, scheduler.sequences()) * longest;
  if (options.kv_budget_tokens > 0) pages = std::min(pages, options.kv_budget_tokens / kPageTokens);
  scheduler.set_capacity(pages);
  return scheduler;
}

// What a round of the scheduler, before it advances, comes to.
BatchRound counted(const BatchScheduler& scheduler, const ScheduledRound& round) {
  BatchRound out;
  out.rounds = round.rounds;
  out.pages = scheduler.used_pages();
  if (round.rounds > 1) {
    out.decoding = static_cast<int64_t>(scheduler.running().size());
    for (const ScheduledSequence& s : scheduler.running())
      out.cached_tokens += round.rounds * s.cached + round.rounds * (round.rounds + 1) / 2;
  }
  for (const ScheduledRound::Slice& slice : round.slices) {
    const ScheduledSequence& s = scheduler.running()[slice.running];
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
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const BatchRequest& x, const BatchRequest& y) {
                      return x.prompt == y.prompt && x.response == y.response &&
                             x.group - a.front().group == y.group - b.front().group;
                    });
}

int64_t run_batches(const std::vector<BatchRequest>& requests, const BatchOptions& options,
                    const std::function<void(const BatchRound&)>& visit) {
  BatchScheduler scheduler = queued(requests, options);
  int64_t rounds = 0;
  while (!scheduler.drained()) {
    const ScheduledRound& next = scheduler.next_round(/*in_a_row=*/true);
    BatchRound round = counted(scheduler, next);
    BRAID_CHECK(round.decoding + round.prefill_tokens > 0, "the cache holds no sequence");
    scheduler.advance(next);
    scheduler.retire();
    round.unfinished = scheduler.sequences();
    visit(round);
    rounds += round.rounds;
  }
  return rounds;
}

}  // namespace braid::inline sim
