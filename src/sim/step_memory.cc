// Who holds how much memory when.
#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "pricing/memory.h"
#include "program/scored_prefixes.h"
#include "program/streamed_update.h"
#include "sim/step_simulation.h"

namespace braid::inline sim {
namespace {

// When a change of memory happens. At equal times what is given back comes first, then what was
// listed first.
struct Moment {
  static constexpr uint64_t kTakes = uint64_t{1} << 32;
  double at_s = 0;
  uint64_t rank = 0;  // kTakes or 0, and its place in the list
  bool operator<(const Moment& other) const {
    return at_s != other.at_s ? at_s < other.at_s : rank < other.rank;
  }
};

// Changes are listed call by call, those of its passes as these follow each other: in a few
// ascending runs, of which each two neighbours are merged until there is one.
void sort_runs(std::vector<Moment>* moments) {
  std::vector<size_t> begins = {0}, fewer;
  for (size_t i = 1; i < moments->size(); ++i)
    if ((*moments)[i] < (*moments)[i - 1]) begins.push_back(i);
  std::vector<Moment> merged(begins.size() > 1 ? moments->size() : 0);
  while (begins.size() > 1) {
    begins.push_back(moments->size());
    const auto at = [&](size_t run) {
      return moments->begin() + static_cast<int64_t>(begins[std::min(run, begins.size() - 1)]);
    };
    auto out = merged.begin();
    fewer.clear();
    for (size_t run = 0; run + 1 < begins.size(); run += 2) {
      fewer.push_back(begins[run]);
      out = std::merge(at(run), at(run + 1), at(run + 1), at(run + 2), out);
    }
    moments->swap(merged);
    begins.swap(fewer);
  }
}

}  // namespace

// From the begin of a call to its end.
void StepSimulation::hold(DeviceId device, const Block& block, MemoryOwner owner, double bytes) {
  change(device, {block.begin, 1, owner, block.first, bytes});
  change(device, {block.end, 1, owner, block.last, -bytes});
}

// Whether a rank computes several micro-batches with the same weights.
bool StepSimulation::has_several_passes(CallId id, SamplePart part) const {
  for (const MiniBatch& batch : prices_.partition(id, part).minibatches)
    for (const auto& micro_batches : batch.micro_batches)
      if (micro_batches.size() > 1) return true;
  return false;
}

void StepSimulation::add_call_memory(CallId id, SamplePart part) {
  const CallCost& cost = prices_.cost(id);
  const CallPlacement& where = program_.calls[id.value];
  const CallKind kind = program_.graph.calls[id.value].kind;
  const RoleId& role = program_.graph.calls[id.value].role;
  const auto tokens =
      static_cast<double>(engine_batch_tokens(problem_, options_.generate_batch_tokens));
  const bool several =
      kind == CallKind::kGenerate || (cost.packs() && has_several_passes(id, part));
  for (size_t i = 0; i < where.mesh.devices.size(); ++i) {
    const DeviceId device = where.mesh.devices[i];
    const Block& block = this->block(id, device, part);
    hold(device, block, MemoryOwner::kCopies, cost.packed_bytes(i, several));
    if (prices_.comes_for_calls(role))
      hold(device, block, MemoryOwner::kWeights, cost.weight_bytes(i));
    if (kind == CallKind::kTrainStep)
      hold_gradients(id, part, device, cost.gradient_bytes(grid_position(where.strategy, i).stage));
    if (kind == CallKind::kGenerate)
      hold(device, block, MemoryOwner::kActivations, cost.prefill_bytes(tokens));
    hold(device, block, MemoryOwner::kGathered,
         cost.gathered_bytes(grid_position(where.strategy, i).stage));
  }
  if (prices_.prefix_part(id, part) != PrefixPart::kNone) add_begun_memory(id, part);
}

// Those of an update that begins beside the generation stay from its first part to its last.
void StepSimulation::hold_gradients(CallId id, SamplePart part, DeviceId device, double bytes) {
  const Block& block = this->block(id, device, part);
  const bool first = !is_streamed(program_, id) || part == SamplePart::kEarly;
  const bool last = !ends_before_update(program_, id, part);
  if (first) change(device, {block.begin, 1, MemoryOwner::kGradients, block.first, bytes});
  if (last) change(device, {block.end, 1, MemoryOwner::kGradients, block.last, -bytes});
}

// Keys and values of beginnings stay until the rest is scored.
void StepSimulation::add_begun_memory(CallId id, SamplePart part) {
  const CallPlacement& where = program_.calls[id.value];
  for (size_t i = 0; i < where.mesh.devices.size(); ++i) {
    const DeviceId device = where.mesh.devices[i];
    const int dp_rank = grid_position(where.strategy, i).dp_rank;
    const Block& block = this->block(id, device, part);
    hold(device, block, MemoryOwner::kKvCache, prices_.cached_bytes(id, dp_rank, part));
    if (part == begun_part(program_)) continue;
    const Block& begun = this->block(id, device, begun_part(program_));
    const double bytes = prices_.begun_bytes(id, dp_rank);
    change(device, {begun.begin, 0, MemoryOwner::kKvCache, begun.first, bytes});
    change(device, {block.end, 1, MemoryOwner::kKvCache, block.last, -bytes});
  }
}

// Results stay in the sample store until the step ends: of a data-parallel rank about its share.
void StepSimulation::add_field_memory(CallId id) {
  const CallPlacement& where = program_.calls[id.value];
  const bool generates = program_.graph.calls[id.value].kind == CallKind::kGenerate;
  double bytes = 0;
  for (const Field& field : program_.graph.calls[id.value].writes)
    bytes += field_bytes(problem_.workload, field) * static_cast<double>(where.samples);
  for (size_t i = 0; i < where.mesh.devices.size(); ++i) {
    const DeviceId device = where.mesh.devices[i];
    const Block& block = this->block(id, device, parts_of_call(program_, id).back());
    if (generates || grid_position(where.strategy, i).stage == where.strategy.pp - 1)
      change(device, {block.end, 1, MemoryOwner::kFields, block.last, bytes / where.strategy.dp});
  }
}

const std::vector<int32_t>& StepSimulation::instructions_of(StageRun* run, OpKind kind) const {
  if (run->instructions.empty() || run->kind != kind) {
    run->kind = kind;
    run->instructions.clear();
    for (const DeviceId device : run->devices)
      run->instructions.push_back(find_instruction(run->ops.call, device, kind, run->part));
  }
  return run->instructions;
}

void StepSimulation::remember_pass(StageRun* run, const Op& op, const PassTasks& tasks,
                                   const MicroBatch& batch) {
  const CallCost& cost = prices_.cost(run->ops.call);
  const OpBody& body = run->ops.bodies[op.body];
  const double kept = cost.activation_bytes(batch, body.part) * std::abs(op.holds);
  const double working = cost.working_bytes(batch);
  const double logits = body.head ? cost.logit_bytes(batch) : 0;
  const std::vector<int32_t>& instructions = instructions_of(run, op.run);
  for (size_t i = 0; i < run->devices.size(); ++i) {
    const DeviceId device = run->devices[i];
    const int32_t at = instructions[i];
    change(device,
           {tasks.first, 0, MemoryOwner::kActivations, at, working + (op.holds > 0 ? kept : 0)});
    change(device, {tasks.first, 0, MemoryOwner::kLogits, at, logits});
    change(device,
           {tasks.last, 1, MemoryOwner::kActivations, at, -working - (op.holds < 0 ? kept : 0)});
    change(device, {tasks.last, 1, MemoryOwner::kLogits, at, -logits});
  }
}

// Copies, state from the host and messages of one list.
void StepSimulation::add_list_memory(DeviceId rank) {
  const auto& list = program_.ranks[rank.value].instructions;
  std::vector<bool> live = copies_at_begin(program_);
  const auto take_copy = [&](int32_t copy, TaskId task, double share, int32_t at) {
    if (copy < 0 || live[copy] || stays_resident(program_.copies[copy], problem_)) return;
    live[copy] = true;
    change(rank, {task, share, MemoryOwner::kCopies, at, prices_.copy_bytes(copy, rank)});
  };
  TaskId room = -1;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    const TaskId task = ends_[rank.value][i];
    const OpKind kind = list[i].kind;
    if (kind == OpKind::kReallocate) {
      const ReallocatedOn& here = reallocated_[list[i].detail].at(rank.value);
      const Reallocation& reallocation = program_.reallocations[list[i].detail];
      take_copy(copy_filled_on(program_, reallocation, rank), here.begin, 0, at);
      for (const auto& [message, bytes] : here.arrivals) {
        change(rank, {message, 0, MemoryOwner::kStaging, at, bytes});
        change(rank, {message, 1, MemoryOwner::kStaging, at, -bytes});
      }
    } else if (kind == OpKind::kExchange) {
      change(rank,
             {task, 0, MemoryOwner::kFields, at, prices_.exchange(list[i].detail, rank).received});
    } else if (kind == OpKind::kLoad || kind == OpKind::kOffload) {
      const RoleState& state = program_.states[list[i].detail];
      const double bytes = prices_.moved_bytes(list[i], rank);
      const bool load = kind == OpKind::kLoad;
      // Room for all layers that are loaded together is taken with the first of them.
      const bool goes_on = load && i > 0 && list[i - 1].kind == kind &&
                           list[i - 1].call == list[i].call && list[i - 1].detail == list[i].detail;
      room = goes_on ? room : task;
      change(rank, {load ? room : task, load ? 0.0 : 1.0,
                    state.optimizer ? MemoryOwner::kOptimizer : MemoryOwner::kWeights, at,
                    load ? bytes : -bytes});
    } else if (kind == OpKind::kRelease) {
      live[list[i].detail] = false;
      change(rank, {task, 1, MemoryOwner::kCopies, at, -prices_.copy_bytes(list[i].detail, rank)});
    } else if (kind != OpKind::kShare && kind != OpKind::kHandOver) {
      const Block& block = this->block(list[i].call, rank, list[i].part);
      if (block.first == at) take_copy(program_.calls[list[i].call.value].copy, block.begin, 0, at);
    }
  }
}

// Walks the changes of a device in time; the peak, and the first point above the limit.
DeviceSummary StepSimulation::device_memory(DeviceId device,
                                            std::optional<MemoryPoint>* overflow) const {
  const std::vector<MemoryChange>& changes = changes_[device.value];
  std::vector<Moment> order;
  order.reserve(changes.size());
  for (const MemoryChange& change : changes) {
    const double start = tasks_.start(change.task), end = tasks_.end(change.task);
    order.push_back({start + change.share * (end - start),
                     (change.bytes > 0 ? Moment::kTakes : 0) + order.size()});
  }
  sort_runs(&order);
  DeviceSummary summary;
  const double reserve = std::sqrt(prices_.efficiency(device).mem_reserve_factor);
  summary.limit_bytes = prices_.limit_bytes(device);
  MemoryPoint now{0, -1, prices_.base_memory(device), 0};
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
  for (const Moment& moment : order) {
    const MemoryChange& change = changes[moment.rank % Moment::kTakes];
    now.at_s = moment.at_s;
    now.instruction = change.instruction;
    now.use[change.owner] += change.bytes;
    look();
  }
  return summary;
}

void StepSimulation::resolve_memory(Trace* trace) const {
  trace->hosts.resize(problem_.cluster.nodes.size());
  for (HostSummary& host : trace->hosts) host.limit_bytes = problem_.host_memory_gib * kGib;
  for (const RoleState& state : program_.states)
    for (const DeviceId device : program_.copies[prices_.home_copy(state.role)].layout.mesh.devices)
      trace->hosts[node_of(problem_.cluster, device)].bytes += prices_.state_bytes(state, device);
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

}  // namespace braid::inline sim
