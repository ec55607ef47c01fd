#include "program/placement.h"

#include <algorithm>
#include <set>

#include "base/contains.h"
#include "plan/validate.h"
#include "program/computed_rows.h"

namespace braid::inline program {
namespace {

std::vector<DeviceId> heads(const CallPlacement& placement) {
  std::vector<DeviceId> out;
  for (int dp_rank = 0; dp_rank < placement.strategy.dp; ++dp_rank)
    out.push_back(head_of(placement, dp_rank));
  return out;
}

int32_t find_or_add_copy(const RoleId& role, const ParamLayout& layout, Program* program) {
  for (size_t i = 0; i < program->copies.size(); ++i)
    if (program->copies[i].role == role && program->copies[i].layout == layout)
      return static_cast<int32_t>(i);
  program->copies.push_back({role, layout, find_home(*program, role) < 0});
  return static_cast<int32_t>(program->copies.size()) - 1;
}

void place_model_calls(const ExecutionPlan& plan, Program* program) {
  for (size_t i = 0; i < program->graph.calls.size(); ++i) {
    const Call& call = program->graph.calls[i];
    if (!uses_model(call)) continue;
    const CallId home_id = home_call(program->graph, call.role);
    const CallPlan& home = call_plan(plan, program->graph.calls[home_id.value].name);
    find_or_add_copy(call.role, param_layout(home.mesh, home.strategy), program);
    const CallPlan& entry = call_plan(plan, call.name);
    const int32_t copy =
        find_or_add_copy(call.role, param_layout(entry.mesh, entry.strategy), program);
    program->calls[i] = {entry.mesh, entry.strategy, copy, 0};
  }
}

// The placed call beside which a call without a model runs: of a reward the generation of its
// samples, else the last one whose results it reads, else the first that uses a model.
const CallPlacement& anchor(const Program& program, CallId id) {
  const Call& call = program.graph.calls[id.value];
  int32_t last = call.kind == CallKind::kReward ? generation_of(program.graph, id).value : -1;
  if (last >= 0) return program.calls[last];
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
  std::vector<DeviceId> devices = heads(anchor(*program, id));
  if (call.kind != CallKind::kReward) devices.resize(1);
  Strategy strategy;
  strategy.dp = static_cast<int>(devices.size());
  program->calls[id.value] = {DeviceMesh{std::move(devices)}, strategy, -1, 0};
}

void place_follow(CallId id, Program* program) {
  const Graph& graph = program->graph;
  const std::vector<RoleId> roles = used_roles(graph, graph.calls[id.value]);
  const CallPlacement home = program->calls[home_call(graph, roles[1]).value];
  const int32_t copy = find_or_add_copy(roles[0], param_layout(home.mesh, home.strategy), program);
  program->calls[id.value] = {home.mesh, home.strategy, copy, 0};
}

// No data-parallel rank of these has samples of its own.
void place_on(CallId id, std::vector<DeviceId> devices, Program* program) {
  Strategy strategy;
  strategy.tp = static_cast<int>(devices.size());
  program->calls[id.value] = {DeviceMesh{std::move(devices)}, strategy, -1, 0};
}

// Every rank reads the data set itself, and decides alike which samples go on.
void place_everywhere(CallId id, int devices, Program* program) {
  std::vector<DeviceId> all;
  for (int i = 0; i < devices; ++i) all.push_back(DeviceId{i});
  place_on(id, std::move(all), program);
}

// REQUIRES: those that read what it writes are placed, and it is where nobody reads it.
void place_on_readers(CallId id, Program* program) {
  std::set<DeviceId> devices;
  for (const CallId reader : readers_of(program->graph, id)) {
    const std::vector<DeviceId>& more = program->calls[reader.value].mesh.devices;
    devices.insert(more.begin(), more.end());
  }
  if (!devices.empty()) place_on(id, {devices.begin(), devices.end()}, program);
}

}  // namespace

RunsApart apart_from_generation(const ExecutionPlan& plan, const PlanningProblem& problem) {
  return [&](const Call& call) {
    return std::none_of(
        problem.graph.calls.begin(), problem.graph.calls.end(), [&](const Call& other) {
          return other.kind == CallKind::kGenerate && uses_model(call) &&
                 overlaps(call_plan(plan, call.name).mesh, call_plan(plan, other.name).mesh);
        });
  };
}

CallId generation_of(const Graph& graph, CallId reward) {
  const std::vector<std::string>& reads = graph.calls[reward.value].reads;
  for (size_t i = 0; i < graph.calls.size(); ++i)
    for (const Field& field : graph.calls[i].writes)
      if (graph.calls[i].kind == CallKind::kGenerate && field.type == FieldType::kTokens &&
          contains(reads, field.name))
        return CallId{static_cast<int32_t>(i)};
  return CallId{-1};
}

DeviceId head_of(const CallPlacement& where, int dp_rank) {
  return where.mesh.devices[mesh_index(where.strategy, {dp_rank, 0, where.strategy.pp - 1})];
}

bool is_trained(const Graph& graph, const RoleId& role) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [&](const Call& call) {
    return call.role == role && call.kind == CallKind::kTrainStep;
  });
}

bool stays_resident(const WeightCopy& copy, const PlanningProblem& problem) {
  return copy.home || !changes(problem.graph, copy.role) ||
         model_of(problem, copy.role).trainable.lora;
}

int32_t find_home(const Program& program, const RoleId& role) {
  for (size_t i = 0; i < program.copies.size(); ++i)
    if (program.copies[i].home && program.copies[i].role == role) return static_cast<int32_t>(i);
  return -1;
}

int32_t home_copy(const Program& program, const RoleId& role) {
  const int32_t home = find_home(program, role);
  BRAID_CHECK(home >= 0, "role " + role.value + " has no home");
  return home;
}

CallId user_of(const Program& program, int32_t copy) {
  const auto found = std::find_if(program.calls.begin(), program.calls.end(),
                                  [&](const CallPlacement& call) { return call.copy == copy; });
  BRAID_CHECK(found != program.calls.end(), "a copy is there for a call");
  const CallId id{static_cast<int32_t>(found - program.calls.begin())};
  const Call& call = program.graph.calls[id.value];
  return call.kind == CallKind::kFollow ? home_call(program.graph, RoleId{call.function}) : id;
}

const ModelShape* find_shape(const Program& program, const RoleId& role) {
  for (const ModelShape& model : program.models)
    if (model.role == role) return &model;
  return nullptr;
}

bool lends_memory(const Program& program, const WeightCopy& home, const WeightCopy& copy) {
  const bool rests = contains(program.states, RoleState{home.role, false});
  return !home.layout.sharded && !copy.layout.sharded && !rests;
}

CallId home_call(const Graph& graph, const RoleId& role) {
  CallId home{-1};
  for (size_t i = 0; i < graph.calls.size(); ++i) {
    if (graph.calls[i].role != role) continue;
    const CallId id{static_cast<int32_t>(i)};
    if (graph.calls[i].kind == CallKind::kTrainStep) return id;
    if (home.value < 0) home = id;
  }
  BRAID_CHECK(home.value >= 0, "role " + role.value + " has no call");
  return home;
}

std::vector<CallId> readers_of(const Graph& graph, CallId call) {
  std::vector<CallId> out;
  for (size_t i = 0; i < graph.calls.size(); ++i) {
    const std::vector<Field>& writes = graph.calls[call.value].writes;
    if (std::any_of(writes.begin(), writes.end(),
                    [&](const Field& field) { return contains(graph.calls[i].reads, field.name); }))
      out.push_back(CallId{static_cast<int32_t>(i)});
  }
  return out;
}

CallId producer_of(const Graph& graph, const std::string& field) {
  for (size_t i = 0; i < graph.calls.size(); ++i)
    for (const Field& written : graph.calls[i].writes)
      if (written.name == field) return CallId{static_cast<int32_t>(i)};
  BRAID_CHECK(false, "nothing writes field " + field);
}

void place_calls(const ExecutionPlan& plan, const PlanningProblem& problem, Program* program) {
  program->graph = problem.graph;
  program->rewards_together = problem.rewards_together;
  program->calls.resize(problem.graph.calls.size());
  place_model_calls(plan, program);
  std::set<RoleId> roles;
  for (const Call& call : problem.graph.calls)
    if (uses_model(call) && roles.insert(call.role).second)
      program->models.push_back(model_shape(problem, call.role));
  for (size_t i = 0; i < problem.graph.calls.size(); ++i) {
    const Call& call = problem.graph.calls[i];
    const CallId id{static_cast<int32_t>(i)};
    if (uses_model(call)) continue;
    if (call.kind == CallKind::kFollow)
      place_follow(id, program);
    else if (call.kind == CallKind::kFetch || call.kind == CallKind::kSelect)
      place_everywhere(id, plan.devices, program);
    else
      place_beside(id, program);
  }
  for (size_t i = problem.graph.calls.size(); i-- > 0;)
    if (computed_by_readers(problem.graph, problem.graph.calls[i]))
      place_on_readers(CallId{static_cast<int32_t>(i)}, program);
  for (size_t i = 0; i < problem.graph.calls.size(); ++i)
    program->calls[i].samples = call_samples(problem, problem.graph.calls[i]);
}

}  // namespace braid::inline program
