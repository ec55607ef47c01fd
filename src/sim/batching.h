// The rounds of a generation engine, given the lengths: what each prefills and decodes. The engine
// runs the same scheduler (batching/batch_scheduler.h), so that a recorded run's lengths give its
// rounds exactly. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/execution_plan.h"

namespace braid::inline sim {

struct BatchRequest {
  int64_t prompt = 0, response = 0;  // tokens, both at least 1
  int64_t group = 0;                 // requests of one group have the same prompt
  // New tokens that it has already, of `response`, and tokens in the cache with which it comes.
  int64_t produced = 0, cached = 0;
  int64_t predicted = 0;  // new tokens in all, as far as anybody knows before; 0: nobody does
};

// Equal up to the groups' numbers, where those are consecutive: both take the same rounds.
bool same_work(const std::vector<BatchRequest>& a, const std::vector<BatchRequest>& b);

struct BatchOptions {
  int64_t kv_budget_tokens = 0;  // 0: enough for max_concurrent of the longest request
  int64_t max_concurrent = 256;
  int64_t max_batch_tokens = 2048;  // tokens of one forward
  int64_t most_response = 0;        // longest that a request may get; 0: its own length
  bool longest_first = false;       // admits those with the most predicted tokens first
};

// Share of the memory left to a generation engine that its cache gets; the sample store and
// messages need some as well.
inline constexpr double kShareForCache = 0.95;

// Scheduling rounds and their forwards: one, or several in a row in which the same sequences decode
// and nothing else happens.
struct BatchRound {
  int64_t rounds = 1;
  int64_t prefill_tokens = 0;
  int64_t decoding = 0;       // sequences that computed one token, in each round
  int64_t cached_tokens = 0;  // of the sequences that decoded, over all rounds
  int64_t pages = 0;          // held, in the last round
  int64_t due = 0;            // sequences that get a token, in each round
  int64_t unfinished = 0;     // waiting and running, after the rounds
};

// Calls `visit` for the rounds in their order until all requests are finished; returns the number
// of rounds. REQUIRES: the budget holds the longest request.
int64_t run_batches(const std::vector<BatchRequest>& requests, const BatchOptions& options,
                    const std::function<void(const BatchRound&)>& visit);

// The same for at most so many rounds, one at a time. Returns how far each request is then: one
// with all of its response has finished, else `cached` is what it has in the cache.
std::vector<BatchRequest> run_batches_until(const std::vector<BatchRequest>& requests,
                                            const BatchOptions& options, int64_t rounds,
                                            const std::function<void(const BatchRound&)>& visit);

// As run_batches(), until `enough` says so, which is asked when requests have finished, or all
// have. Returns how far each is then, without its cache.
using Enough = std::function<bool(const std::vector<BatchRequest>& progress)>;
std::vector<BatchRequest> run_batches_until_enough(
    const std::vector<BatchRequest>& requests, const BatchOptions& options, const Enough& enough,
    const std::function<void(const BatchRound&)>& visit);

}  // namespace braid::inline sim
