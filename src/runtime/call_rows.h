// Which rows of the store each rank works on in a call: the deal of the program (program/deal.h)
// over the samples of the store. All ranks compute the same. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "program/deal.h"
#include "program/expand.h"
#include "program/program.h"
#include "runtime/sample_store.h"

namespace braid {

class CallRows {
 public:
  // A program that compile(graph) made has one rank, which does everything with the configuration's
  // micro-batches. REQUIRES: the references outlive this.
  CallRows(const Config& config, const Program& program, const SampleStore& store);

  // The samples have changed: another step, or some were dropped.
  void forget() { deals_.clear(); }

  // The deal of an infer, reward or train call in step `step`. REQUIRES: lengths are known.
  const Deal& deal(CallId call, int64_t step);
  // Lowers, for this and all later deals of the call, the most tokens of a micro-batch until those
  // of a mini-batch are others, and returns that; none where each has one sample. Which samples a
  // rank has and what mini-batches consist of does not change, so ranks of other calls need not
  // know.
  std::optional<int64_t> cut_smaller(CallId call, int64_t step, size_t minibatch);
  // What cut_smaller() has lowered it to, by call.
  const std::map<int32_t, int64_t>& lowered() const { return micro_tokens_; }
  // Rows that each rank works on, [rank]. Generation: the prompts of its replica. Calls without a
  // model: all rows on each of their ranks.
  std::vector<Rows> by_rank(CallId call, int64_t step);

  // As by_rank() for calls with a model, but only the ranks that have the results.
  std::vector<Rows> written_by_rank(CallId call, int64_t step);

  // The place of a rank in a call; dp_rank -1: it takes no part.
  GridPosition at(CallId call, int64_t rank) const;
  int dp_rank(CallId call, int64_t rank) const { return at(call, rank).dp_rank; }
  // Whether the rank speaks for those that share one data-parallel rank's samples.
  bool leads_replica(CallId call, int64_t rank) const {
    const GridPosition place = at(call, rank);
    return place.tp_rank == 0 && place.stage == placement(call).strategy.pp - 1;
  }
  // What expand() takes. REQUIRES: the call uses a model. Valid as long as this.
  CallFrame frame(CallId call) const;

 private:
  Deal deal_anew(CallId call, int64_t step, int64_t micro_tokens) const;
  bool placed() const { return !program_.calls.empty(); }
  const CallPlacement& placement(CallId call) const {
    return placed() ? program_.calls[call.value] : alone_;
  }

  const Config& config_;
  const Program& program_;
  const SampleStore& store_;
  CallPlacement alone_;                      // one rank with all of every model
  ModelShape whole_;                         // of those models: what a single rank's ops depend on
  std::map<int32_t, Deal> deals_;            // by call
  std::map<int32_t, int64_t> micro_tokens_;  // of calls that were cut smaller
};

Rows rows_of(const SampleRows& rows);

// Tokens of the longest micro-batch of any rank.
int64_t most_tokens(const MiniBatch& batch);

}  // namespace braid
