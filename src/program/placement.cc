#include "program/placement.h"

#include <algorithm>
#include <set>

#include "plan/validate.h"

namespace braid {
namespace {

// Model inputs are needed where tokens enter and where losses and log-probs are computed; all other
// fields only there, but for how large they are: so large is what stages send each other.
bool stage_needs(const Strategy& strategy, int stage, const Field& field) {
  return field.type == FieldType::kCount || stage == strategy.pp - 1 ||
         (stage == 0 && field.type == FieldType::kTokens);
}

Interval share_of(int64_t samples, const Strategy& strategy, int dp_rank) {
  return {samples * dp_rank / strategy.dp, samples * (dp_rank + 1) / strategy.dp};
}

// One device of each data-parallel replica, where its results are.
std::vector<DeviceId> heads(const CallPlacement& placement) {
  std::vector<DeviceId> out;
  for (int dp_rank = 0; dp_rank < placement.strategy.dp; ++dp_rank)
    out.push_back(placement.mesh.devices[mesh_index(placement.strategy,
                                                    {dp_rank, 0, placement.strategy.pp - 1})]);
  return out;
}

const WeightCopy* home_of(const Program& program, const RoleId& role) {
  for (const WeightCopy& copy : program.copies)
    if (copy.home && copy.role == role) return &copy;
  return nullptr;
}

// The call whose layout is a role's home: the first that trains it, else its first.
const Call& home_call(const Graph& graph, const RoleId& role) {
  const Call* home = nullptr;
  for (const Call& call : graph.calls) {
    if (call.role != role) continue;
    if (call.kind == CallKind::kTrainStep) return call;
    if (home == nullptr) home = &call;
  }
  BRAID_CHECK(home != nullptr, "role " + role.value + " has no call");
  return *home;
}

int32_t find_or_add_copy(const RoleId& role, const ParamLayout& layout, Program* program) {
  for (size_t i = 0; i < program->copies.size(); ++i)
    if (program->copies[i].role == role && program->copies[i].layout == layout)
      return static_cast<int32_t>(i);
  program->copies.push_back({role, layout, home_of(*program, role) == nullptr});
  return static_cast<int32_t>(program->copies.size()) - 1;
}

void place_model_calls(const ExecutionPlan& plan, Program* program) {
  for (size_t i = 0; i < program->graph.calls.size(); ++i) {
    const Call& call = program->graph.calls[i];
    if (!uses_model(call)) continue;
    const CallPlan& home = call_plan(plan, home_call(program->graph, call.role).name);
    find_or_add_copy(call.role, param_layout(home.mesh, home.strategy), program);
    const CallPlan& entry = call_plan(plan, call.name);
    const int32_t copy =
        find_or_add_copy(call.role, param_layout(entry.mesh, entry.strategy), program);
    program->calls[i] = {entry.mesh, entry.strategy, copy, 0};
  }
}

// The placed call beside which a call without a model runs: the last one whose results it reads,
// else the first that uses a model.
const CallPlacement& anchor(const Program& program, const Call& call) {
  int32_t last = -1;
  for (const std::string& field : call.reads) {
    const CallId producer = producer_of(program.graph, field);
    if (uses_model(program.graph.calls[producer.value])) last = std::max(last, producer.value);
  }
  for (size_t i = 0; last < 0 && i < program.graph.calls.size(); ++i)
    if (uses_model(program.graph.calls[i])) last = static_cast<int32_t>(i);
  BRAID_CHECK(last >= 0, "graph " + program.graph.name + " uses no model");
  return program.calls[last];
}

void place_beside(CallId id, Program* program) {
  const Call& call = program->graph.calls[id.value];
  std::vector<DeviceId> devices = heads(anchor(*program, call));
  if (call.kind != CallKind::kReward) devices.resize(1);
  Strategy strategy;
  strategy.dp = static_cast<int>(devices.size());
  program->calls[id.value] = {DeviceMesh{std::move(devices)}, strategy, -1, 0};
}

// Every reader of the data set reads it itself.
void place_fetch(CallId id, Program* program) {
  const Call& fetch = program->graph.calls[id.value];
  std::set<DeviceId> devices;
  for (size_t i = 0; i < program->graph.calls.size(); ++i)
    for (const Field& field : fetch.writes) {
      if (program->graph.calls[i].kind == CallKind::kFetch) continue;
      for (const Holding& reader :
           field_readers(*program, CallId{static_cast<int32_t>(i)}, field, id))
        devices.insert(reader.device);
    }
  if (devices.empty()) devices.insert(anchor(*program, fetch).mesh.devices[0]);
  Strategy strategy;
  strategy.tp = static_cast<int>(devices.size());  // all of them hold all samples
  program->calls[id.value] = {DeviceMesh{{devices.begin(), devices.end()}}, strategy, -1, 0};
}

}  // namespace

bool is_trained(const Graph& graph, const RoleId& role) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [&](const Call& call) {
    return call.role == role && call.kind == CallKind::kTrainStep;
  });
}

bool stays_resident(const WeightCopy& copy, const PlanningProblem& problem) {
  return copy.home || !is_trained(problem.graph, copy.role) ||
         model_of(problem, copy.role).trainable.lora;
}

CallId producer_of(const Graph& graph, const std::string& field) {
  for (size_t i = 0; i < graph.calls.size(); ++i)
    for (const Field& written : graph.calls[i].writes)
      if (written.name == field) return CallId{static_cast<int32_t>(i)};
  BRAID_CHECK(false, "nothing writes field " + field);
}

std::vector<Holding> field_holders(const Program& program, CallId producer, const Field& field) {
  const CallPlacement& placement = program.calls[producer.value];
  const int64_t samples = placement.samples;
  const bool generates = program.graph.calls[producer.value].kind == CallKind::kGenerate;
  std::vector<Holding> out;
  for (size_t i = 0; i < placement.mesh.devices.size(); ++i) {
    const GridPosition at = grid_position(placement.strategy, i);
    const bool here = at.stage == placement.strategy.pp - 1 ||
                      (generates && stage_needs(placement.strategy, at.stage, field));
    if (here)
      out.push_back({placement.mesh.devices[i], share_of(samples, placement.strategy, at.dp_rank)});
  }
  return out;
}

std::vector<Holding> field_readers(const Program& program, CallId consumer, const Field& field,
                                   CallId producer) {
  const Call& call = program.graph.calls[consumer.value];
  std::vector<Holding> out;
  if (std::find(call.reads.begin(), call.reads.end(), field.name) == call.reads.end()) return out;
  const CallPlacement& placement = program.calls[consumer.value];
  const int64_t samples = program.calls[producer.value].samples;
  for (size_t i = 0; i < placement.mesh.devices.size(); ++i) {
    const GridPosition at = grid_position(placement.strategy, i);
    if (stage_needs(placement.strategy, at.stage, field))
      out.push_back({placement.mesh.devices[i], share_of(samples, placement.strategy, at.dp_rank)});
  }
  return out;
}

void place_calls(const ExecutionPlan& plan, const PlanningProblem& problem, Program* program) {
  program->graph = problem.graph;
  program->calls.resize(problem.graph.calls.size());
  place_model_calls(plan, program);
  std::set<RoleId> roles;
  for (const Call& call : problem.graph.calls)
    if (uses_model(call) && roles.insert(call.role).second)
      program->models.push_back(model_shape(problem, call.role));
  for (const bool fetch : {false, true})
    for (size_t i = 0; i < problem.graph.calls.size(); ++i) {
      const Call& call = problem.graph.calls[i];
      const CallId id{static_cast<int32_t>(i)};
      if (uses_model(call) || (call.kind == CallKind::kFetch) != fetch) continue;
      fetch ? place_fetch(id, program) : place_beside(id, program);
    }
  for (size_t i = 0; i < problem.graph.calls.size(); ++i)
    program->calls[i].samples = call_samples(problem, problem.graph.calls[i]);
}

}  // namespace braid
