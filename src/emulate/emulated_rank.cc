#include "emulate/emulated_rank.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"

namespace braid::inline emulate {
namespace {

// What a stand-in says of its op: equal on all ranks that execute the same one.
int64_t identity(CallId call, const Op& op, int64_t part) {
  uint64_t out = mix_seed(static_cast<uint64_t>(call.value) + 1, static_cast<uint64_t>(op.kind));
  for (const int64_t number : {int64_t{op.minibatch}, int64_t{op.micro_batch}, part})
    out = mix_seed(out, static_cast<uint64_t>(number));
  return static_cast<int64_t>(out >> 1);
}

EventKind event_of(OpKind kind) {
  if (kind == OpKind::kForward) return EventKind::kForward;
  if (kind == OpKind::kBackward) return EventKind::kBackward;
  return kind == OpKind::kUpdate ? EventKind::kOptimizer : EventKind::kReduce;
}

bool moves_numbers(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kAllGather;
}

}  // namespace

EmulatedRank::EmulatedRank(const Program& program, const PlanningProblem& problem,
                           const StepPrices& prices, World& world, Fabric& fabric, RankWork work,
                           const Options& options)
    : program_(program),
      problem_(problem),
      prices_(prices),
      world_(world),
      fabric_(fabric),
      work_(std::move(work)),
      options_(options),
      ends_(program.ranks[work_.rank.value].instructions.size()),
      begun_exchanges_(program.ranks[work_.rank.value].instructions.size()),
      fetched_(1),
      lanes_([this](const Status& failure) { fail(failure); }) {}

void EmulatedRank::fail(const Status& failure) {
  {
    const std::lock_guard lock(results_);
    if (failure_.ok()) failure_ = failure;
  }
  ends_.fail(failure);
  begun_exchanges_.fail(failure);
  fetched_.fail(failure);
  for (const auto& ends : message_ends_) ends->fail(failure);
  for (const auto& [id, work] : work_.calls) work.ends->fail(failure);
}

void EmulatedRank::note_misplaced(const std::string& what) {
  const std::lock_guard lock(results_);
  misplaced_.push_back(cat("rank ", work_.rank.value, ": ", what));
}

void EmulatedRank::record(TraceEvent event, int64_t begin_ns, int64_t end_ns) {
  event.device = work_.rank;
  event.start_s = clock_.model_s(begin_ns), event.end_s = clock_.model_s(end_ns);
  const std::lock_guard lock(results_);
  events_.push_back(event);
}

Result<int64_t> EmulatedRank::latest(const std::vector<InstructionId>& after) const {
  int64_t out = 0;
  for (const InstructionId before : after) {
    BRAID_ASSIGN(const int64_t end_ns, end_of(before.value));
    out = std::max(out, end_ns);
  }
  return out;
}

// A release takes no time.
Result<int64_t> EmulatedRank::end_of(int32_t instruction) const {
  if (list()[instruction].code == OpCode::kRelease) return messages_ready(instruction);
  if (list()[instruction].code == OpCode::kReallocate) return reallocation_end(instruction);
  return ends_.wait(instruction);
}

// What moves at the begin of a step waits for the step's data, as in the simulator.
Result<int64_t> EmulatedRank::messages_ready(int32_t instruction) const {
  BRAID_ASSIGN(const int64_t fetched, fetched_.wait(0));
  BRAID_ASSIGN(const int64_t ready, latest(list()[instruction].after));
  return std::max(fetched, ready);
}

Status EmulatedRank::run(const EmulatedClock& clock) {
  clock_ = clock;
  fabric_.set_clock(clock);
  lanes_.start();
  const Status ran = run_list(
      program_, work_.rank.value, *this, [](const Call&, double) {},
      [this](size_t index) { instruction_ = static_cast<int32_t>(index); });
  if (!ran.ok()) fail(ran);
  BRAID_TRY(ran);
  for (size_t i = 0; i < list().size(); ++i) {
    BRAID_ASSIGN(const int64_t end_ns, end_of(static_cast<int32_t>(i)));
    last_end_ns_ = std::max(last_end_ns_, end_ns);
  }
  lanes_.join();
  real_end_ns_ = clock_.now_ns();
  return failure_;
}

Status EmulatedRank::enter_call(CallId id, int32_t first) {
  world_.position().enter(cat("emulated step, call ", call(id).name));
  BRAID_ASSIGN(const int64_t ready, latest(list()[first].after));
  device_ns_ = std::max(device_ns_, ready);
  entered_ns_[id] = device_ns_;
  return ok_status();
}

void EmulatedRank::leave_call(CallId id) {
  for (size_t i = 0; i < list().size(); ++i)
    if (list()[i].call == id && !is_list_only(list()[i].code)) ends_.set(i, device_ns_);
  TraceEvent span;
  span.kind = EventKind::kCall, span.call = id;
  record(span, entered_ns_[id], device_ns_);
}

// Its lane goes on from here.
Status EmulatedRank::begin_exchange(int32_t) {
  begun_exchanges_.set(instruction_, device_ns_);
  return ok_status();
}

// A call that is one instruction.
Status EmulatedRank::run_call(const Call& call) {
  const CallId id = id_of(call);
  BRAID_TRY(enter_call(id, instruction_));
  if (EmulatedCall* const work = open_work(call); work == nullptr) {
    compute_until(device_ns_ + compute_length(prices_.host_call_s(id, work_.rank)));
  } else {
    for (size_t i = 0; i < work->ops.ops.size(); ++i)
      BRAID_TRY(run_op(work, static_cast<int32_t>(i)));
  }
  leave_call(id);
  return ok_status();
}

EmulatedCall* EmulatedRank::open_work(const Call& call) {
  const auto found = work_.calls.find(id_of(call));
  return found == work_.calls.end() ? nullptr : &found->second;
}

bool EmulatedRank::ran_with_another(CallId call) const {
  return std::any_of(program_.fused.begin(), program_.fused.end(), [&](const FusedCalls& fused) {
    return fused.calls[0] == call || fused.calls[1] == call;
  });
}

Status EmulatedRank::begin_region(const Call& call) {
  const CallId id = id_of(call);
  next_op_ = 0, drained_ = false;
  for (const FusedCalls& fused : program_.fused)
    if (fused.calls[0] == id) return run_fused(fused);
  return ran_with_another(id) ? ok_status() : enter_call(id, instruction_);
}

Status EmulatedRank::generate_step(const Call& call) {
  BRAID_TRY(run_rounds(open_work(call)));
  drained_ = true;
  return ok_status();
}

// The ops of a mini-batch in order, up to those of a later part of it than `last_part`.
Status EmulatedRank::run_ops(const Call& call, MinibatchPart last_part) {
  if (ran_with_another(id_of(call))) return ok_status();
  EmulatedCall* const work = open_work(call);
  const std::vector<Op>& ops = work->ops.ops;
  for (const size_t begin = next_op_; next_op_ < ops.size(); ++next_op_) {
    const Op& op = ops[next_op_];
    const bool here =
        op.minibatch == ops[begin].minibatch && part_of_minibatch(work->ops, op) <= last_part;
    if (!here) break;
    BRAID_TRY(run_op(work, static_cast<int32_t>(next_op_)));
  }
  return ok_status();
}

Status EmulatedRank::run_schedule(const Call& call) {
  return run_ops(call, MinibatchPart::kPasses);
}
Status EmulatedRank::reduce(const Call& call) { return run_ops(call, MinibatchPart::kReductions); }
Status EmulatedRank::agree(const Call& call) { return run_ops(call, MinibatchPart::kAgreement); }
Status EmulatedRank::optimizer_step(const Call& call) {
  return run_ops(call, MinibatchPart::kUpdate);
}

bool EmulatedRank::region_done(ExitCondition exit) const {
  const CallId id = list()[instruction_].call;
  if (exit == ExitCondition::kDrained) return drained_;
  return ran_with_another(id) || next_op_ == work_.calls.at(id).ops.ops.size();
}

Status EmulatedRank::end_region(const Call& call) {
  if (!ran_with_another(id_of(call))) leave_call(id_of(call));
  return ok_status();
}

Status EmulatedRank::reopen_region(const Call& call) {
  BRAID_CHECK(false, cat("an emulated step begins at its begin, not within ", call.name));
}

// Both calls are entered before their first ops.
Status EmulatedRank::run_fused(const FusedCalls& fused) {
  for (const FusedExpansion::Step& step : work_.fused.at(fused.calls[0])) {
    const CallId id = fused.calls[step.call];
    if (entered_ns_.count(id) == 0) {
      int32_t at = 0;
      while (list()[at].call != id || is_list_only(list()[at].code)) ++at;
      BRAID_TRY(enter_call(id, at));
    }
    BRAID_TRY(run_op(&work_.calls.at(id), step.op));
  }
  for (const CallId id : fused.calls) leave_call(id);
  return ok_status();
}

int64_t EmulatedRank::compute_length(double seconds) {
  const double u = 2 * random_unit(options_.seed, work_.rank.value, priced_++) - 1;
  return clock_.length_ns(seconds * (1 + options_.jitter * u));
}

void EmulatedRank::compute_until(int64_t end_ns) {
  clock_.sleep_until(end_ns);
  device_ns_ = std::max(device_ns_, end_ns);
}

Result<int64_t> EmulatedRank::end_after_loads(const EmulatedCall& work, const Op& op,
                                              int64_t ready_ns, int64_t length_ns) {
  int64_t out = ready_ns + length_ns;
  const bool forward = op.kind == OpKind::kForward, updates = op.kind == OpKind::kUpdate;
  if ((!forward && !updates) || !begun_.emplace(work.id.value, forward ? op.body : -1).second)
    return out;
  const auto first = std::find_if(list().begin(), list().end(), [&](const Instruction& i) {
    return i.call == work.id && !is_list_only(i.code);
  });
  const auto length = static_cast<double>(length_ns);
  if (forward)
    for (const auto& wait : prices_.layer_waits(*first, work_.rank, work.ops.bodies[op.body])) {
      BRAID_ASSIGN(const int64_t here_ns, end_of(wait.load.value));
      out = std::max(out, here_ns + static_cast<int64_t>((1 - wait.share) * length));
    }
  if (updates)
    for (const InstructionId load : prices_.update_waits(*first, work_.rank)) {
      BRAID_ASSIGN(const int64_t here_ns, end_of(load.value));
      out = std::max(out, here_ns + length_ns);
    }
  return out;
}

Status EmulatedRank::run_op(EmulatedCall* work, int32_t index) {
  const Op& op = work->ops.ops[index];
  if (op.kind == OpKind::kSend || op.kind == OpKind::kReceive) return ok_status();  // in its lane
  world_.position().enter(cat("emulated step, call ", call(work->id).name),
                          cat("op ", index, " (", op_kind_name(op.kind), ")"));
  int64_t ready = device_ns_;
  for (const int32_t before : op.after) {
    if (before < 0) continue;
    BRAID_ASSIGN(const int64_t end_ns, work->ends->wait(before));
    ready = std::max(ready, end_ns);
  }
  if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward) {
    BRAID_ASSIGN(ready, meet_inside(*work, work->ops, op, ready));
  } else if (op.group >= 0) {
    BRAID_TRY(run_collective(work, index, ready));
    work->ends->set(index, device_ns_);
    return ok_status();
  }
  BRAID_ASSIGN(const int64_t end_ns,
               end_after_loads(*work, op, ready, compute_length(work->seconds[index])));
  compute_until(end_ns);
  work->ends->set(index, device_ns_);
  if (op.kind == OpKind::kZero || op.kind == OpKind::kLoss) return ok_status();
  TraceEvent event;
  event.kind = event_of(op.kind), event.call = work->id, event.micro_batch = op.micro_batch;
  record(event, ready, device_ns_);
  return ok_status();
}

// All that the members bring, checked; the latest time at which one of them is ready.
Result<int64_t> EmulatedRank::meet(Communicator* group, const OpGroup& who, OpKind kind,
                                   StandIn mine, std::vector<StandIn>* all) {
  if (group == nullptr) return mine.ready_ns;
  BRAID_ASSIGN(const std::vector<StandIn> brought,
               exchange_stand_ins(*group, kind, who.members.front().value, mine,
                                  cat(op_kind_name(kind), " over ", group_kind_name(who.kind))));
  int64_t ready = mine.ready_ns;
  for (const StandIn& each : brought) {
    ready = std::max(ready, each.ready_ns);
    if (each.what != mine.what)
      note_misplaced(cat(world_.position().text(), ": ranks of group ", group->name(),
                         " execute different ops"));
  }
  if (all != nullptr) *all = brought;
  return ready;
}

// The collectives inside an op: one real call for each group.
Result<int64_t> EmulatedRank::meet_inside(const EmulatedCall& work, const Expansion& ops,
                                          const Op& op, int64_t ready_ns) {
  std::vector<int32_t> met;
  for (const InsideOp& inside : inside_of(ops, op)) {
    if (std::find(met.begin(), met.end(), inside.group) != met.end()) continue;
    met.push_back(inside.group);
    BRAID_ASSIGN(ready_ns,
                 meet(work.groups[inside.group], ops.groups[inside.group], inside.kind,
                      {ready_ns, identity(work.id, op, ops.bodies[op.body].part), 0, -1}));
  }
  return ready_ns;
}

// Reductions among copies take links; others have their links to themselves.
Status EmulatedRank::run_collective(EmulatedCall* work, int32_t index, int64_t ready_ns) {
  const Op& op = work->ops.ops[index];
  const OpGroup& who = work->ops.groups[op.group];
  Communicator* const group = work->groups[op.group];
  const int64_t length = clock_.length_ns(work->seconds[index]);
  StandIn mine{ready_ns, identity(work->id, op, static_cast<int64_t>(who.kind)), length, -1};
  const bool on_links = group != nullptr && among_copies(who.kind) && length > 0;
  if (on_links && group->index() == 0) {
    BRAID_ASSIGN(mine.slot,
                 fabric_.open({static_cast<int32_t>(who.members.size()), length, int64_t{1} << 40,
                               group_ports(problem_.cluster, who.members)}));
  }
  std::vector<StandIn> all;
  BRAID_ASSIGN(const int64_t ready, meet(group, who, op.kind, mine, &all));
  Fabric::Span span{ready, ready + (all.empty() ? length : all[0].length_ns)};
  if (on_links) {
    BRAID_ASSIGN(span, fabric_.pass(static_cast<int32_t>(all[0].slot), ready_ns));
  }
  compute_until(span.end_ns);
  if (on_links) fabric_.leave(static_cast<int32_t>(all[0].slot));
  if (!moves_numbers(op.kind)) return ok_status();
  TraceEvent event;
  event.kind = EventKind::kReduce, event.call = work->id;
  record(event, span.begin_ns, span.end_ns);
  return ok_status();
}

Status EmulatedRank::run_rounds(EmulatedCall* work) {
  const int64_t begin_ns = device_ns_;
  int64_t number = 0;
  for (const EmulatedCall::Round& round : work->rounds) {
    world_.position().enter(cat("emulated step, call ", call(work->id).name),
                            cat("round ", number++));
    BRAID_ASSIGN(const int64_t ready, run_round(work, round, number));
    compute_until(ready + compute_length(round.seconds));
  }
  TraceEvent event;
  event.kind = EventKind::kGenerate, event.call = work->id;
  record(event, begin_ns, device_ns_);
  return ok_status();
}

// The calls of a round, which has one price; when all ranks of the replica are in it.
Result<int64_t> EmulatedRank::run_round(EmulatedCall* work, const EmulatedCall::Round& round,
                                        int64_t number) {
  int64_t ready = device_ns_;
  std::vector<std::pair<at::Tensor, Pending>> sending;
  for (Op op : round.ops.ops) {
    op.minibatch = static_cast<int32_t>(number);
    const int64_t what = identity(work->id, op, 0);
    const int32_t channel = stage_channel(work->id, op.channel);
    if (op.kind == OpKind::kForward) {
      BRAID_ASSIGN(ready, meet_inside(*work, round.ops, op, ready));
    } else if (op.kind == OpKind::kSend) {
      const at::Tensor data = tensor_of({ready, 0, 0, -1});
      sending.emplace_back(data, start([&] {
                             return everyone_->send(data, op.peer.value, channel, "hidden states");
                           }));
    } else if (op.kind == OpKind::kReceive) {
      BRAID_ASSIGN(const StandIn got, receive(op.peer, channel, "hidden states"));
      ready = std::max(ready, got.ready_ns);
    } else if (op.group >= 0) {
      BRAID_ASSIGN(ready, meet(work->groups[op.group], round.ops.groups[op.group], op.kind,
                               {ready, what, 0, -1}));
    }
  }
  for (auto& [data, pending] : sending) BRAID_TRY(pending.wait());
  return ready;
}

}  // namespace braid::inline emulate
