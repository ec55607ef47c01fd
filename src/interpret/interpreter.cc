#include "interpret/interpreter.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>

#include "base/text.h"
#include "comm/communicator.h"
#include "device/tensor_memory.h"

namespace braid::inline interpret {
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
    case OpCode::kReallocate:
      return executor.begin_reallocation(instruction.detail, true);
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

// The calls that run together with this one: itself, and one that it is fused with.
Together together_with(const Program& program, CallId call) {
  for (const FusedCalls& fused : program.fused)
    if (fused.calls[0] == call || fused.calls[1] == call) return {fused.calls[0], fused.calls[1]};
  return {call};
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
      const std::string place = cat("call ", call.name, ", instruction ", at);
      BRAID_TRY(guarded([&] {
                  if (observer_) observer_(at);
                  return await_moves(instruction);
                }).at(place));
      const Clock::time_point started = Clock::now();
      BRAID_TRY(guarded([&] { return execute(instruction, call, executor_); }).at(place));
      const bool moves = instruction.code == OpCode::kShare ||
                         instruction.code == OpCode::kExchange ||
                         instruction.code == OpCode::kReallocate;
      if (!moves) own_s += std::chrono::duration<double>(Clock::now() - started).count();
      takes_part = takes_part || !moves;
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
  // What the instruction waits for of what passes beside computation. (Who reads state from the
  // host waits for its loads itself.)
  Status await_moves(const Instruction& instruction) {
    for (const InstructionId before : instruction.after) {
      const Instruction& i = rank_.instructions[before.value];
      if (i.code == OpCode::kExchange) BRAID_TRY(executor_.arrive(i.detail));
      if (i.code == OpCode::kReallocate) BRAID_TRY(executor_.reallocated(i.detail));
    }
    return ok_status();
  }

  // Whether all that an instruction further on waits for has ended.
  static bool may_begin(const Instruction& next, size_t at) {
    return std::all_of(next.after.begin(), next.after.end(), [&](InstructionId before) {
      return static_cast<size_t>(before.value) < at;
    });
  }

  // Loads and reallocations further on that wait for nothing from here on pass beside the call that
  // begins.
  Status begin_ahead(size_t at) {
    for (size_t i = at + 1; i < rank_.instructions.size(); ++i) {
      const Instruction& next = rank_.instructions[i];
      const bool moves = next.code == OpCode::kReallocate;
      if ((!moves && next.code != OpCode::kLoad) || !may_begin(next, at)) continue;
      BRAID_TRY(guarded([&] {
                  return moves ? executor_.begin_reallocation(next.detail, false)
                               : executor_.begin_load(next.detail, next.layers);
                }).at(cat("call ", call_of(next).name, ", instruction ", i)));
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

Status run_list(const Program& program, size_t rank, Executor& executor, const CallSeconds& timer,
                const InstructionObserver& observer, size_t begin) {
  const RankProgram& list = program.ranks[rank];
  CallRun run(program, list, executor, timer, observer);
  for (size_t at = begin; at < list.instructions.size();) {
    BRAID_ASSIGN(at, run.run(together_with(program, list.instructions[at].call), at));
  }
  return ok_status();
}

}  // namespace braid::inline interpret
