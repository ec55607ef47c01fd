// Prices a plan of a tabulated problem exactly as the format defines it: the graph unrolled over
// all iterations, parameter moves spliced in, one list-scheduling pass with the format's binary
// heap. The slow, literal evaluator: what the search reports is checked against it. Pure.
#pragma once

#include "tabular/problem.h"

namespace braid::tabular {

struct Price {
  int64_t cost_us = 0;  // all iterations together
  bool feasible = false;
  int64_t peak_bytes = 0;     // on the fullest device
  int untabulated_moves = 0;  // moves between unequal layouts for which the table has no row
  friend bool operator==(const Price&, const Price&) = default;
};

// REQUIRES: plan has an index in range for every call.
Price price_plan(const Problem& problem, const Plan& plan);

// Duration of a move of `train`'s parameters (rule 3): 0 between equal layouts and where the table
// has no row.
int64_t move_time_us(const Problem& problem, const Call& train, const Layout& source,
                     const Layout& destination);

}  // namespace braid::tabular
