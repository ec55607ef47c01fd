#include "sim/step_simulation.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "pricing/rl_engine.h"

namespace braid::inline sim {
StepSimulation::StepSimulation(const Program& program, const PlanningProblem& problem,
                               const Calibration& calibration, const SimOptions& options,
                               SampleLengths lengths)
    : program_(program),
      problem_(problem),
      options_(options),
      prices_(program, problem, calibration, options, std::move(lengths)),
      tasks_(device_count(problem.cluster) * kTrackKinds) {}

Status StepSimulation::prepare() {
  const size_t calls = program_.graph.calls.size(), ranks = program_.ranks.size();
  BRAID_TRY(prices_.prepare());
  ends_.resize(ranks);
  for (size_t rank = 0; rank < ranks; ++rank)
    ends_[rank].assign(program_.ranks[rank].instructions.size(), -1);
  size_t parts = 1;
  for (size_t i = 0; i < calls; ++i)
    parts = std::max(parts, parts_of_call(program_, CallId{static_cast<int32_t>(i)}).size());
  blocks_.resize(parts * calls);
  busy_.assign(ranks, 0);
  call_busy_.assign(calls, 0);
  rounds_.assign(calls, 0);
  changes_.resize(ranks);
  add_blocks();
  for (size_t i = 0; i < calls; ++i) expand_call(CallId{static_cast<int32_t>(i)});
  add_edges();
  for (size_t rank = 0; rank < ranks; ++rank) add_list_memory(DeviceId{static_cast<int32_t>(rank)});
  return ok_status();
}

const Instruction& StepSimulation::instruction(DeviceId rank, int32_t index) const {
  return program_.ranks[rank.value].instructions[index];
}

StepSimulation::Block& StepSimulation::block(CallId call, DeviceId device, SamplePart part) {
  return blocks_[slot(call, part)].at(device.value);
}
const StepSimulation::Block& StepSimulation::block(CallId call, DeviceId device,
                                                   SamplePart part) const {
  return blocks_[slot(call, part)].at(device.value);
}

// Creates the tasks of every list entry; a call is a pair of gates.
void StepSimulation::add_blocks() {
  add_reallocations();
  add_exchanges();
  for (size_t r = 0; r < program_.ranks.size(); ++r) {
    const DeviceId rank{static_cast<int32_t>(r)};
    const auto& list = program_.ranks[r].instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      if (list[i].kind == OpKind::kReallocate) {
        ends_[r][i] = reallocated_[list[i].detail].at(rank.value).end;
      } else if (moves_fields(list[i].kind)) {
        add_exchange(rank, index);
      } else if (moves_state(list[i].kind)) {
        add_state_move(rank, index);
      } else if (list[i].kind == OpKind::kHandOver) {
        add_hand_over(rank, index);
      } else if (list[i].kind == OpKind::kRelease) {
        ends_[r][i] = tasks_.add(0);
      } else {
        Block& block = blocks_[slot(list[i].call, list[i].part)][rank.value];
        if (block.first < 0) {
          block = {index, index, tasks_.add(0), tasks_.add(0)};
          tasks_.wait(block.end, block.begin);
        }
        block.last = index;
        ends_[r][i] = block.end;
      }
      if (stands_between_calls(list[i].kind)) ++instructions_;
    }
  }
}

bool StepSimulation::fused_with_previous(CallId id) const {
  return place_in_pair(program_, id).second();
}

// When all ranks know what the first fetch has read, which carries the step's time on the host; -1
// for none.
TaskId StepSimulation::first_fetch() const {
  const int32_t share = share_of_fetch(program_);
  return share < 0 ? -1 : gates_[share].begin()->second;
}

// Waits that the lists state, and the order in which a rank computes. What moves at the begin of a
// step waits for its time on the host: nobody has measured that the two overlap.
void StepSimulation::add_edges() {
  const TaskId fetched = first_fetch();
  for (size_t r = 0; r < program_.ranks.size(); ++r) {
    const auto& list = program_.ranks[r].instructions;
    TaskId computed = -1, before_that = -1;
    for (size_t i = 0; i < list.size(); ++i) {
      TaskId task = ends_[r][i];
      if (!stands_between_calls(list[i].kind)) {
        const Block& block =
            this->block(list[i].call, DeviceId{static_cast<int32_t>(r)}, list[i].part);
        if (block.first != static_cast<int32_t>(i)) continue;
        task = block.begin;
        if (fused_with_previous(list[i].call)) {
          tasks_.wait(task, before_that);
          tasks_.wait(block.end, computed);
        } else {
          tasks_.wait(task, computed);
          before_that = computed;
        }
        computed = block.end;
      } else if (list[i].kind == OpKind::kHandOver) {
        task = handed_[hand_over_of(list[i].part)].come[r];
        tasks_.wait(task, computed);
      } else if (moves_fields(list[i].kind)) {
        const Exchange& moved = program_.exchanges[list[i].detail];
        task = gates_[list[i].detail].at(static_cast<int32_t>(r));
        tasks_.wait(task, computed);
        // Before it there are no samples: nobody goes on.
        if (program_.graph.calls[moved.producer.value].kind == CallKind::kFetch) computed = task;
      } else if (list[i].kind == OpKind::kReallocate) {
        const ReallocatedOn& here = reallocated_[list[i].detail].at(static_cast<int32_t>(r));
        task = here.come;
        if (prices_.moves_slices(list[i].detail)) {  // in the rank's own time
          tasks_.wait(task, computed);
          computed = before_that = here.end;
        } else {
          tasks_.wait(task, fetched);
        }
      } else {
        tasks_.wait(task, fetched);
      }
      for (const InstructionId before : list[i].after) tasks_.wait(task, ends_[r][before.value]);
    }
  }
}

// Replicas reduce and gather among the devices of equal (tp, stage).
std::vector<int32_t> StepSimulation::replica_ports(CallId call, int stage) const {
  const Strategy& s = program_.calls[call.value].strategy;
  std::vector<int32_t> ports;
  for (int tp = 0; tp < s.tp; ++tp) {
    std::vector<DeviceId> group;
    for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank) {
      const auto devices = stage_devices(call, {dp_rank, stage});
      for (size_t i = tp; i < devices.size(); i += s.tp) group.push_back(devices[i]);
    }
    const std::vector<int32_t> of_group = group_ports(problem_.cluster, group);
    ports.insert(ports.end(), of_group.begin(), of_group.end());
  }
  return ports;
}

std::vector<DeviceId> StepSimulation::stage_devices(CallId call, StagePoint at) const {
  const CallPlacement& where = program_.calls[call.value];
  std::vector<DeviceId> out;
  for (int cp = 0; cp < where.strategy.cp; ++cp)
    for (int tp = 0; tp < where.strategy.tp; ++tp)
      out.push_back(where.mesh.devices[mesh_index(where.strategy, {at.dp_rank, tp, at.stage, cp})]);
  return out;
}

void StepSimulation::remember_op(const OpEvent& op, const std::vector<DeviceId>& devices,
                                 double busy_s) {
  for (const DeviceId device : devices) busy_[device.value] += busy_s;
  call_busy_[op.call.value] += busy_s * static_cast<double>(devices.size());
  instructions_ += static_cast<int64_t>(devices.size());
  if (options_.events) ops_.push_back(op);
}

int32_t StepSimulation::instruction_of(CallId call, DeviceId device, OpKind kind,
                                       SamplePart part) const {
  const Block& block = this->block(call, device, part);
  // Passes that are fused have one instruction, which may stand behind the begin of either.
  const auto of_call = [&](const Instruction& i) {
    if (i.kind != OpKind::kPasses || i.detail < 0) return i.call == call;
    const auto& calls = program_.fused[i.detail].calls;
    return calls[0] == call || calls[1] == call;
  };
  for (int32_t i = block.first; i <= block.last; ++i)
    if (instruction(device, i).kind == kind && of_call(instruction(device, i))) return i;
  return -1;
}

int32_t StepSimulation::find_instruction(CallId call, DeviceId device, OpKind kind,
                                         SamplePart part) const {
  const int32_t found = instruction_of(call, device, kind, part);
  return found < 0 ? block(call, device, part).first : found;
}

Trace StepSimulation::run() {
  tasks_.run();
  return make_trace();
}

void StepSimulation::summarise_calls(Trace* trace) const {
  const size_t calls = program_.graph.calls.size();
  for (size_t i = 0; i < calls; ++i) {
    CallSummary call;
    call.call = CallId{static_cast<int32_t>(i)};
    call.rounds = rounds_[i];
    bool first = true;
    for (size_t slot = i; slot < blocks_.size(); slot += calls)  // of a part of it each
      for (const auto& [device, block] : blocks_[slot]) {
        const double start = tasks_.start(block.begin), end = tasks_.end(block.end);
        call.start_s = first ? start : std::min(call.start_s, start);
        call.end_s = std::max(call.end_s, end);
        auto& span = call.spans.try_emplace(DeviceId{device}, start, end).first->second;
        span.second = end;
        first = false;
      }
    if (!blocks_[i].empty()) call.busy_s = call_busy_[i] / static_cast<double>(blocks_[i].size());
    trace->calls.push_back(call);
  }
}

void StepSimulation::add_events(Trace* trace) const {
  for (const OpEvent& op : ops_)
    for (const DeviceId device : stage_devices(op.call, {op.dp_rank, op.stage})) {
      TraceEvent event;
      event.kind = op.kind, event.device = device, event.call = op.call;
      event.start_s = tasks_.start(op.tasks.first), event.end_s = tasks_.end(op.tasks.last);
      event.instruction = find_instruction(op.call, device, op.run, op.part);
      event.micro_batch = op.micro_batch;
      trace->events.push_back(event);
    }
  for (const MessageEvent& message : message_events_) {
    if (tasks_.end(message.task) == tasks_.start(message.task)) continue;
    const bool own = keeps_own_links_busy(message);
    const bool host = message.from == message.to && !own;
    const bool network = message.link == LinkKind::kNetwork;
    TraceEvent event;
    event.kind = message.kind, event.call = message.call, event.bytes = message.bytes;
    event.start_s = tasks_.start(message.task), event.end_s = tasks_.end(message.task);
    event.device = message.from, event.peer = message.to;
    event.instruction = message.instruction;
    event.track = message.kind == EventKind::kCall ? TrackKind::kHost
                  : host                           ? TrackKind::kHostLink
                         : (network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut);
    trace->events.push_back(event);
    if (host || own) continue;
    std::swap(event.device, event.peer);
    event.track = network ? TrackKind::kNetworkIn : TrackKind::kNvlinkIn;
    trace->events.push_back(event);
  }
  std::sort(
      trace->events.begin(), trace->events.end(), [](const TraceEvent& a, const TraceEvent& b) {
        return std::tuple(a.start_s, a.device, a.track, a.end_s, a.call, a.micro_batch, a.peer) <
               std::tuple(b.start_s, b.device, b.track, b.end_s, b.call, b.micro_batch, b.peer);
      });
}

Trace StepSimulation::make_trace() {
  Trace trace;
  for (const Call& call : program_.graph.calls) trace.call_names.push_back(call.name);
  trace.step_s = tasks_.makespan();
  trace.instructions = instructions_;
  summarise_calls(&trace);
  resolve_memory(&trace);
  std::vector<std::array<double, kTrackKinds>> links(program_.ranks.size());
  for (const MessageEvent& message : message_events_) {
    if (message.kind == EventKind::kCall) continue;  // moves nothing
    const double seconds = tasks_.end(message.task) - tasks_.start(message.task);
    const bool network = message.link == LinkKind::kNetwork;
    if (message.from == message.to && !keeps_own_links_busy(message)) {
      links[message.from.value][static_cast<size_t>(TrackKind::kHostLink)] += seconds;
      continue;
    }
    links[message.from.value]
         [static_cast<size_t>(network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut)] += seconds;
    if (message.from == message.to) continue;
    links[message.to.value]
         [static_cast<size_t>(network ? TrackKind::kNetworkIn : TrackKind::kNvlinkIn)] += seconds;
  }
  for (size_t i = 0; i < trace.devices.size(); ++i) {
    trace.devices[i].busy_s = busy_[i];
    trace.devices[i].transfer_s = *std::max_element(links[i].begin(), links[i].end());
  }
  if (options_.events) add_events(&trace);
  return trace;
}

}  // namespace braid::inline sim
