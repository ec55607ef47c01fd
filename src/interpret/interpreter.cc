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

// Whether `at` lies in a region's body; its begin is then in region_begin.
bool find_region(const RankProgram& rank, size_t at, size_t* region_begin) {
  bool inside = false;
  for (size_t i = 0; i < at; ++i) {
    if (rank.instructions[i].kind == OpKind::kRegionBegin) *region_begin = i;
    if (rank.instructions[i].kind == OpKind::kRegionBegin) inside = true;
    if (rank.instructions[i].kind == OpKind::kRegionEnd) inside = false;
  }
  return inside;
}

// Whether weights have changed on all who hold them when this instruction has ended.
bool completes_update(const RankProgram& rank, size_t at) {
  const OpKind kind = rank.instructions[at].kind;
  const bool gathered =
      at + 1 < rank.instructions.size() && rank.instructions[at + 1].kind == OpKind::kAllGather;
  return kind == OpKind::kAllGather || (kind == OpKind::kUpdate && !gathered);
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
    if (find_region(rank_, at, &region_begin)) BRAID_TRY(executor_.reopen(rank_.instructions[at]));
    while (at < rank_.instructions.size() && is_of(rank_.instructions[at], calls)) {
      const Instruction& instruction = rank_.instructions[at];
      if (instruction.kind == OpKind::kRegionBegin) region_begin = at;
      if (starts_call(instruction.kind)) BRAID_TRY(begin_ahead(at));
      const bool closes = instruction.kind == OpKind::kRegionEnd;
      const std::string place = cat("call ", call_of(instruction).name, ", instruction ", at);
      BRAID_TRY(guarded([&] {
                  if (observer_) observer_(at);
                  return await_moves(instruction);
                }).at(place));
      const Clock::time_point started = Clock::now();
      const bool again = closes && !executor_.region_done(instruction.exit);
      if (!again) BRAID_TRY(guarded([&] { return executor_.execute(instruction); }).at(place));
      const bool moves = moves_fields(instruction.kind) || instruction.kind == OpKind::kReallocate;
      if (!moves) own_s += std::chrono::duration<double>(Clock::now() - started).count();
      takes_part = takes_part || !moves;
      const bool ends = instruction.kind == OpKind::kCall || (closes && !again);
      // Weights change in updates alone: a failure right after one must not repeat it.
      const bool updated = completes_update(rank_, at);
      at = again ? region_begin + 1 : at + 1;
      if (ends || again || updated || instruction.kind == OpKind::kShare) executor_.passed(at);
    }
    for (size_t i = 0; takes_part && i < calls.size(); ++i)
      timer_(program_.graph.calls[calls[i].value], own_s);
    return at;
  }

 private:
  // What the instruction waits for of what passes beside computation.
  Status await_moves(const Instruction& instruction) {
    for (const InstructionId before : instruction.after) {
      const Instruction& i = rank_.instructions[before.value];
      if (i.kind == OpKind::kExchange || i.kind == OpKind::kReallocate)
        BRAID_TRY(executor_.wait_for(i));
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
      const bool ahead = next.kind == OpKind::kReallocate || next.kind == OpKind::kLoad;
      if (!ahead || !may_begin(next, at)) continue;
      BRAID_TRY(guarded([&] {
                  return executor_.begin_ahead(next);
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
  for (size_t at = begin; at < list.instructions.size();) {
    BRAID_ASSIGN(at, run.run(together_with(program, list.instructions[at].call), at));
  }
  return ok_status();
}

}  // namespace braid
