#include "interpret/interpreter.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>

#include "base/text.h"
#include "comm/communicator.h"
#include "device/tensor_memory.h"

namespace braid {
namespace {

Status execute(const Instruction& instruction, const Call& call, Executor& executor) {
  switch (instruction.code) {
    case OpCode::kCall:
      return executor.run_call(call);
    case OpCode::kRegionBegin:
      return executor.begin_region(call);
    case OpCode::kGenerateStep:
      return executor.generate_step(call);
    case OpCode::kSchedule:
      return executor.run_schedule(call);
    case OpCode::kAgree:
      return executor.agree(call);
    case OpCode::kOptimizerStep:
      return executor.optimizer_step(call);
    case OpCode::kRegionEnd:
      return executor.region_done(instruction.exit) ? executor.end_region(call) : ok_status();
    case OpCode::kReduce:
      return executor.reduce(call);
    case OpCode::kShare:
      return executor.share(instruction.detail);
    case OpCode::kExchange:
      return executor.begin_exchange(instruction.detail);
    case OpCode::kSend:
    case OpCode::kReceive:
      return ok_status();  // before_call() brings weights
    case OpCode::kRelease:
      executor.release(instruction.detail);
      return ok_status();
    case OpCode::kGather:
      return ok_status();  // optimizer_step() ends with it: a failure between them must save
                           // nothing
    case OpCode::kLoad:
      return executor.begin_load(instruction.detail, instruction.layers);
    case OpCode::kOffload:
      return executor.offload(instruction.detail);
  }
  BRAID_CHECK(false, "unknown instruction");
}

// Whether `at` lies in a region's body; its begin is then in region_begin.
bool find_region(const RankProgram& rank, size_t at, size_t* region_begin) {
  bool inside = false;
  for (size_t i = 0; i < at; ++i) {
    if (rank.instructions[i].code == OpCode::kRegionBegin) *region_begin = i;
    if (rank.instructions[i].code == OpCode::kRegionBegin) inside = true;
    if (rank.instructions[i].code == OpCode::kRegionEnd) inside = false;
  }
  return inside;
}

using Clock = std::chrono::steady_clock;
using Together = std::vector<CallId>;  // one call, or those that are fused

bool is_of(const Instruction& instruction, const Together& calls) {
  return std::find(calls.begin(), calls.end(), instruction.call) != calls.end();
}

// Whether the calls have instructions and all of them come before `begin`.
bool done_before(const RankProgram& rank, const Together& calls, size_t begin) {
  bool found = false;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    if (!is_of(rank.instructions[i], calls)) continue;
    if (i >= begin) return false;
    found = true;
  }
  return found;
}

// What begins where this call stands: nothing for the first of two that are fused.
Together begun_with(const Program& program, CallId call) {
  for (const FusedCalls& fused : program.fused) {
    if (fused.calls[0] == call) return {};
    if (fused.calls[1] == call) return {fused.calls[0], fused.calls[1]};
  }
  return {call};
}

std::vector<Together> call_order(const Program& program) {
  std::vector<Together> order;
  if (program.ranks.size() == 1 && program.fused.empty()) {
    for (const Instruction& instruction : program.ranks[0].instructions)
      if (order.empty() || order.back().front() != instruction.call)
        order.push_back({instruction.call});
    return order;
  }
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    Together calls = begun_with(program, CallId{static_cast<int32_t>(i)});
    if (!calls.empty()) order.push_back(std::move(calls));
  }
  return order;
}

// Executes the instructions of calls, from `at` on; returns where those of the next begin.
class CallRun {
 public:
  CallRun(const Program& program, const RankProgram& rank, Executor& executor,
          const CallSeconds& timer, const InstructionObserver& observer)
      : program_(program), rank_(rank), executor_(executor), timer_(timer), observer_(observer) {}

  Result<size_t> run(const Together& calls, size_t at) {
    size_t region_begin = at;
    double own_s = 0;
    bool takes_part = false;
    if (find_region(rank_, at, &region_begin))
      BRAID_TRY(executor_.reopen_region(call_of(rank_.instructions[at])));
    while (at < rank_.instructions.size() && is_of(rank_.instructions[at], calls)) {
      const Instruction& instruction = rank_.instructions[at];
      const Call& call = call_of(instruction);
      if (instruction.code == OpCode::kRegionBegin) region_begin = at;
      if (instruction.code == OpCode::kRegionBegin || instruction.code == OpCode::kCall)
        BRAID_TRY(begin_ahead(at));
      const Clock::time_point started = Clock::now();
      BRAID_TRY(guarded([&] {
                  if (observer_) observer_(at);
                  BRAID_TRY(await_exchanges(instruction));
                  return execute(instruction, call, executor_);
                }).at(cat("call ", call.name, ", instruction ", at)));
      const bool fields =
          instruction.code == OpCode::kShare || instruction.code == OpCode::kExchange;
      if (!fields) own_s += std::chrono::duration<double>(Clock::now() - started).count();
      takes_part = takes_part || !fields;
      const bool closes = instruction.code == OpCode::kRegionEnd;
      const bool again = closes && !executor_.region_done(instruction.exit);
      const bool ends = instruction.code == OpCode::kCall || (closes && !again);
      at = again ? region_begin + 1 : at + 1;
      // Weights change in an optimizer step alone: a failure right after it must not repeat it.
      const bool updated = instruction.code == OpCode::kOptimizerStep;
      if (ends || again || updated || instruction.code == OpCode::kShare) executor_.passed(at);
    }
    for (size_t i = 0; takes_part && i < calls.size(); ++i)
      timer_(program_.graph.calls[calls[i].value], own_s);
    return at;
  }

 private:
  Status await_exchanges(const Instruction& instruction) {
    for (const InstructionId before : instruction.after)
      if (const Instruction& i = rank_.instructions[before.value]; i.code == OpCode::kExchange)
        BRAID_TRY(executor_.arrive(i.detail));
    return ok_status();
  }

  Status begin_ahead(size_t at) {
    BRAID_TRY(begin_loads(at));
    return begin_messages(at);
  }

  // Whether all that an instruction further on waits for has ended.
  static bool may_begin(const Instruction& next, size_t at) {
    return std::all_of(next.after.begin(), next.after.end(), [&](InstructionId before) {
      return static_cast<size_t>(before.value) < at;
    });
  }

  // Loads further on that wait for nothing from here on pass beside the call that begins.
  Status begin_loads(size_t at) {
    for (size_t i = at + 1; i < rank_.instructions.size(); ++i) {
      const Instruction& load = rank_.instructions[i];
      if (load.code != OpCode::kLoad || !may_begin(load, at)) continue;
      BRAID_TRY(guarded([&] {
                  return executor_.begin_load(load.detail, load.layers);
                }).at(cat("call ", call_of(load).name, ", instruction ", i)));
    }
    return ok_status();
  }

  static bool moves_weights(const Instruction& i) {
    return i.code == OpCode::kSend || i.code == OpCode::kReceive;
  }

  // Messages of weights wait for others of their call where a relay passes them on, and for state
  // of their call, which may be what they send.
  bool held_up(const Instruction& i, size_t at) const {
    if (i.code == OpCode::kLoad) return true;
    return moves_weights(i) && std::any_of(i.after.begin(), i.after.end(), [&](InstructionId id) {
             const Instruction& before = rank_.instructions[id.value];
             const bool relayed = before.call == i.call && moves_weights(before);
             return !relayed && static_cast<size_t>(id.value) >= at;
           });
  }

  // Messages of weights further on pass beside the call that begins, in the order of their calls,
  // which is that of the other ranks.
  Status begin_messages(size_t at) {
    const std::vector<Instruction>& list = rank_.instructions;
    for (size_t i = at + 1; i < list.size();) {
      const CallId call = list[i].call;
      const Instruction& first = list[i];
      bool moves = false, waits = false;
      for (; i < list.size() && list[i].call == call; ++i) {
        moves = moves || moves_weights(list[i]);
        waits = waits || held_up(list[i], at);
      }
      if (!moves) continue;
      if (waits) return ok_status();
      BRAID_TRY(guarded([&] {
                  return executor_.begin_messages(call);
                }).at(cat("call ", call_of(first).name, ", messages of weights")));
    }
    return ok_status();
  }

  const Call& call_of(const Instruction& instruction) const {
    return program_.graph.calls[instruction.call.value];
  }

  const Program& program_;
  const RankProgram& rank_;
  Executor& executor_;
  const CallSeconds& timer_;
  const InstructionObserver& observer_;
};

}  // namespace

CallId call_id(const Program& program, const Call& call) {
  return CallId{static_cast<int32_t>(&call - program.graph.calls.data())};
}

Status out_of_memory(const std::string& detail) {
  return {Code::kOutOfMemory,
          cat("out of memory", detail.empty() ? "" : cat(" (", detail, ")"),
              "; lower train.micro_tokens, rollout.kv_budget_tokens or rollout.max_concurrent")};
}

// The only place where exceptions of the libraries below become failures.
Status guarded(const std::function<Status()>& run) {
  try {
    return run();
  } catch (const CommunicationFailure& failure) {
    return failure.status();
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const std::exception& error) {
    const std::string text = first_line(error.what());
    return is_out_of_memory(error) ? out_of_memory(text) : Status(Code::kUnavailable, text);
  }
}

Status interpret(const Program& program, size_t rank, Executor& executor, const CallSeconds& timer,
                 const InstructionObserver& observer, size_t begin) {
  const RankProgram& list = program.ranks[rank];
  CallRun run(program, list, executor, timer, observer);
  size_t at = begin;
  for (const Together& calls : call_order(program)) {
    if (done_before(list, calls, begin)) continue;
    for (const CallId id : calls)
      BRAID_TRY(guarded([&] {
                  return executor.before_call(id);
                }).at(cat("call ", program.graph.calls[id.value].name)));
    BRAID_ASSIGN(at, run.run(calls, at));
    for (const CallId id : calls) executor.after_call(id);
  }
  BRAID_CHECK(at == list.instructions.size(), "a call's instructions lie apart from each other");
  return ok_status();
}

}  // namespace braid
