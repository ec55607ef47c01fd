#include "runtime/interpreter.h"

#include <chrono>
#include <exception>
#include <new>

#include "base/text.h"

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
    case OpCode::kSend:
    case OpCode::kReceive:
    case OpCode::kReduce:
    case OpCode::kGather:
    case OpCode::kLoad:
    case OpCode::kOffload:
    case OpCode::kRelease:
      return invalid_input(cat("the plan needs '", op_code_name(instruction.code),
                               "', which one process does not execute; plan for one device"));
  }
  BRAID_CHECK(false, "unknown instruction");
}

// The only place where exceptions of the libraries below become failures.
Status guarded(const Instruction& instruction, const Call& call, Executor& executor) {
  try {
    return execute(instruction, call, executor);
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory,
            "out of memory; lower train.micro_tokens or rollout.max_concurrent"};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {Code::kUnavailable, text.substr(0, text.find('\n'))};
  }
}

}  // namespace

Status interpret(const Graph& graph, const RankProgram& rank, Executor& executor,
                 const CallTimer& timer, const InstructionObserver& observer) {
  using Clock = std::chrono::steady_clock;
  size_t region_begin = 0;
  Clock::time_point started;
  for (size_t at = 0; at < rank.instructions.size();) {
    const Instruction& instruction = rank.instructions[at];
    const Call& call = graph.calls[instruction.call.value];
    const bool starts =
        instruction.code == OpCode::kCall || instruction.code == OpCode::kRegionBegin;
    if (starts) started = Clock::now();
    if (instruction.code == OpCode::kRegionBegin) region_begin = at;
    if (observer) observer(at);
    BRAID_TRY(
        guarded(instruction, call, executor).at(cat("call ", call.name, ", instruction ", at)));
    const bool again =
        instruction.code == OpCode::kRegionEnd && !executor.region_done(instruction.exit);
    const bool ends =
        instruction.code == OpCode::kCall || (instruction.code == OpCode::kRegionEnd && !again);
    if (ends) timer(call, std::chrono::duration<double>(Clock::now() - started).count());
    at = again ? region_begin + 1 : at + 1;
  }
  return ok_status();
}

}  // namespace braid
