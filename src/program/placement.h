// Where each call of a plan runs, and which copy of its weights it uses. Pure.
#pragma once

#include <vector>

#include "program/program.h"

namespace braid::inline program {

// Fills program.calls and program.copies. A role that follows another moves where its home is, with
// a copy of the other's weights in the layout of its own. Other calls without a model run beside
// the models whose results they read: a reward on one rank of each replica that generated its
// samples, an algorithm's function on one rank, the data set on every rank. REQUIRES:
// validate(plan, problem) is ok.
void place_calls(const ExecutionPlan& plan, const PlanningProblem& problem, Program* program);

// Whether a call that uses a model has no device in common with those that generate. REQUIRES: both
// outlive it.
RunsApart apart_from_generation(const ExecutionPlan& plan, const PlanningProblem& problem);

// The device that speaks for a data-parallel rank of a call: of its last stage, where results are,
// the first.
DeviceId head_of(const CallPlacement& where, int dp_rank);

// The call whose layout is a role's home: the first that trains it, else its first. REQUIRES: the
// role has a call.
CallId home_call(const Graph& graph, const RoleId& role);

// The call that writes a field. REQUIRES: one does.
CallId producer_of(const Graph& graph, const std::string& field);
// The calls that read what a call writes, in the order of the graph.
std::vector<CallId> readers_of(const Graph& graph, CallId call);

// The generation whose responses a reward call reads; -1: none.
CallId generation_of(const Graph& graph, CallId reward);

// The home copy of a role, as an index into the program's copies; -1: there is none.
int32_t find_home(const Program& program, const RoleId& role);
// REQUIRES: there is one.
int32_t home_copy(const Program& program, const RoleId& role);
// The first call whose model a copy is. Calls of a copy may differ in what their passes do alone.
// REQUIRES: the copy is there for a call.
CallId user_of(const Program& program, int32_t copy);
// The model of a role; null: it has none.
const ModelShape* find_shape(const Program& program, const RoleId& role);
// Whether the copy stays on its devices: home copies, and others of weights that never change as a
// whole (frozen roles, adapters over frozen weights).
bool stays_resident(const WeightCopy& copy, const PlanningProblem& problem);
// Whether what a copy holds as the home copy of its role does (alike_parts()) is the home copy's
// memory: neither is slices (ZeRO-3), and the home copy never rests on the host. A copy is used
// only between its filling and the next change of the weights (program/verify_weights.h), so both
// have the same values while somebody reads them. REQUIRES: a reallocation makes the copy.
bool lends_memory(const Program& program, const WeightCopy& home, const WeightCopy& copy);
// Whether a train step has the role; changes() of dataflow/graph.h counts roles that follow too.
bool is_trained(const Graph& graph, const RoleId& role);

}  // namespace braid::inline program
