// What happens between the gates of a call.
#include <algorithm>
#include <utility>

#include "batching/cache_pages.h"
#include "sim/step_simulation.h"
#include "sim/work_cuts.h"

namespace braid::inline sim {
namespace {

// Points of a memory curve inside a generation.
constexpr int64_t kCachePoints = 48;

}  // namespace

void StepSimulation::enter(CallId id, StagePoint at, TaskId task, SamplePart part) {
  for (const DeviceId device : stage_devices(id, at))
    tasks_.wait(task, block(id, device, part).begin);
}

void StepSimulation::leave(CallId id, StagePoint at, TaskId task, SamplePart part) {
  for (const DeviceId device : stage_devices(id, at))
    tasks_.wait(block(id, device, part).end, task);
}

void StepSimulation::expand_call(CallId id) {
  const Call& call = program_.graph.calls[id.value];
  rounds_[id.value] = 1;
  add_field_memory(id);
  for (const SamplePart part : parts_of_call(program_, id))
    uses_model(call) ? expand_part(id, part) : expand_host(id, part);
}

void StepSimulation::expand_part(CallId id, SamplePart part) {
  add_call_memory(id, part);
  if (program_.graph.calls[id.value].kind == CallKind::kGenerate) return expand_generate(id, part);
  const PlaceInPair place = place_in_pair(program_, id);
  if (place.entry < 0) return expand_passes(id, part);
  if (place.second()) expand_fused(program_.fused[place.entry]);
}

// A call without a model. Slices of a role that is followed are gathered first.
void StepSimulation::expand_host(CallId id, SamplePart part) {
  std::vector<GatherStop> stops;
  for (auto& [device, block] : blocks_[slot(id, part)]) {
    const double seconds = prices_.host_call_s(id, DeviceId{device});
    const TaskId task = tasks_.add(seconds);
    tasks_.wait(task, block.begin);
    tasks_.wait(block.end, task);
    stops.push_back({DeviceId{device}, block.first, block.begin, task});
    ++instructions_;
    if (options_.events && seconds > 0) {
      MessageEvent event;
      event.task = task, event.kind = EventKind::kCall, event.call = id;
      event.from = event.to = DeviceId{device};
      event.instruction = block.first;
      message_events_.push_back(event);
    }
  }
  if (program_.graph.calls[id.value].kind != CallKind::kFollow) return;
  const int32_t copy = program_.calls[id.value].copy;
  add_gathers(program_.copies[copy].layout, stops,
              [&](DeviceId rank) { return prices_.gathered(copy, rank); });
}

StepSimulation::CallRuns StepSimulation::start_runs(CallId id, SamplePart part) {
  CallRuns out{id, prices_.partition(id, part), prices_.samples(id, part), {}, {}, part};
  const Strategy& s = program_.calls[id.value].strategy;
  for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank)
    for (int stage = 0; stage < s.pp; ++stage)
      out.stages.emplace_back(StageRun{{dp_rank, stage}, {}, {}, 0, 0, -1, 0}).part = part;
  for (StageRun& run : out.stages) run.devices = stage_devices(id, run.at);
  return out;
}

// The ops of an optimizer step and what its micro-batches take; false: the call has none.
bool StepSimulation::take_minibatch(CallRuns* call, size_t step) const {
  call->works.clear();
  for (StageRun& run : call->stages) {
    run.begin = run.next = run.end;
    while (run.end < run.ops.ops.size() &&
           run.ops.ops[run.end].minibatch == static_cast<int32_t>(step))
      ++run.end;
  }
  if (step >= call->partition.minibatches.size()) return false;
  for (const auto& batches : call->partition.minibatches[step].micro_batches) {
    Works works;
    for (const SampleRows& rows : batches) {
      const MicroBatch batch = prices_.micro_batch(call->id, rows, call->samples, call->part);
      works.push_back({batch, prices_.cost(call->id).pass_prices(batch)});
    }
    call->works.push_back(std::move(works));
  }
  return true;
}

std::vector<StepSimulation::StageRun*> StepSimulation::replica_of(CallRuns* call,
                                                                  int dp_rank) const {
  std::vector<StageRun*> out;
  for (StageRun& run : call->stages)
    if (run.at.dp_rank == dp_rank) out.push_back(&run);
  return out;
}

void StepSimulation::end_runs(const CallRuns& call) {
  const Partition& all = prices_.partition(call.id);
  rounds_[call.id.value] = std::max<int64_t>(1, std::ssize(all.minibatches));
  for (const StageRun& run : call.stages)
    if (run.last >= 0) leave(call.id, run.at, run.last, call.part);
}

// What the call's ranks do, one optimizer step after the other, so that of what waits for a link
// since the same moment the earlier step goes first.
void StepSimulation::expand_passes(CallId id, SamplePart part) {
  CallRuns call = start_runs(id, part);
  const CallFrame frame = call_frame(program_, id, part);
  for (StageRun& run : call.stages) {
    run.ops = expand(frame, run.devices[0], call.partition);
    if (options_.change_ops) options_.change_ops(&run.ops);
    run.tasks.assign(run.ops.ops.size(), -1);
  }
  const int pp = program_.calls[id.value].strategy.pp;
  for (size_t step = 0; take_minibatch(&call, step); ++step) {
    for (size_t dp_rank = 0; dp_rank < call.works.size(); ++dp_rank) {
      StageRun* const first = &call.stages[dp_rank * pp];
      std::vector<StageRun*> replica;
      if (call.stages[0].ops.bodies[0].trains && !executes(*first, OpKind::kPasses)) continue;
      for (int stage = 0; stage < pp; ++stage) {
        add_passes(first + stage, call.works[dp_rank]);
        replica.push_back(first + stage);
      }
      add_stage_messages(std::move(replica));
    }
    finish_minibatch(&call.stages, {OpKind::kCall, OpKind::kPasses, OpKind::kReduce, OpKind::kAgree,
                                    OpKind::kUpdate, OpKind::kAllGather});
  }
  end_runs(call);
}

// The ops of both calls as their ranks list them.
void StepSimulation::start_fused(const FusedCalls& fused, std::vector<CallRuns>* calls) {
  for (const CallId id : fused.calls) calls->push_back(start_runs(id, SamplePart::kAll));
  std::map<DeviceId, std::vector<std::pair<int, StageRun*>>> on_device;
  for (int c = 0; c < 2; ++c)
    for (StageRun& run : (*calls)[c].stages) {
      run.ops = expand(program_, fused.calls[c], run.devices[0], (*calls)[c].partition);
      if (options_.change_ops) options_.change_ops(&run.ops);
      run.tasks.assign(run.ops.ops.size(), -1);
      for (const DeviceId device : run.devices) on_device[device].push_back({c, &run});
    }
  for (auto& [device, runs] : on_device)
    for (const auto& [c, run] : runs)
      for (const auto& [other_c, other] : runs)
        if (c != other_c &&
            std::find(run->beside.begin(), run->beside.end(), other) == run->beside.end())
          run->beside.push_back(other);
}

// The passes of both calls in the order of each node, then kind by kind what each makes of its
// gradients.
void StepSimulation::expand_fused(const FusedCalls& fused) {
  std::vector<CallRuns> calls;
  start_fused(fused, &calls);
  const size_t steps =
      std::max(calls[0].partition.minibatches.size(), calls[1].partition.minibatches.size());
  for (size_t step = 0; step < steps; ++step) {
    for (CallRuns& call : calls) take_minibatch(&call, step);
    for (size_t node = 0; node < fused.order.size(); ++node)
      for (const PipelineOp& pass : fused.order[node])
        for (int c = 0; c < 2; ++c)
          for (StageRun& run : calls[c].stages)
            if (fused.nodes[run.ops.rank.value] == static_cast<int32_t>(node) &&
                fused.pipelines[c][run.at.dp_rank] == pass.pipeline &&
                executes(run, OpKind::kPasses))
              add_fused_pass(pass, &calls[c], &run);
    for (CallRuns& call : calls)
      for (size_t dp_rank = 0; dp_rank < call.works.size(); ++dp_rank)
        add_stage_messages(replica_of(&call, static_cast<int>(dp_rank)));
    for (const std::set<OpKind>& instructions :
         {std::set{OpKind::kPasses}, std::set{OpKind::kReduce}, std::set{OpKind::kAgree},
          std::set{OpKind::kUpdate, OpKind::kAllGather}})
      for (CallRuns& call : calls) finish_minibatch(&call.stages, instructions);
  }
  for (const CallRuns& call : calls) end_runs(call);
}

// The run's next pass, if it is this one.
void StepSimulation::add_fused_pass(const PipelineOp& pass, CallRuns* call, StageRun* run) {
  for (; run->next < run->end; ++run->next) {
    const Op& op = run->ops.ops[run->next];
    if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward) continue;
    const bool forward = pass.kind == PassKind::kForward;
    if (run->ops.bodies[op.body].part != pass.stage || op.micro_batch != pass.micro_batch ||
        forward != (op.kind == OpKind::kForward))
      return;
    add_pass(run, run->next++, call->works[run->at.dp_rank][op.micro_batch]);
    return;
  }
}

StepSimulation::OpEvent StepSimulation::event_of(const StageRun& run, const Op& op,
                                                 const PassTasks& tasks, EventKind kind) {
  const bool passes = op.kind == OpKind::kForward || op.kind == OpKind::kBackward;
  return {tasks,  kind,    run.ops.call, run.at.dp_rank, run.at.stage, passes ? op.micro_batch : -1,
          op.run, run.part};
}

void StepSimulation::add_passes(StageRun* run, const Works& works) {
  for (size_t i = run->begin; i < run->end; ++i) {
    const Op& op = run->ops.ops[i];
    if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward)
      add_pass(run, i, works[op.micro_batch]);
  }
}

void StepSimulation::add_pass(StageRun* run, size_t index, const Work& work) {
  const CallId id = run->ops.call;
  const Op& op = run->ops.ops[index];
  const double seconds = prices_.cost(id).op_s(run->ops, op, work.prices);
  const PassTasks tasks = add_pass_tasks(run, op, seconds);
  run->last = run->tasks[index] = tasks.last;
  const bool forward = op.kind == OpKind::kForward;
  if (!forward && op.minibatch == 0) run->window_s = seconds;
  remember_op(event_of(*run, op, tasks, forward ? EventKind::kForward : EventKind::kBackward),
              run->devices, seconds);
  remember_pass(run, op, tasks, work.batch);
}

// Shares of a pass of the body before what its devices' loads bring, each with the load's task.
std::vector<std::pair<double, TaskId>> StepSimulation::layer_waits(const StageRun& run,
                                                                   const OpBody& body) const {
  std::vector<std::pair<double, TaskId>> out;
  for (const DeviceId device : run.devices) {
    const int32_t first = block(run.ops.call, device, run.part).first;
    for (const auto& wait : prices_.layer_waits(instruction(device, first), device, body))
      out.emplace_back(wait.share, ends_[device.value][wait.load.value]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The first forward of a body waits for layers that are on their way where it comes to them.
StepSimulation::PassTasks StepSimulation::add_pass_tasks(StageRun* run, const Op& op,
                                                         double seconds) {
  std::vector<std::pair<double, TaskId>> waits;
  run->begun.resize(run->ops.bodies.size());
  if (op.kind == OpKind::kForward && !run->begun[op.body]) {
    run->begun[op.body] = true;
    waits = layer_waits(*run, run->ops.bodies[op.body]);
  }
  const auto share_at = [&](size_t i) { return i < waits.size() ? waits[i].first : 1.0; };
  PassTasks out;
  out.first = out.last = tasks_.add(seconds * share_at(0));
  wait_for_devices(*run, out.first);
  for (size_t i = 0; i < waits.size(); ++i) {
    const TaskId next = tasks_.add(seconds * (share_at(i + 1) - share_at(i)));
    tasks_.wait(next, out.last);
    tasks_.wait(next, waits[i].second);
    out.last = next;
  }
  return out;
}

void StepSimulation::wait_for_optimizer(const StageRun& run, TaskId update) {
  for (const DeviceId device : run.devices) {
    const int32_t first = block(run.ops.call, device, run.part).first;
    for (const InstructionId load : prices_.update_waits(instruction(device, first), device))
      tasks_.wait(update, ends_[device.value][load.value]);
  }
}

// What computes waits for what its devices computed before.
void StepSimulation::wait_for_devices(const StageRun& run, TaskId task) {
  run.last < 0 ? enter(run.ops.call, run.at, task, run.part) : tasks_.wait(task, run.last);
  for (const StageRun* other : run.beside)
    if (other->last >= 0) tasks_.wait(task, other->last);
}

// Each tensor-parallel rank sends its part at the same time, so the first stands for all.
void StepSimulation::add_stage_messages(std::vector<StageRun*> replica) {
  if (replica.size() == 1) return;
  std::map<std::tuple<Channel, int32_t, int32_t>, std::pair<StageRun*, size_t>> sends;
  for (StageRun* run : replica)
    for (size_t i = run->begin; i < run->end; ++i) {
      const Op& op = run->ops.ops[i];
      if (op.kind == OpKind::kSend) sends[{op.channel, op.cut, op.micro_batch}] = {run, i};
    }
  for (StageRun* run : replica)
    for (size_t i = run->begin; i < run->end; ++i) {
      const Op& op = run->ops.ops[i];
      if (op.kind == OpKind::kReceive) {
        const auto [from, sent] = sends.at({op.channel, op.cut, op.micro_batch});
        MessageEvent event;
        event.call = run->ops.call;
        run->tasks[i] = link_task(from->ops.rank, run->ops.rank, from->ops.ops[sent].bytes, event);
        const int32_t after = from->ops.ops[sent].after[0];
        if (after >= 0) tasks_.wait(run->tasks[i], from->tasks[after]);
      } else if (run->tasks[i] >= 0 && op.after[0] >= 0) {
        tasks_.wait(run->tasks[i], run->tasks[op.after[0]]);
      }
    }
}

// One task for all ranks of a group; it waits for what each of them did before.
TaskId StepSimulation::add_joint(StageRun* run, const Op& op, double seconds, Joints* joints) {
  const GroupKind over = run->ops.groups[op.group].kind;
  const bool by_replica = over == GroupKind::kTensor || over == GroupKind::kShared ||
                          over == GroupKind::kEnds || over == GroupKind::kReplica;
  const bool by_stage =
      over == GroupKind::kTensor || over == GroupKind::kShared || among_copies(over);
  const bool on_links = among_copies(over) && seconds > 0;
  const auto [found, fresh] = joints->try_emplace(
      {op.kind, over, by_replica ? run->at.dp_rank : -1, by_stage ? run->at.stage : -1}, -1);
  if (fresh)
    found->second = on_links ? tasks_.add(seconds, replica_ports(run->ops.call, run->at.stage))
                             : tasks_.add(seconds);
  wait_for_devices(*run, found->second);
  return found->second;
}

// Of reductions, agreement of all ranks, update and way back of updated weights what these
// instructions execute.
void StepSimulation::finish_minibatch(std::vector<StageRun>* runs,
                                      const std::set<OpKind>& instructions) {
  Joints joints;
  for (size_t i = 0; i < runs->size(); ++i) {
    StageRun& run = (*runs)[i];
    const CallId id = run.ops.call;
    double window_s = (*runs)[run.at.stage].window_s;  // of the first data-parallel rank
    for (size_t at = run.begin; at < run.end; ++at) {
      const Op& op = run.ops.ops[at];
      if (instructions.count(op.run) == 0 || !executes(run, op.run)) continue;
      if (op.kind == OpKind::kUpdate) {
        const double update_s = prices_.update_s(run.ops, op);
        const TaskId update = tasks_.add(update_s);
        wait_for_devices(run, update);
        if (!std::exchange(run.updated, true)) wait_for_optimizer(run, update);
        run.last = run.tasks[at] = update;
        remember_op(event_of(run, op, {update, update}, EventKind::kOptimizer), run.devices,
                    update_s);
        const Strategy& s = prices_.cost(id).strategy();
        instructions_ += 2 * s.cp * s.tp;  // agreement, end of the body
      } else if (op.group >= 0) {
        const double seconds = prices_.cost(id).op_s(run.ops, op, {}, &window_s);
        run.last = run.tasks[at] = add_joint(&run, op, seconds, &joints);
        if (op.kind == OpKind::kAllGather || op.kind == OpKind::kAllReduce ||
            op.kind == OpKind::kReduceScatter)
          remember_op(event_of(run, op, {run.last, run.last}, EventKind::kReduce), run.devices, 0);
      }
    }
  }
}

// Replicas with equal work and caches take the same rounds, so those are run once.
void StepSimulation::expand_generate(CallId id, SamplePart part) {
  const CallPlacement& call = program_.calls[id.value];
  const bool first = part == SamplePart::kAll || part == SamplePart::kEarly;
  if (first) rounds_[id.value] = 0, replica_rounds_.assign(call.strategy.dp, 0);
  ReplicaRounds run;
  const bool copies = part == SamplePart::kEarly && !prices_.copies().empty();
  std::vector<TaskId> sending;  // [replica]: until it sends copies of caches
  for (int dp_rank = 0; dp_rank < call.strategy.dp; ++dp_rank) {
    ReplicaRequests work = prices_.replica_requests(id, dp_rank, part);
    const bool same = dp_rank > 0 && part == SamplePart::kAll && work.most_rounds < 0 &&
                      work.budget_tokens == run.budget_tokens && same_work(work.requests, run.work);
    if (!same) run = run_rounds(id, std::move(work));
    expand_replica(id, dp_rank, run, part);
    if (!copies) continue;
    sending.push_back(tasks_.add(run.copied_s));
    for (int stage = 0; stage < call.strategy.pp; ++stage)
      enter(id, {dp_rank, stage}, sending.back(), part);
  }
  if (copies) add_copies(id, sending);
}

StepSimulation::ReplicaRounds StepSimulation::run_rounds(CallId id, ReplicaRequests work) const {
  ReplicaRounds run;
  const int64_t reserved = reserved_pages(problem_, prices_.cost(id).strategy());
  int64_t rounds = 0;
  run.rounds = prices_.run_rounds(
      id, work, [&](const BatchRound& round, double seconds, double agreement_s) {
        run.curve.push_back({run.seconds, std::max(reserved, round.pages)});
        run.seconds += seconds + agreement_s;
        run.agreement_s += agreement_s;
        rounds += round.rounds;
        if (rounds <= work.copied_after) run.copied_s = run.seconds;
      });
  run.work = std::move(work.requests), run.budget_tokens = work.budget_tokens;
  return run;
}

bool StepSimulation::executes(const StageRun& run, OpKind kind) const {
  return instruction_of(run.ops.call, run.ops.rank, kind, run.part) >= 0;
}

// All ranks of a replica run its rounds together. The cache grows and shrinks with the sequences in
// flight.
void StepSimulation::expand_replica(CallId id, int dp_rank, const ReplicaRounds& run,
                                    SamplePart part) {
  const Strategy& s = prices_.cost(id).strategy();
  replica_rounds_[dp_rank] += run.rounds;
  rounds_[id.value] = std::max(rounds_[id.value], replica_rounds_[dp_rank]);
  const DeviceId first = stage_devices(id, {dp_rank, 0}).front();
  double seconds = 0;
  if (instruction_of(id, first, OpKind::kRound, part) >= 0)
    seconds += run.seconds - run.agreement_s;
  if (instruction_of(id, first, OpKind::kAgree, part) >= 0) seconds += run.agreement_s;
  const TaskId task = tasks_.add(seconds);
  for (int stage = 0; stage < s.pp; ++stage) {
    enter(id, {dp_rank, stage}, task, part);
    leave(id, {dp_rank, stage}, task, part);
    const OpEvent rounds{{task, task}, EventKind::kGenerate, id,  dp_rank, stage,
                         -1,           OpKind::kRound,       part};
    if (run.rounds > 0)  // others generate what is left
      remember_op(rounds, stage_devices(id, {dp_rank, stage}), seconds);
    instructions_ += s.tp * (2 * run.rounds + 1);
    remember_cache(id, {dp_rank, stage}, task, run, part);
  }
}

// The most pages of each piece of the curve.
void StepSimulation::remember_cache(CallId id, StagePoint at, TaskId task, const ReplicaRounds& run,
                                    SamplePart part) {
  const auto& curve = run.curve;
  const double page = prices_.cost(id).cache_bytes_per_token() * kPageTokens;
  const auto size = static_cast<int64_t>(curve.size());
  const int64_t points = std::min(size, kCachePoints);
  double held = 0;
  for (int64_t p = 0; p <= points; ++p) {
    int64_t pages = 0;
    double share = 1;
    if (p < points) {
      share = run.seconds > 0 ? curve[size * p / points].first / run.seconds : 0;
      for (int64_t i = size * p / points; i < size * (p + 1) / points; ++i)
        pages = std::max(pages, curve[i].second);
    }
    const double bytes = page * static_cast<double>(pages) - held;
    held += bytes;
    for (const DeviceId device : stage_devices(id, at))
      change(device, {task, share, MemoryOwner::kKvCache,
                      find_instruction(id, device, OpKind::kRound, part), bytes});
  }
}

}  // namespace braid::inline sim
