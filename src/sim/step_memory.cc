// Who holds how much memory when.
#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "cost/memory.h"
#include "sim/step_simulation.h"

namespace braid {
namespace {

std::optional<size_t> index_in(const DeviceMesh& mesh, DeviceId device) {
  const auto at = std::find(mesh.devices.begin(), mesh.devices.end(), device);
  if (at == mesh.devices.end()) return std::nullopt;
  return static_cast<size_t>(at - mesh.devices.begin());
}

GridPosition position_in(const ParamLayout& layout, size_t index) {
  return grid_position(layout_grid(layout), index);
}

// Whether one of the runs holds a layer.
bool holds(const std::vector<Interval>& runs, int64_t layer) {
  return std::any_of(runs.begin(), runs.end(),
                     [&](const Interval& run) { return run.begin <= layer && layer < run.end; });
}

// Elements of `copy` on a device that are not a part of what it holds under `home` already.
double new_elements(const std::vector<TensorKind>& kinds, int64_t layers, const ParamLayout& copy,
                    const ParamLayout& home, DeviceId device) {
  const auto index = index_in(copy.mesh, device), home_index = index_in(home.mesh, device);
  const GridPosition at = position_in(copy, *index);
  double sum = 0;
  for (const TensorKind& kind : kinds) {
    const Interval wanted = held_elements(kind, copy, at);
    std::vector<Interval> home_runs;
    if (home_index) {
      const GridPosition there = position_in(home, *home_index);
      const Interval held = held_elements(kind, home, there);
      if (held.begin <= wanted.begin && wanted.end <= held.end)
        home_runs = held_layers(kind, home, layers, there.stage);
    }
    for (const Interval& run : held_layers(kind, copy, layers, at.stage))
      for (int64_t layer = run.begin; layer < run.end; ++layer)
        if (!holds(home_runs, layer)) sum += static_cast<double>(wanted.size());
  }
  return sum;
}

}  // namespace

int32_t StepSimulation::home_copy(const RoleId& role) const {
  for (size_t i = 0; i < program_.copies.size(); ++i)
    if (program_.copies[i].home && program_.copies[i].role == role) return static_cast<int32_t>(i);
  BRAID_CHECK(false, "role " + role.value + " has no home");
}

// Of the call that trains the role, else of any call that uses its home copy.
const CallCost& StepSimulation::home_cost(const RoleId& role) const {
  const int32_t home = home_copy(role);
  const CallCost* found = nullptr;
  for (size_t i = 0; i < costs_.size(); ++i) {
    if (program_.calls[i].copy != home || !costs_[i]) continue;
    if (found == nullptr || program_.graph.calls[i].kind == CallKind::kTrainStep)
      found = &*costs_[i];
  }
  BRAID_CHECK(found != nullptr, "role " + role.value + " has no call");
  return *found;
}

// Frozen base weights that another role holds in the same layout.
bool StepSimulation::borrows_memory(const WeightCopy& copy) const {
  const std::string& other = model_of(problem_, copy.role).shares_weights_with;
  if (other.empty()) return false;
  return std::any_of(program_.copies.begin(), program_.copies.end(), [&](const WeightCopy& lender) {
    return lender.role.value == other && lender.layout == copy.layout;
  });
}

bool StepSimulation::lives_on_host(const RoleState& state) const {
  return std::find(program_.states.begin(), program_.states.end(), state) != program_.states.end();
}

double StepSimulation::state_bytes(const RoleState& state, DeviceId device) const {
  const ParamLayout& layout = program_.copies[home_copy(state.role)].layout;
  const auto index = index_in(layout.mesh, device);
  if (!index) return 0;
  const CallCost& cost = home_cost(state.role);
  return state.optimizer ? cost.optimizer_bytes(position_in(layout, *index).stage)
                         : cost.weight_bytes(*index);
}

double StepSimulation::copy_bytes(int32_t index, DeviceId device) const {
  const WeightCopy& copy = program_.copies[index];
  if (borrows_memory(copy) || !index_in(copy.layout.mesh, device)) return 0;
  const RoleModel& model = model_of(problem_, copy.role);
  if (copy.home) return state_bytes({copy.role, false}, device);
  const RoleSpec* spec = find_role(program_.graph, copy.role);
  const auto kinds = tensor_kinds(model.size, spec != nullptr && spec->scalar_head);
  const ParamLayout& home = program_.copies[home_copy(copy.role)].layout;
  return new_elements(kinds, model.size.layers, copy.layout, home, device) *
         widths_of(model.precision).weight;
}

// Whether the weights of a role are there for its calls alone.
bool StepSimulation::comes_for_calls(const RoleId& role) const {
  return problem_.maps_frozen && !is_trained(program_.graph, role);
}

// What is there before the step and stays.
void StepSimulation::add_base_memory() {
  base_.resize(program_.ranks.size());
  for (size_t rank = 0; rank < base_.size(); ++rank) {
    const DeviceId device{static_cast<int32_t>(rank)};
    base_[rank][MemoryOwner::kFixed] = efficiencies_[rank].mem_fixed_gib * kGib;
    for (size_t i = 0; i < program_.copies.size(); ++i) {
      const WeightCopy& copy = program_.copies[i];
      if (!stays_resident(copy, problem_)) continue;
      if (!(copy.home && (lives_on_host({copy.role, false}) || comes_for_calls(copy.role))))
        base_[rank][copy.home ? MemoryOwner::kWeights : MemoryOwner::kCopies] +=
            copy_bytes(static_cast<int32_t>(i), device);
      if (copy.home && is_trained(program_.graph, copy.role) && !lives_on_host({copy.role, true}))
        base_[rank][MemoryOwner::kOptimizer] += state_bytes({copy.role, true}, device);
    }
  }
}

// From the begin of a call to its end.
void StepSimulation::hold(DeviceId device, const Block& block, MemoryOwner owner, double bytes) {
  change(device, {block.begin, 1, owner, block.first, bytes});
  change(device, {block.end, 1, owner, block.last, -bytes});
}

// Whether a rank computes several micro-batches with the same weights.
bool StepSimulation::has_several_passes(CallId id) const {
  for (const MiniBatch& batch : call_deal(id).minibatches)
    for (const auto& micro_batches : batch.micro_batches)
      if (micro_batches.size() > 1) return true;
  return false;
}

void StepSimulation::add_call_memory(CallId id) {
  const CallCost& cost = *costs_[id.value];
  const CallPlacement& where = program_.calls[id.value];
  const CallKind kind = program_.graph.calls[id.value].kind;
  const RoleId& role = program_.graph.calls[id.value].role;
  const auto tokens =
      static_cast<double>(engine_batch_tokens(problem_, options_.generate_batch_tokens));
  const bool several = kind == CallKind::kGenerate || (cost.packs() && has_several_passes(id));
  for (size_t i = 0; i < where.mesh.devices.size(); ++i) {
    const DeviceId device = where.mesh.devices[i];
    const Block& block = this->block(id, device);
    hold(device, block, MemoryOwner::kCopies, cost.packed_bytes(i, several));
    if (comes_for_calls(role)) hold(device, block, MemoryOwner::kWeights, cost.weight_bytes(i));
    if (kind == CallKind::kTrainStep)
      hold(device, block, MemoryOwner::kGradients,
           cost.gradient_bytes(grid_position(where.strategy, i).stage));
    if (kind == CallKind::kGenerate)
      hold(device, block, MemoryOwner::kActivations, cost.prefill_bytes(tokens));
    hold(device, block, MemoryOwner::kGathered,
         cost.gathered_bytes(grid_position(where.strategy, i).stage));
  }
}

// Results stay in the sample store until the step ends.
void StepSimulation::add_field_memory(CallId id) {
  for (const Field& field : program_.graph.calls[id.value].writes) {
    const double bytes = field_bytes(problem_.workload, field);
    for (const Holding& holding : field_holders(program_, id, field)) {
      const Block& block = this->block(id, holding.device);
      change(holding.device, {block.end, 1, MemoryOwner::kFields, block.last,
                              bytes * static_cast<double>(holding.units.size())});
    }
  }
}

void StepSimulation::remember_pass(const StageRun& run, const Op& op, TaskId task,
                                   const MicroBatch& batch) {
  const CallId id = run.ops.call;
  const CallCost& cost = *costs_[id.value];
  const OpBody& body = run.ops.bodies[op.body];
  const double kept = cost.activation_bytes(batch, body.part) * std::abs(op.holds);
  const double working = cost.working_bytes(batch);
  const double logits = body.head ? cost.logit_bytes(batch) : 0;
  const OpCode code = body.trains ? OpCode::kSchedule : OpCode::kCall;
  for (const DeviceId device : stage_devices(id, run.at)) {
    const int32_t at = find_instruction(id, device, code);
    change(device, {task, 0, MemoryOwner::kActivations, at, working + (op.holds > 0 ? kept : 0)});
    change(device, {task, 0, MemoryOwner::kLogits, at, logits});
    change(device, {task, 1, MemoryOwner::kActivations, at, -working - (op.holds < 0 ? kept : 0)});
    change(device, {task, 1, MemoryOwner::kLogits, at, -logits});
  }
}

// Copies, state from the host and messages of one list.
void StepSimulation::add_list_memory(DeviceId rank) {
  const auto& list = program_.ranks[rank.value].instructions;
  std::vector<bool> live(program_.copies.size(), false);
  const auto take_copy = [&](int32_t copy, TaskId task, double share, int32_t at) {
    if (copy < 0 || live[copy] || stays_resident(program_.copies[copy], problem_)) return;
    live[copy] = true;
    change(rank, {task, share, MemoryOwner::kCopies, at, copy_bytes(copy, rank)});
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    const TaskId task = ends_[rank.value][i];
    const OpCode code = list[i].code;
    if (code == OpCode::kReceive) {
      const Message& message = program_.messages[list[i].detail];
      const bool fields = message.kind == MessageKind::kFields;
      if (!fields) take_copy(message.owner, task, 0, at);
      const double bytes = message_bytes(message);
      change(rank, {task, 0, fields ? MemoryOwner::kFields : MemoryOwner::kStaging, at, bytes});
      if (!fields) change(rank, {task, 1, MemoryOwner::kStaging, at, -bytes});
    } else if (code == OpCode::kLoad || code == OpCode::kOffload) {
      const RoleState& state = program_.states[list[i].detail];
      const double bytes = state_bytes(state, rank);
      const bool load = code == OpCode::kLoad;
      change(rank, {task, load ? 0.0 : 1.0,
                    state.optimizer ? MemoryOwner::kOptimizer : MemoryOwner::kWeights, at,
                    load ? bytes : -bytes});
    } else if (code == OpCode::kRelease) {
      live[list[i].detail] = false;
      change(rank, {task, 1, MemoryOwner::kCopies, at, -copy_bytes(list[i].detail, rank)});
    } else if (code != OpCode::kSend) {
      const Block& block = blocks_[list[i].call.value].at(rank.value);
      if (block.first == at) take_copy(program_.calls[list[i].call.value].copy, block.begin, 0, at);
    }
  }
}

// Bytes that are there when an instruction of the list begins, and what is fetched ahead of the
// next call while it runs.
double StepSimulation::held_before(DeviceId device, int32_t instruction) const {
  const auto& list = program_.ranks[device.value].instructions;
  const CallId call = list[instruction].call;
  std::vector<bool> live(program_.copies.size(), false);
  double bytes = base_[device.value].total();
  const auto take_copy = [&](int32_t copy) {
    if (copy < 0 || live[copy] || stays_resident(program_.copies[copy], problem_)) return;
    live[copy] = true;
    bytes += copy_bytes(copy, device);
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const bool before = static_cast<int32_t>(i) <= instruction;
    const Instruction& now = list[i];
    const bool computes = now.code != OpCode::kSend && now.code != OpCode::kReceive &&
                          now.code != OpCode::kLoad && now.code != OpCode::kOffload &&
                          now.code != OpCode::kRelease;
    if (!before && computes && now.call != call) break;
    const bool may_start = std::all_of(now.after.begin(), now.after.end(),
                                       [&](InstructionId id) { return id.value <= instruction; });
    if (now.code == OpCode::kLoad && (before || may_start))
      bytes += state_bytes(program_.states[now.detail], device);
    if (!before) continue;
    if (now.code == OpCode::kOffload) bytes -= state_bytes(program_.states[now.detail], device);
    if (now.code == OpCode::kReceive &&
        program_.messages[now.detail].kind == MessageKind::kParameters)
      take_copy(program_.messages[now.detail].owner);
    if (now.code == OpCode::kRelease) {
      live[now.detail] = false;
      bytes -= copy_bytes(now.detail, device);
    }
    if (computes) take_copy(program_.calls[now.call.value].copy);
  }
  return bytes;
}

double StepSimulation::limit_bytes(DeviceId device) const {
  return usable_bytes(device_memory_bytes(problem_, gpu_of(problem_.cluster, device)),
                      efficiencies_[device.value]);
}

// Tokens of a replica's cache: what the plan says, else what memory leaves on its fullest device;
// at least the longest request, so that running out of memory shows in the trace.
int64_t StepSimulation::cache_budget(CallId id, int dp_rank,
                                     const std::vector<BatchRequest>& requests) const {
  const CallCost& cost = *costs_[id.value];
  if (cost.strategy().kv_budget_tokens > 0) return cost.strategy().kv_budget_tokens;
  int64_t longest = 1;
  for (const BatchRequest& request : requests)
    longest = std::max(longest, request.prompt + request.response);
  longest = (longest / kCachePageTokens + 2) * kCachePageTokens;
  double free = HUGE_VAL;
  for (int stage = 0; stage < cost.strategy().pp; ++stage)
    for (const DeviceId device : stage_devices(id, {dp_rank, stage})) {
      const double reserve = std::sqrt(efficiencies_[device.value].mem_reserve_factor);
      const double taken = held_before(device, blocks_[id.value].at(device.value).first) +
                           cost.prefill_bytes(static_cast<double>(
                               engine_batch_tokens(problem_, options_.generate_batch_tokens)));
      free = std::min(free, limit_bytes(device) / reserve - taken);
    }
  const double tokens = kShareForCache * free / cost.cache_bytes_per_token();
  return std::max(longest, static_cast<int64_t>(std::max(tokens, 0.0)));
}

// Walks the changes of a device in time; the peak, and the first point above the limit.
DeviceSummary StepSimulation::device_memory(DeviceId device,
                                            std::optional<MemoryPoint>* overflow) const {
  std::vector<std::pair<double, const MemoryChange*>> order;
  for (const MemoryChange& change : changes_[device.value]) {
    const double start = tasks_.start(change.task), end = tasks_.end(change.task);
    order.push_back({start + change.share * (end - start), &change});
  }
  // At equal times what is given back comes first.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->bytes > 0) < std::pair(b.first, b.second->bytes > 0);
  });
  DeviceSummary summary;
  const double reserve = std::sqrt(efficiencies_[device.value].mem_reserve_factor);
  summary.limit_bytes = limit_bytes(device);
  MemoryPoint now{0, -1, base_[device.value], 0};
  const auto look = [&] {
    // A pool that the engine takes whole is not cut up by the allocator.
    const double pool = problem_.reserves_cache ? now.use[MemoryOwner::kKvCache] : 0;
    now.held_bytes = pool + (now.use.total() - pool) * reserve;
    if (now.held_bytes > summary.peak_bytes) {
      summary.peak_bytes = now.held_bytes;
      summary.peak = now;
    }
    if (now.held_bytes > summary.limit_bytes && !*overflow) *overflow = now;
    if (options_.memory_curve) summary.memory.push_back(now);
  };
  look();
  for (const auto& [at_s, change] : order) {
    now.at_s = at_s;
    now.instruction = change->instruction;
    now.use[change->owner] += change->bytes;
    look();
  }
  return summary;
}

void StepSimulation::resolve_memory(Trace* trace) const {
  trace->hosts.resize(problem_.cluster.nodes.size());
  for (HostSummary& host : trace->hosts) host.limit_bytes = problem_.host_memory_gib * kGib;
  for (const RoleState& state : program_.states)
    for (const DeviceId device : program_.copies[home_copy(state.role)].layout.mesh.devices)
      trace->hosts[node_of(problem_.cluster, device)].bytes += state_bytes(state, device);
  for (size_t rank = 0; rank < program_.ranks.size(); ++rank) {
    const DeviceId device{static_cast<int32_t>(rank)};
    std::optional<MemoryPoint> overflow;
    trace->devices.push_back(device_memory(device, &overflow));
    if (!overflow || (trace->overflow && trace->overflow->point.at_s <= overflow->at_s)) continue;
    MemoryOverflow found{device, CallId{-1}, *overflow, trace->devices.back().limit_bytes};
    if (overflow->instruction >= 0) found.call = instruction(device, overflow->instruction).call;
    trace->overflow = found;
  }
}

}  // namespace braid
