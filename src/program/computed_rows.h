// Which rank computes what an algorithm's function gives (compute calls): one rank for all samples,
// or, where the function looks at each group or sample alone, the ranks that read it, each what it
// reads. Pure.
#pragma once

#include <functional>
#include <vector>

#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {

// Whether the ranks that read what a compute call writes compute it themselves, so that nothing of
// it moves: it looks at samples or groups, of which what it reads comes to these ranks, or at what
// all ranks know, as rewards and lengths, beside sums that they tell each other.
bool computed_by_readers(const Graph& graph, const Call& call);

// The rows that a rank computes, ascending. Of each row one rank has metrics and sums, although
// others may compute it too: tensor-parallel ranks, or those of another call that reads it.
struct ComputedRows {
  SampleRows reported, others;
};
SampleRows all_of(const ComputedRows& rows);

// Those of each rank, [rank]. Of `rows`, the call's, the first rank that reads of a group, or of a
// sample, reports it; what nobody reads the first rank of the call computes. `groups`: by row;
// `read`: the rows that each rank reads in a call that reads it, [rank].
std::vector<ComputedRows> computed_by_rank(
    const Program& program, CallId call, const SampleRows& rows, const std::vector<int64_t>& groups,
    const std::function<std::vector<SampleRows>(CallId)>& read);

}  // namespace braid::inline program
