// What happens between the gates of a call.
#include <algorithm>

#include "sim/step_simulation.h"
#include "sim/work_cuts.h"

namespace braid {
namespace {

// Points of a memory curve inside a generation.
constexpr int64_t kCachePoints = 48;

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
  expand_passes(id);
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

// Epochs after the first are simulated with its mini-batches.
Deal StepSimulation::call_deal(CallId id) const {
  const Call& call = program_.graph.calls[id.value];
  Deal out = deal(deal_samples(problem_, lengths_, call), program_.calls[id.value].strategy,
                  deal_options(problem_, call));
  if (call.kind != CallKind::kTrainStep) return out;
  if (options_.idle_calls.count(call.name) > 0) out.minibatches.clear();
  const size_t each = out.minibatches.size();
  for (int64_t epoch = 1; epoch < problem_.workload.epochs; ++epoch)
    for (size_t i = 0; i < each; ++i) {
      out.minibatches.push_back(out.minibatches[i]);
      out.minibatches.back().epoch = epoch;
    }
  return out;
}

// What the call's ranks do, one optimizer step after the other, so that of what waits for a link
// since the same moment the earlier step goes first.
void StepSimulation::expand_passes(CallId id) {
  const Strategy& s = program_.calls[id.value].strategy;
  const Deal dealt = call_deal(id);
  const CallFrame frame = call_frame(program_, id);
  const auto samples = deal_samples(problem_, lengths_, program_.graph.calls[id.value]);
  std::vector<StageRun> runs;
  for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank)
    for (int stage = 0; stage < s.pp; ++stage) {
      StageRun run{{dp_rank, stage}, {}, {}, 0, 0, -1, 0};
      run.ops = expand(frame, stage_devices(id, run.at)[0], dealt);
      if (options_.change_ops) options_.change_ops(&run.ops);
      run.tasks.assign(run.ops.ops.size(), -1);
      runs.push_back(std::move(run));
    }
  for (size_t step = 0; step < dealt.minibatches.size(); ++step) {
    for (int dp_rank = 0; dp_rank < s.dp; ++dp_rank) {
      Works works;
      for (const SampleRows& rows : dealt.minibatches[step].micro_batches[dp_rank]) {
        std::vector<int64_t> tokens;
        for (const int32_t row : rows)
          tokens.push_back(samples[row].prompt + samples[row].response);
        const MicroBatch batch = costs_[id.value]->micro_batch(tokens);
        works.push_back({batch, costs_[id.value]->pass_prices(batch)});
      }
      std::vector<StageRun*> replica;
      for (int stage = 0; stage < s.pp; ++stage) {
        StageRun& run = runs[static_cast<size_t>(dp_rank) * s.pp + stage];
        run.begin = run.end;
        while (run.end < run.ops.ops.size() &&
               run.ops.ops[run.end].minibatch == static_cast<int32_t>(step))
          ++run.end;
        add_passes(&run, works);
        replica.push_back(&run);
      }
      add_stage_messages(std::move(replica));
    }
    finish_minibatch(&runs);
  }
  rounds_[id.value] = std::max<int64_t>(1, static_cast<int64_t>(dealt.minibatches.size()));
  for (const StageRun& run : runs)
    if (run.last >= 0) leave(id, run.at, run.last);
}

void StepSimulation::add_passes(StageRun* run, const Works& works) {
  const CallId id = run->ops.call;
  for (size_t i = run->begin; i < run->end; ++i) {
    const Op& op = run->ops.ops[i];
    if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward) continue;
    const auto& [batch, prices] = works[op.micro_batch];
    const double seconds = costs_[id.value]->op_s(run->ops, op, prices);
    const TaskId task = tasks_.add(seconds);
    run->last < 0 ? enter(id, run->at, task) : tasks_.wait(task, run->last);
    run->last = run->tasks[i] = task;
    const bool forward = op.kind == OpKind::kForward;
    if (!forward && op.minibatch == 0) run->window_s = seconds;
    const bool trains = run->ops.bodies[op.body].trains;
    remember_op({task, forward ? EventKind::kForward : EventKind::kBackward, id, run->at.dp_rank,
                 run->at.stage, op.micro_batch, trains ? OpCode::kSchedule : OpCode::kCall},
                seconds);
    remember_pass(*run, op, task, batch);
  }
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
  run->last < 0 ? enter(run->ops.call, run->at, found->second)
                : tasks_.wait(found->second, run->last);
  return found->second;
}

// Reductions, agreement of all ranks, update, way back of updated weights.
void StepSimulation::finish_minibatch(std::vector<StageRun>* runs) {
  Joints joints;
  for (size_t i = 0; i < runs->size(); ++i) {
    StageRun& run = (*runs)[i];
    const CallId id = run.ops.call;
    double window_s = (*runs)[run.at.stage].window_s;  // of the first data-parallel rank
    for (size_t at = run.begin; at < run.end; ++at) {
      const Op& op = run.ops.ops[at];
      const double seconds = costs_[id.value]->op_s(run.ops, op, {}, &window_s);
      if (op.kind == OpKind::kUpdate) {
        const double update_s = seconds + costs_[id.value]->step_host_s();
        const TaskId update = tasks_.add(update_s);
        tasks_.wait(update, run.last);
        run.last = run.tasks[at] = update;
        remember_op({update, EventKind::kOptimizer, id, run.at.dp_rank, run.at.stage, -1,
                     OpCode::kOptimizerStep},
                    update_s);
        const Strategy& s = costs_[id.value]->strategy();
        instructions_ += 2 * s.cp * s.tp;  // agreement, end of the body
      } else if (op.group >= 0) {
        run.last = run.tasks[at] = add_joint(&run, op, seconds, &joints);
        const bool gathers = op.kind == OpKind::kAllGather;
        if (gathers || op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter)
          remember_op({run.last, EventKind::kReduce, id, run.at.dp_rank, run.at.stage, -1,
                       gathers ? OpCode::kGather : OpCode::kReduce},
                      0);
      }
    }
  }
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
