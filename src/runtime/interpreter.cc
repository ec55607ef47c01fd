#include "runtime/interpreter.h"

#include <chrono>
#include <exception>
#include <new>

#include "base/text.h"
#include "comm/communicator.h"

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
    case OpCode::kSend:
    case OpCode::kReceive:
      return ok_status();  // fields: before_call() and after_call() move what the deal says
    case OpCode::kRelease:
      executor.release(instruction.detail);
      return ok_status();
    case OpCode::kGather:
      return ok_status();  // optimizer_step() ends with it: a failure between them must save
                           // nothing
    case OpCode::kLoad:
      return executor.load(instruction.detail);
    case OpCode::kOffload:
      return executor.offload(instruction.detail);
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

// Whether the call has instructions and all of them come before `begin`.
bool done_before(const RankProgram& rank, CallId call, size_t begin) {
  bool found = false;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    if (rank.instructions[i].call != call) continue;
    if (i >= begin) return false;
    found = true;
  }
  return found;
}

// Executes the instructions of one call, from `at` on; returns where the next call's begin.
class CallRun {
 public:
  CallRun(const Graph& graph, const RankProgram& rank, Executor& executor,
          const InstructionObserver& observer)
      : graph_(graph), rank_(rank), executor_(executor), observer_(observer) {}

  Result<size_t> run(CallId id, size_t at) {
    const Call& call = graph_.calls[id.value];
    size_t region_begin = at;
    if (find_region(rank_, at, &region_begin)) BRAID_TRY(executor_.reopen_region(call));
    while (at < rank_.instructions.size() && rank_.instructions[at].call == id) {
      const Instruction& instruction = rank_.instructions[at];
      if (instruction.code == OpCode::kRegionBegin) region_begin = at;
      BRAID_TRY(guarded([&] {
                  if (observer_) observer_(at);
                  return execute(instruction, call, executor_);
                }).at(cat("call ", call.name, ", instruction ", at)));
      const bool closes = instruction.code == OpCode::kRegionEnd;
      const bool again = closes && !executor_.region_done(instruction.exit);
      const bool ends = instruction.code == OpCode::kCall || (closes && !again);
      at = again ? region_begin + 1 : at + 1;
      // Weights change in an optimizer step alone: a failure right after it must not repeat it.
      const bool updated = instruction.code == OpCode::kOptimizerStep;
      if (ends || again || updated) executor_.passed(at);
    }
    return at;
  }

 private:
  const Graph& graph_;
  const RankProgram& rank_;
  Executor& executor_;
  const InstructionObserver& observer_;
};

}  // namespace

// The only place where exceptions of the libraries below become failures.
Status guarded(const std::function<Status()>& run) {
  try {
    return run();
  } catch (const CommunicationFailure& failure) {
    return failure.status();
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const std::exception& error) {
    std::string text = error.what();  // libtorch adds a stack below the first line
    text = text.substr(0, text.find('\n'));
    return is_out_of_memory(text) ? out_of_memory(text) : Status(Code::kUnavailable, text);
  }
}

std::vector<CallId> call_order(const Program& program) {
  std::vector<CallId> order;
  if (program.ranks.size() > 1) {
    for (size_t i = 0; i < program.graph.calls.size(); ++i)
      order.push_back(CallId{static_cast<int32_t>(i)});
    return order;
  }
  for (const Instruction& instruction : program.ranks[0].instructions)
    if (order.empty() || order.back() != instruction.call) order.push_back(instruction.call);
  return order;
}

Status interpret(const Program& program, size_t rank, Executor& executor, const CallSeconds& timer,
                 const InstructionObserver& observer, size_t begin) {
  using Clock = std::chrono::steady_clock;
  const RankProgram& list = program.ranks[rank];
  CallRun run(program.graph, list, executor, observer);
  size_t at = begin;
  for (const CallId id : call_order(program)) {
    if (done_before(list, id, begin)) continue;
    const Call& call = program.graph.calls[id.value];
    const std::string place = cat("call ", call.name);
    BRAID_TRY(guarded([&] { return executor.before_call(id); }).at(place));
    const Clock::time_point started = Clock::now();
    const size_t first = at;
    BRAID_ASSIGN(at, run.run(id, at));
    if (at > first) timer(call, std::chrono::duration<double>(Clock::now() - started).count());
    BRAID_TRY(guarded([&] { return executor.after_call(id); }).at(place));
  }
  BRAID_CHECK(at == list.instructions.size(), "a call's instructions lie apart from each other");
  return ok_status();
}

}  // namespace braid
