#include "emulate/emulated_rank.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "base/name_seed.h"
#include "base/rng.h"
#include "base/text.h"
#include "program/fused.h"

namespace braid::inline emulate {
namespace {

// What a stand-in says of its op: equal on all ranks that execute the same one.
int64_t identity(const EmulatedCall& work, const Op& op, int64_t part) {
  uint64_t out = mix_seed(static_cast<uint64_t>(work.id.value) + 1, static_cast<uint64_t>(op.kind));
  for (const int64_t number :
       {static_cast<int64_t>(work.part), int64_t{op.minibatch}, int64_t{op.micro_batch}, part})
    out = mix_seed(out, static_cast<uint64_t>(number));
  return static_cast<int64_t>(out >> 1);
}

constexpr int64_t kOrderTogether = int64_t{1} << 60;  // behind messages

EventKind event_of(OpKind kind) {
  if (kind == OpKind::kForward) return EventKind::kForward;
  if (kind == OpKind::kBackward) return EventKind::kBackward;
  return kind == OpKind::kUpdate ? EventKind::kOptimizer : EventKind::kReduce;
}

CallPart call_of(const Instruction& instruction) { return {instruction.call, instruction.part}; }

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
      trace_(work_.rank) {}

Status EmulatedRank::run(const EmulatedClock& clock) {
  clock_ = clock;
  fabric_.set_clock(clock), trace_.set_clock(clock), links_->set_clock(clock);
  BRAID_TRY(run_list(
      program_, work_.rank.value, *this, [](const Call&, double) {},
      [this](size_t index) { instruction_ = static_cast<int32_t>(index); }));
  while (!under_way_.empty()) BRAID_TRY(end_of(under_way_.begin()->first).status());
  for (const auto& [index, end_ns] : ends_) last_end_ns_ = std::max(last_end_ns_, end_ns);
  clock_.sleep_until(last_end_ns_);
  for (Pending& message : told_) BRAID_TRY(message.wait());
  BRAID_TRY(fields_->end_step());
  if (fields_ahead_) BRAID_TRY(fields_ahead_->end_step());
  real_end_ns_ = clock_.now_ns();
  return ok_status();
}

Status EmulatedRank::enter_call(const CallPart& at, int32_t first) {
  world_.position().enter(cat("emulated step, call ", call(at.first).name));
  BRAID_ASSIGN(const int64_t ready, latest(list()[first].after));
  device_ns_ = std::max(device_ns_, ready);
  entered_ns_[at] = device_ns_;
  if (EmulatedCall* const work = open_work(at); work != nullptr) open_stages(work);
  return ok_status();
}

Status EmulatedRank::leave_call(const CallPart& at) {
  if (const auto stages = stages_.find(at); stages != stages_.end())
    BRAID_TRY(stages->second.finish());
  for (size_t i = 0; i < list().size(); ++i)
    if (call_of(list()[i]) == at && !stands_between_calls(list()[i].kind))
      ends_[static_cast<int32_t>(i)] = device_ns_;
  TraceEvent span;
  span.kind = EventKind::kCall, span.call = at.first;
  record(span, entered_ns_[at], device_ns_);
  return ok_status();
}

Status EmulatedRank::execute(const Instruction& instruction) {
  const CallPart at = call_of(instruction);
  switch (instruction.kind) {
    case OpKind::kCall:
      return run_call(at);
    case OpKind::kRegionBegin:
      return begin_region(at);
    case OpKind::kRegionEnd:
      return leave_call(at);
    case OpKind::kRound:
      return run_round(open_work(at));
    case OpKind::kAgree:
      if (call(at.first).kind == CallKind::kGenerate) return agree_on_round(open_work(at));
      return run_ops(instruction);
    case OpKind::kPasses:
      return instruction.detail < 0 ? run_ops(instruction)
                                    : run_fused(program_.fused[instruction.detail]);
    case OpKind::kReduce:
    case OpKind::kUpdate:
    case OpKind::kAllGather:
      return run_ops(instruction);
    case OpKind::kShare:
      return share(instruction_);
    case OpKind::kExchange:
      return begin_exchange(instruction_);
    case OpKind::kHandOver:
      return hand_over(instruction_);
    case OpKind::kReallocate:
      if (prices_.moves_slices(instruction.detail)) return move_slices(instruction_);
      return begin_move(instruction_);
    case OpKind::kLoad:
    case OpKind::kOffload:
      return begin_move(instruction_);
    case OpKind::kTally:    // in the price of a round
    case OpKind::kRepeat:   // a step is priced as one draw
    case OpKind::kRelease:  // there is no memory
      return ok_status();
    default:
      break;
  }
  BRAID_CHECK(false, cat(op_kind_name(instruction.kind), " is no instruction of a list"));
}

// A call that is one instruction.
Status EmulatedRank::run_call(const CallPart& at) {
  BRAID_TRY(enter_call(at, instruction_));
  if (EmulatedCall* const work = open_work(at); work == nullptr) {
    BRAID_TRY(gather_followed(at.first));
    compute_until(device_ns_ + compute_length(prices_.host_call_s(at.first, work_.rank)));
  } else {
    for (size_t i = 0; i < work->ops.ops.size(); ++i)
      BRAID_TRY(run_op(work, static_cast<int32_t>(i)));
  }
  return leave_call(at);
}

EmulatedCall* EmulatedRank::open_work(const CallPart& at) {
  const auto found = work_.calls.find(at);
  return found == work_.calls.end() ? nullptr : &found->second;
}

Status EmulatedRank::begin_region(const CallPart& at) {
  next_round_ = 0;
  EmulatedCall& work = work_.calls.at(at);
  work.cursor = OpCursor(work.ops.ops);
  return enter_call(at, instruction_);
}

// The ops of a mini-batch that the instruction executes.
Status EmulatedRank::run_ops(const Instruction& instruction) {
  EmulatedCall* const work = open_work(call_of(instruction));
  return work->cursor.run(instruction.kind, [&](int32_t op) { return run_op(work, op); });
}

struct EmulatedRank::Passes {
  EmulatedRank& rank;
  EmulatedCall* work;

  Status run(int32_t op) const { return rank.run_op(work, op); }
  Status begin_passes() {
    return work->cursor.begin_passes([&](int32_t op) { return run(op); });
  }
  Status run_pass(const ScheduleOp& pass) {
    return work->cursor.run_pass(pass, [&](int32_t op) { return run(op); });
  }
  Status end_passes() {
    return work->cursor.end_passes([&](int32_t op) { return run(op); });
  }
};

Status EmulatedRank::run_fused(const FusedCalls& fused) {
  Passes first{*this, open_work({fused.calls[0], SamplePart::kAll})};
  Passes second{*this, open_work({fused.calls[1], SamplePart::kAll})};
  return run_fused_passes(program_, fused, work_.rank, std::array<Passes*, 2>{&first, &second});
}

bool EmulatedRank::region_done(const Instruction& end) const {
  if (end.exit == ExitCondition::kFilled) return true;  // its prices count all draws
  const EmulatedCall& work = work_.calls.at(call_of(end));
  return work.generates ? next_round_ >= work.rounds.size() : work.cursor.done();
}

Status EmulatedRank::reopen(const Instruction& instruction) {
  BRAID_CHECK(
      false, cat("an emulated step begins at its begin, not within ", call(instruction.call).name));
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
  const CallPart at{work.id, work.part};
  if ((!forward && !updates) || !begun_.emplace(at, forward ? op.body : -1).second) return out;
  const auto first = std::find_if(list().begin(), list().end(), [&](const Instruction& i) {
    return call_of(i) == at && !stands_between_calls(i.kind);
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
  if (op.kind == OpKind::kReceive) return stages_.at({work->id, work->part}).receive(op, {});
  if (op.kind == OpKind::kSend) {
    stages_.at({work->id, work->part}).send(op, {});
    return ok_status();
  }
  world_.position().enter(cat("emulated step, call ", call(work->id).name),
                          cat("op ", index, " (", op_kind_name(op.kind), ")"));
  int64_t ready = device_ns_;
  for (const int32_t before : op.after)
    if (before >= 0) ready = std::max(ready, work->ends[before]);
  if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward) {
    BRAID_ASSIGN(ready, meet_inside(*work, work->ops, op, ready));
  } else if (op.group >= 0) {
    BRAID_TRY(run_collective(work, index, ready));
    work->ends[index] = device_ns_;
    return ok_status();
  }
  BRAID_ASSIGN(const int64_t end_ns,
               end_after_loads(*work, op, ready, compute_length(work->seconds[index])));
  compute_until(end_ns);
  work->ends[index] = device_ns_;
  if (op.kind == OpKind::kZero || op.kind == OpKind::kLoss) return ok_status();
  TraceEvent event;
  event.kind = event_of(op.kind), event.call = work->id, event.micro_batch = op.micro_batch;
  record(event, ready, device_ns_);
  return ok_status();
}

// All that the members bring, checked; the latest time at which one of them is ready.
Result<int64_t> EmulatedRank::meet(Communicator* group, OpKind kind, StandIn mine,
                                   const std::string& name, std::vector<StandIn>* all) {
  if (group == nullptr) return mine.ready_ns;
  BRAID_ASSIGN(const std::vector<StandIn> brought,
               exchange_stand_ins(*group, kind, group->members().front(), mine, name));
  int64_t ready = mine.ready_ns;
  for (const StandIn& each : brought) {
    ready = std::max(ready, each.ready_ns);
    if (each.what != mine.what)
      trace_.note_misplaced(cat(world_.position().text(), ": ranks of group ", group->name(),
                                " execute different ops"));
  }
  if (all != nullptr) *all = brought;
  return ready;
}

// The collectives inside an op: one real call for each group.
Result<int64_t> EmulatedRank::meet_inside(const EmulatedCall& work, const Expansion& ops,
                                          const Op& op, int64_t ready_ns) {
  for (const InsideCall& inside : calls_inside(work.groups, ops, op)) {
    BRAID_ASSIGN(ready_ns, meet(inside.group, inside.kind,
                                {ready_ns, identity(work, op, ops.bodies[op.body].part), 0},
                                op_kind_name(inside.kind)));
  }
  return ready_ns;
}

// Reductions among copies take links; others have their links to themselves.
Status EmulatedRank::run_collective(EmulatedCall* work, int32_t index, int64_t ready_ns) {
  const Op& op = work->ops.ops[index];
  const OpGroup& who = work->ops.groups[op.group];
  const int64_t length = clock_.length_ns(work->seconds[index]);
  const StandIn mine{ready_ns, identity(*work, op, static_cast<int64_t>(who.kind)), length};
  std::vector<int32_t> ports;
  if (among_copies(who.kind) && length > 0) ports = group_ports(problem_.cluster, who.members);
  BRAID_ASSIGN(const Fabric::Span span,
               pass_together(work->groups.of(who.kind), op.kind, mine, ports));
  if (!moves_numbers(op.kind)) return ok_status();
  TraceEvent event;
  event.kind = EventKind::kReduce, event.call = work->id;
  record(event, span.begin_ns, span.end_ns);
  return ok_status();
}

// A collective that this device waits for: when all have come, and these ports are free.
Result<Fabric::Span> EmulatedRank::pass_together(Communicator* group, OpKind kind, StandIn mine,
                                                 const std::vector<int32_t>& ports) {
  std::vector<StandIn> all;
  BRAID_ASSIGN(const int64_t ready, meet(group, kind, mine, op_kind_name(kind), &all));
  Fabric::Span span{ready, ready + (all.empty() ? mine.length_ns : all[0].length_ns)};
  if (group != nullptr && !ports.empty()) {
    const uint64_t key = transfer_key(
        {kTogether, static_cast<int64_t>(name_seed(0, group->name())), passed_[group]++});
    const auto ranks = static_cast<int32_t>(group->size());
    const Fabric::Transfer said{ranks, ranks, mine.length_ns, kOrderTogether, ports};
    BRAID_ASSIGN(span, fabric_.pass(key, mine.ready_ns, group->index() == 0 ? &said : nullptr));
  }
  compute_until(span.end_ns);
  return span;
}

Status EmulatedRank::run_round(EmulatedCall* work) {
  if (work->rounds.empty()) return ok_status();
  if (next_round_ == 0) rounds_begin_ns_ = device_ns_;
  world_.position().enter(cat("emulated step, call ", call(work->id).name),
                          cat("round ", next_round_));
  const EmulatedCall::Round& round = work->rounds[next_round_];
  BRAID_ASSIGN(const int64_t ready, meet_in_round(work, round, OpKind::kRound));
  compute_until(ready + compute_length(round.seconds));
  return ok_status();
}

Status EmulatedRank::agree_on_round(EmulatedCall* work) {
  if (work->rounds.empty()) return ok_status();
  const EmulatedCall::Round& round = work->rounds[next_round_];
  BRAID_ASSIGN(const int64_t ready, meet_in_round(work, round, OpKind::kAgree));
  compute_until(ready + clock_.length_ns(round.agreement_s));
  ++next_round_;
  if (static_cast<int64_t>(next_round_) == work->copied_after) send_copies();
  if (next_round_ < work->rounds.size()) return ok_status();
  TraceEvent event;
  event.kind = EventKind::kGenerate, event.call = work->id;
  record(event, rounds_begin_ns_, device_ns_);
  return ok_status();
}

// The calls of a round or of the agreement after it, which have one price; when all ranks of the
// replica are in it.
Result<int64_t> EmulatedRank::meet_in_round(EmulatedCall* work, const EmulatedCall::Round& round,
                                            OpKind run) {
  int64_t ready = device_ns_, calls = 0;
  StageMessages stages(everyone_);
  for (Op op : round.ops.ops) {
    if (op.run != run) continue;
    op.minibatch = static_cast<int32_t>(next_round_);
    const int64_t what = identity(*work, op, 0);
    if (op.kind == OpKind::kForward) {
      BRAID_ASSIGN(ready, meet_inside(*work, round.ops, op, ready));
      calls += std::ssize(calls_inside(work->groups, round.ops, op));
    } else if (op.kind == OpKind::kSend) {
      stages.send(op, tensor_of({ready, 0, 0}));
      ++calls;
    } else if (op.kind == OpKind::kReceive) {
      const at::Tensor room = tensor_of({});
      BRAID_TRY(stages.receive(op, room));
      ready = std::max(ready, stand_in_of(room).ready_ns);
      ++calls;
    } else if (op.group >= 0) {
      Communicator* const group = work->groups.of(round.ops.groups[op.group].kind);
      BRAID_ASSIGN(ready, meet(group, op.kind, {ready, what, 0}, op_kind_name(op.kind)));
      calls += group == nullptr ? 0 : 1;
    }
  }
  BRAID_TRY(stages.finish());
  round_calls_ += calls;
  calls_of_each_round_ += calls * (run == OpKind::kRound ? round.times : round.agreements);
  return ready;
}

}  // namespace braid::inline emulate
