// What happens between the gates of a call.
#include <algorithm>

#include "sim/step_simulation.h"

namespace braid {
namespace {

// Points of a memory curve inside a generation.
constexpr int64_t kCachePoints = 48;

using Kind = ScheduleOp::Kind;

}  // namespace

void StepSimulation::enter(CallId id, StagePoint at, TaskId task) {
  for (const DeviceId device : stage_devices(id, at)) tasks_.wait(task, block(id, device).begin);
}

void StepSimulation::leave(CallId id, StagePoint at, TaskId task) {
  for (const DeviceId device : stage_devices(id, at)) tasks_.wait(block(id, device).end, task);
}

void StepSimulation::expand_call(CallId id) {
  const Call& call = program_.graph.calls[id.value];
  rounds_[id.value] = 1;
  add_field_memory(id);
  if (!uses_model(call)) return expand_host(id);
  add_call_memory(id);
  if (call.kind == CallKind::kGenerate) return expand_generate(id);
  call.kind == CallKind::kTrainStep ? expand_train(id) : expand_infer(id);
}

// The fixed time of a step on the host is where the step's data come in.
void StepSimulation::expand_host(CallId id) {
  const bool fetch = program_.graph.calls[id.value].kind == CallKind::kFetch;
  const bool rollout = generates(program_.graph);
  for (auto& [device, block] : blocks_[id.value]) {
    const double seconds = fetch && rollout ? efficiencies_[device].rl_step_host_s : 0;
    const TaskId task = tasks_.add(seconds);
    tasks_.wait(task, block.begin);
    tasks_.wait(block.end, task);
    ++instructions_;
    if (options_.events && seconds > 0) {
      MessageEvent event;
      event.task = task, event.kind = EventKind::kCall, event.call = id;
      event.from = event.to = DeviceId{device};
      event.instruction = block.first;
      message_events_.push_back(event);
    }
  }
}

std::vector<MicroBatch> StepSimulation::micro_batches(CallId id, int dp_rank, int64_t part,
                                                      int64_t parts) {
  return cuts_.micro_batches(*costs_[id.value], lengths_, program_.calls[id.value].samples,
                             {dp_rank, part, parts});
}

// Adds the passes of one replica; each stage's first pass waits for after[stage] (-1: the gate).
// Returns the last pass of every stage.
std::vector<TaskId> StepSimulation::expand_schedule(CallId id, int dp_rank,
                                                    const Schedule& schedule,
                                                    const std::vector<MicroBatch>& batches,
                                                    const std::vector<TaskId>& after) {
  const CallCost& cost = *costs_[id.value];
  const bool trains = program_.graph.calls[id.value].kind == CallKind::kTrainStep;
  std::vector<std::vector<TaskId>> tasks(schedule.stages);
  std::vector<TaskId> last(schedule.stages, -1);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (const ScheduleOp& op : schedule.per_stage[stage]) {
      const MicroBatch& batch = batches[op.micro_batch];
      const double seconds = pass_s(cost, op, batch);
      const TaskId task = tasks_.add(seconds);
      if (last[stage] < 0) {
        after[stage] < 0 ? enter(id, {dp_rank, stage}, task) : tasks_.wait(task, after[stage]);
      } else {
        tasks_.wait(task, last[stage]);
      }
      last[stage] = task;
      tasks[stage].push_back(task);
      remember_op({task, op.kind == Kind::kForward ? EventKind::kForward : EventKind::kBackward, id,
                   dp_rank, stage, op.micro_batch, trains ? OpCode::kSchedule : OpCode::kCall},
                  seconds);
      remember_pass(id, dp_rank, op, task, batch);
    }
  }
  connect_ops(id, dp_rank, schedule, tasks, batches);
  return last;
}

// Messages between stages: each tensor-parallel rank sends its part at the same time, so the first
// stands for all.
void StepSimulation::connect_ops(CallId id, int dp_rank, const Schedule& schedule,
                                 const std::vector<std::vector<TaskId>>& tasks,
                                 const std::vector<MicroBatch>& batches) {
  if (schedule.stages * schedule.chunks == 1) return;
  const size_t parts = static_cast<size_t>(schedule.stages) * schedule.chunks;
  std::vector<TaskId> done[2];
  for (auto& kind : done) kind.assign(parts * schedule.micro_batches, -1);
  const auto slot = [&](int32_t part, int32_t micro_batch) {
    return static_cast<size_t>(part) * schedule.micro_batches + micro_batch;
  };
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (size_t i = 0; i < tasks[stage].size(); ++i) {
      const ScheduleOp& op = schedule.per_stage[stage][i];
      done[static_cast<int>(op.kind)][slot(op.chunk * schedule.stages + stage, op.micro_batch)] =
          tasks[stage][i];
    }
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (size_t i = 0; i < tasks[stage].size(); ++i) {
      const ScheduleOp& op = schedule.per_stage[stage][i];
      const int32_t before = waits_for_part(schedule, op);
      if (before < 0) continue;
      const TaskId source = done[static_cast<int>(op.kind)][slot(before, op.micro_batch)];
      const int from_stage = before % schedule.stages;
      if (from_stage == stage) {
        tasks_.wait(tasks[stage][i], source);
        continue;
      }
      MessageEvent event;
      event.call = id;
      const TaskId message = link_task(
          stage_devices(id, {dp_rank, from_stage})[0], stage_devices(id, {dp_rank, stage})[0],
          costs_[id.value]->stage_bytes(batches[op.micro_batch]), event);
      tasks_.wait(message, source);
      tasks_.wait(tasks[stage][i], message);
    }
}

void StepSimulation::expand_infer(CallId id) {
  const Strategy& s = program_.calls[id.value].strategy;
  for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank) {
    const auto batches = micro_batches(id, dp_rank, 0, 1);
    const Schedule schedule =
        schedule_of(s, CallKind::kInfer, static_cast<int64_t>(batches.size()));
    const auto last =
        expand_schedule(id, dp_rank, schedule, batches, std::vector<TaskId>(s.pp, -1));
    for (int stage = 0; stage < s.pp; ++stage)
      if (last[stage] >= 0) leave(id, {dp_rank, stage}, last[stage]);
  }
}

void StepSimulation::expand_train(CallId id) {
  const Strategy& s = program_.calls[id.value].strategy;
  const Workload& work = problem_.workload;
  const int64_t parts = std::max<int64_t>(1, work.minibatches);
  const bool idle = options_.idle_calls.count(program_.graph.calls[id.value].name) > 0;
  const int64_t steps = idle ? 0 : parts * std::max<int64_t>(1, work.epochs);
  rounds_[id.value] = idle ? 1 : steps;
  std::vector<TaskId> ready(static_cast<size_t>(s.dp) * s.pp, -1);  // [dp][stage]
  StagePorts ports;
  for (int stage = 0; stage < s.pp; ++stage) ports.push_back(replica_ports(id, stage));
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<std::vector<TaskId>> last;
    for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank) {
      const auto batches = micro_batches(id, dp_rank, step % parts, parts);
      const Schedule schedule =
          schedule_of(s, CallKind::kTrainStep, static_cast<int64_t>(batches.size()));
      const auto first = ready.begin() + static_cast<int64_t>(dp_rank) * s.pp;
      last.push_back(expand_schedule(id, dp_rank, schedule, batches, {first, first + s.pp}));
    }
    ready = finish_minibatch(id, last, ports);
  }
  for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank)
    for (int stage = 0; stage < s.pp; ++stage)
      leave(id, {dp_rank, stage}, ready[static_cast<size_t>(dp_rank) * s.pp + stage]);
}

// Reduction over replicas, agreement of all ranks, optimizer step, gather of updated weights.
// Returns the last task of each (dp rank, stage).
std::vector<TaskId> StepSimulation::finish_minibatch(CallId id,
                                                     const std::vector<std::vector<TaskId>>& last,
                                                     const StagePorts& ports) {
  const CallCost& cost = *costs_[id.value];
  const Strategy& s = cost.strategy();
  const TaskId agree = tasks_.add(0);
  for (int stage = 0; stage < s.pp; ++stage) {
    const auto sample =
        micro_batches(id, 0, 0, std::max<int64_t>(1, problem_.workload.minibatches));
    const double window = sample.empty() ? 0 : cost.backward_s(sample.back(), stage);
    const double seconds = cost.exposed_reduce_s(stage, window);
    const TaskId reduce = tasks_.add(seconds, ports[stage]);
    for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank) {
      tasks_.wait(reduce, last[dp_rank][stage]);
      if (dense_copies(s) > 1)
        remember_op({reduce, EventKind::kReduce, id, dp_rank, stage, -1, OpCode::kReduce}, 0);
    }
    tasks_.wait(agree, reduce);
  }
  std::vector<TaskId> out(static_cast<size_t>(s.dp) * s.pp, -1);
  const bool gathers = dense_copies(s) > 1 && (s.zero_stage == 1 || s.zero_stage == 2);
  for (int stage = 0; stage < s.pp; ++stage) {
    const double seconds = cost.optimizer_step_s(stage) + cost.step_host_s();
    const TaskId gather = gathers ? tasks_.add(cost.gather_s(stage), ports[stage]) : -1;
    for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank) {
      const TaskId update = tasks_.add(seconds);
      tasks_.wait(update, agree);
      remember_op({update, EventKind::kOptimizer, id, dp_rank, stage, -1, OpCode::kOptimizerStep},
                  seconds);
      instructions_ += 2 * s.cp * s.tp;  // agreement and end of the region's body
      if (gathers) {
        tasks_.wait(gather, update);
        remember_op({gather, EventKind::kReduce, id, dp_rank, stage, -1, OpCode::kGather}, 0);
      }
      out[static_cast<size_t>(dp_rank) * s.pp + stage] = gathers ? gather : update;
    }
  }
  return out;
}

// Replicas with equal work and caches take the same rounds, so those are run once.
void StepSimulation::expand_generate(CallId id) {
  const CallPlacement& call = program_.calls[id.value];
  rounds_[id.value] = 0;
  ReplicaRounds run;
  for (int dp_rank = 0; dp_rank < call.strategy.dp; ++dp_rank) {
    auto work = requests_of(problem_, call.strategy, lengths_, call.samples, dp_rank);
    const int64_t budget = cache_budget(id, dp_rank, work);
    if (dp_rank == 0 || budget != run.budget_tokens || !same_work(work, run.work))
      run = run_rounds(id, std::move(work), budget);
    expand_replica(id, dp_rank, run);
  }
}

StepSimulation::ReplicaRounds StepSimulation::run_rounds(CallId id, std::vector<BatchRequest> work,
                                                         int64_t budget_tokens) const {
  const CallCost& cost = *costs_[id.value];
  BatchOptions options = batch_options(problem_, cost.strategy(), options_);
  options.kv_budget_tokens = budget_tokens;
  ReplicaRounds run{std::move(work), budget_tokens, 0, 0, {}};
  const int64_t reserved = reserved_pages(problem_, cost.strategy());
  run.rounds = run_batches(run.work, options, [&](const BatchRound& round) {
    run.curve.push_back({run.seconds, std::max(reserved, round.pages)});
    run.seconds += cost.rounds_s(round);
  });
  return run;
}

// All ranks of a replica run its rounds together. The cache grows and shrinks with the sequences in
// flight.
void StepSimulation::expand_replica(CallId id, int dp_rank, const ReplicaRounds& run) {
  const Strategy& s = costs_[id.value]->strategy();
  rounds_[id.value] = std::max(rounds_[id.value], run.rounds);
  const TaskId task = tasks_.add(run.seconds);
  for (int stage = 0; stage < s.pp; ++stage) {
    enter(id, {dp_rank, stage}, task);
    leave(id, {dp_rank, stage}, task);
    remember_op({task, EventKind::kGenerate, id, dp_rank, stage, -1, OpCode::kGenerateStep},
                run.seconds);
    instructions_ += s.tp * (2 * run.rounds + 1);
    remember_cache(id, {dp_rank, stage}, task, run);
  }
}

// The most pages of each piece of the curve.
void StepSimulation::remember_cache(CallId id, StagePoint at, TaskId task,
                                    const ReplicaRounds& run) {
  const auto& curve = run.curve;
  const double page = costs_[id.value]->cache_bytes_per_token() * kCachePageTokens;
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
                      find_instruction(id, device, OpCode::kGenerateStep), bytes});
  }
}

}  // namespace braid
