// Where each call of a plan runs, and which copy of its weights it uses. Pure.
#pragma once

#include <vector>

#include "program/program.h"

namespace braid::inline program {

// Fills program.calls and program.copies. Calls without a model run beside the models whose results
// they read: a reward on one rank of each data-parallel replica, an algorithm's function on one
// rank, the data set on every rank. REQUIRES: validate(plan, problem) is ok.
void place_calls(const ExecutionPlan& plan, const PlanningProblem& problem, Program* program);

// The call that writes a field. REQUIRES: one does.
CallId producer_of(const Graph& graph, const std::string& field);

// Whether the copy stays on its devices: home copies, and others of weights that never change as a
// whole (frozen roles, adapters over frozen weights).
bool stays_resident(const WeightCopy& copy, const PlanningProblem& problem);
bool is_trained(const Graph& graph, const RoleId& role);

}  // namespace braid::inline program
