#include "interpret/interpreter.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <optional>

#include "base/text.h"
#include "comm/communicator.h"
#include "device/tensor_memory.h"

namespace braid::inline interpret {
namespace {

using List = std::vector<Instruction>;

// Where a region's body begins: behind the begins of its calls, two of which may share it.
size_t body_behind(const List& list, size_t region_begin) {
  size_t at = region_begin;
  while (at < list.size() && list[at].kind == OpKind::kRegionBegin) ++at;
  return at;
}

// The first begin of the region whose body `at` lies in, its ends included; none: in no region.
std::optional<size_t> region_around(const List& list, size_t at) {
  if (at >= list.size() || !inside_region(list[at].kind)) return std::nullopt;
  while (list[at].kind != OpKind::kRegionBegin) --at;
  while (at > 0 && list[at - 1].kind == OpKind::kRegionBegin) --at;
  return at;
}

// Whether weights have changed on all who hold them when this instruction has ended.
bool completes_update(const List& list, size_t at) {
  const OpKind kind = list[at].kind;
  const bool gathered = at + 1 < list.size() && list[at + 1].kind == OpKind::kAllGather;
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
      : program_(program),
        list_(rank.instructions),
        executor_(executor),
        timer_(timer),
        observer_(observer) {}

  Result<size_t> run(const Together& calls, size_t at) {
    double own_s = 0;
    bool takes_part = false;
    BRAID_TRY(reopen(at));
    while (at < list_.size() && is_of(list_[at], calls)) {
      const Instruction& instruction = list_[at];
      if (starts_call(instruction.kind)) BRAID_TRY(begin_ahead(at));
      const bool closes =
          instruction.kind == OpKind::kRegionEnd || instruction.kind == OpKind::kRepeat;
      const std::string place = cat("call ", call_of(instruction).name, ", instruction ", at);
      BRAID_TRY(guarded([&] {
                  if (observer_) observer_(at);
                  return await_moves(instruction);
                }).at(place));
      const Clock::time_point started = Clock::now();
      const bool again = closes && !region_done(at);
      if (!again) BRAID_TRY(guarded([&] { return executor_.execute(instruction); }).at(place));
      const bool moves = moves_fields(instruction.kind) ||
                         instruction.kind == OpKind::kReallocate ||
                         instruction.kind == OpKind::kHandOver;
      if (!moves) own_s += std::chrono::duration<double>(Clock::now() - started).count();
      takes_part = takes_part || !moves;
      // Weights change in updates alone: a failure right after one must not repeat it.
      const bool passed = instruction.kind == OpKind::kCall || closes ||
                          instruction.kind == OpKind::kShare || completes_update(list_, at);
      at = again ? body_of(at) : at + 1;  // of a repeat: instructions of other calls
      if (passed) executor_.passed(goes_on_at(at));
    }
    for (size_t i = 0; takes_part && i < calls.size(); ++i)
      timer_(program_.graph.calls[calls[i].value], own_s);
    return at;
  }

 private:
  // Where to go on at an end whose exit condition does not hold.
  size_t body_of(size_t end) const {
    if (list_[end].kind == OpKind::kRepeat) return list_[end].detail;
    return body_behind(list_, *region_around(list_, end));
  }

  // Opens all calls again of the region that is entered within its body.
  Status reopen(size_t at) {
    const auto begin = region_around(list_, at);
    for (size_t i = begin.value_or(at); begin && i < body_behind(list_, *begin); ++i)
      BRAID_TRY(executor_.reopen(list_[i]));
    return ok_status();
  }

  // Whether all calls of the region that ends here are done. REQUIRES: `at` is an end.
  bool region_done(size_t at) const {
    if (list_[at].kind == OpKind::kRepeat) return executor_.region_done(list_[at]);
    for (; at < list_.size() && list_[at].kind == OpKind::kRegionEnd; ++at)
      if (!executor_.region_done(list_[at])) return false;
    return true;
  }

  // Where to go on when all before `at` is done. Within the region of two calls one may have made
  // its update and the other not: both go on with what they come to next.
  size_t goes_on_at(size_t at) const {
    const auto begin = region_around(list_, at);
    const bool shared = begin && body_behind(list_, *begin) > *begin + 1;
    return shared ? body_behind(list_, *begin) : at;
  }

  // What the instruction waits for of what passes beside computation.
  Status await_moves(const Instruction& instruction) {
    for (const InstructionId before : instruction.after) {
      const Instruction& i = list_[before.value];
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
    for (size_t i = at + 1; i < list_.size(); ++i) {
      const Instruction& next = list_[i];
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
  const List& list_;
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
