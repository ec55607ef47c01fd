// Which rows of the store each rank works on in a call: the deal of the program (program/deal.h)
// over the samples of the store. All ranks compute the same. Not thread-safe.
#pragma once

#include <map>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "program/deal.h"
#include "program/program.h"
#include "runtime/sample_store.h"

namespace braid {

class CallRows {
 public:
  // A program that compile(graph) made has one rank, which does everything with the configuration's
  // micro-batches. REQUIRES: the references outlive this.
  CallRows(const Config& config, const Program& program, const SampleStore& store)
      : config_(config), program_(program), store_(store) {}

  // The samples have changed: another step, or some were dropped.
  void forget() { deals_.clear(); }

  // The deal of an infer, reward or train call in step `step`. REQUIRES: lengths are known.
  const Deal& deal(CallId call, int64_t step);
  // Rows that each rank works on, [rank]. Generation: the prompts of its replica. Calls without a
  // model: all rows on each of their ranks.
  std::vector<Rows> by_rank(CallId call, int64_t step);

  // The data-parallel rank of a rank in a call; -1: it takes no part.
  int dp_rank(CallId call, int64_t rank) const;
  // The strategy of a call, with what the configuration says where the plan does not.
  Strategy strategy(CallId call) const;

 private:
  bool placed() const { return !program_.calls.empty(); }

  const Config& config_;
  const Program& program_;
  const SampleStore& store_;
  std::map<int32_t, Deal> deals_;  // by call
};

Rows rows_of(const SampleRows& rows);

}  // namespace braid
