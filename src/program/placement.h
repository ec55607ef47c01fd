// Where each call of a plan runs, which copy of its weights it uses, which devices hold what it
// writes and which need what it reads. Pure.
#pragma once

#include <vector>

#include "program/program.h"

namespace braid {

// Fills program.calls and program.copies. Calls without a model run beside the models whose results
// they read: a reward on one rank of each data-parallel replica, an algorithm's function on one
// rank, the data set on every rank that reads from it. REQUIRES: validate(plan, problem) is ok.
void place_calls(const ExecutionPlan& plan, const PlanningProblem& problem, Program* program);

// Samples of a call's fields by device: what it wrote itself, and what it needs before it starts.
std::vector<Holding> field_holders(const Program& program, CallId producer, const Field& field);
std::vector<Holding> field_readers(const Program& program, CallId consumer, const Field& field,
                                   CallId producer);
// The call that writes a field. REQUIRES: one does.
CallId producer_of(const Graph& graph, const std::string& field);

// Whether the copy stays on its devices: home copies, and others of weights that never change as a
// whole (frozen roles, adapters over frozen weights).
bool stays_resident(const WeightCopy& copy, const PlanningProblem& problem);
bool is_trained(const Graph& graph, const RoleId& role);

}  // namespace braid
