// What ranks send to each other inside the calls of a step: the collectives and messages of the
// bodies that the runtime executes (program/expand.h). Pure; thread-safe.
#pragma once

#include "plan/problem.h"
#include "program/program.h"
#include "sim/simulate.h"

namespace braid::inline sim {

// Bytes that one member of a group of n sends in a collective of so many bytes (as Op::bytes counts
// them): 2 (n - 1) / n of them in an all-reduce, (n - 1) / n in an all-gather, a reduce-scatter, an
// all-to-all, and in the mean of its members in a broadcast (Thakur et al., "Optimization of
// collective communication operations in MPICH", 2005).
double sent_in_collective(OpKind kind, double bytes, int64_t members);

// Bytes that all ranks send inside the calls of a step with these lengths. A generation counts as
// one round with all its tokens, each prompt once in a replica; what it draws again is left out.
// REQUIRES: compile(plan, problem) made the program, with the lists of all ranks.
double bytes_inside_calls(const Program& program, const PlanningProblem& problem,
                          const SampleLengths& lengths);

}  // namespace braid::inline sim
