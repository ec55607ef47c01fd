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

bool is_out_of_memory(const std::string& text) {
  for (const char* sign : {"can't allocate memory", "out of memory", "not enough memory"})
    if (text.find(sign) != std::string::npos) return true;
  return false;
}

Status out_of_memory(const std::string& detail) {
  return {Code::kOutOfMemory,
          cat("out of memory", detail.empty() ? "" : cat(" (", detail, ")"),
              "; lower train.micro_tokens, rollout.kv_budget_tokens or rollout.max_concurrent")};
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

}  // namespace

// The only place where exceptions of the libraries below become failures.
Status guarded(const std::function<Status()>& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const std::exception& error) {
    std::string text = error.what();  // libtorch adds a stack below the first line
    text = text.substr(0, text.find('\n'));
    return is_out_of_memory(text) ? out_of_memory(text) : Status(Code::kUnavailable, text);
  }
}

Status interpret(const Graph& graph, const RankProgram& rank, Executor& executor,
                 const CallTimer& timer, const InstructionObserver& observer, size_t begin) {
  using Clock = std::chrono::steady_clock;
  size_t region_begin = 0;
  Clock::time_point started = Clock::now();
  if (find_region(rank, begin, &region_begin))
    BRAID_TRY(executor.reopen_region(graph.calls[rank.instructions[begin].call.value]));
  for (size_t at = begin; at < rank.instructions.size();) {
    const Instruction& instruction = rank.instructions[at];
    const Call& call = graph.calls[instruction.call.value];
    const bool starts =
        instruction.code == OpCode::kCall || instruction.code == OpCode::kRegionBegin;
    if (starts) started = Clock::now();
    if (instruction.code == OpCode::kRegionBegin) region_begin = at;
    BRAID_TRY(guarded([&] {
                if (observer) observer(at);
                return execute(instruction, call, executor);
              }).at(cat("call ", call.name, ", instruction ", at)));
    const bool closes = instruction.code == OpCode::kRegionEnd;
    const bool again = closes && !executor.region_done(instruction.exit);
    const bool ends = instruction.code == OpCode::kCall || (closes && !again);
    if (ends) timer(call, std::chrono::duration<double>(Clock::now() - started).count());
    at = again ? region_begin + 1 : at + 1;
    // Weights change in an optimizer step alone: a failure right after it must not repeat it.
    const bool updated = instruction.code == OpCode::kOptimizerStep;
    if (ends || again || updated) executor.passed(at);
  }
  return ok_status();
}

}  // namespace braid
