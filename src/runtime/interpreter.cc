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
    case OpCode::kGather:
    case OpCode::kLoad:
    case OpCode::kOffload:
    case OpCode::kRelease:
      break;  // check_executable() refuses such plans
  }
  BRAID_CHECK(false, "unknown instruction");
}

// The only place where exceptions of the libraries below become failures.
Status guarded(const std::function<Status()>& run) {
  try {
    return run();
  } catch (const CommunicationFailure& failure) {
    return failure.status();
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory,
            "out of memory; lower train.micro_tokens or rollout.max_concurrent"};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {Code::kUnavailable, text.substr(0, text.find('\n'))};
  }
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
    while (at < rank_.instructions.size() && rank_.instructions[at].call == id) {
      const Instruction& instruction = rank_.instructions[at];
      if (instruction.code == OpCode::kRegionBegin) region_begin = at;
      if (observer_) observer_(at);
      BRAID_TRY(guarded([&] {
                  return execute(instruction, call, executor_);
                }).at(cat("call ", call.name, ", instruction ", at)));
      const bool again =
          instruction.code == OpCode::kRegionEnd && !executor_.region_done(instruction.exit);
      at = again ? region_begin + 1 : at + 1;
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

Status interpret(const Program& program, size_t rank, Executor& executor, const CallTimer& timer,
                 const InstructionObserver& observer) {
  using Clock = std::chrono::steady_clock;
  const RankProgram& list = program.ranks[rank];
  CallRun run(program.graph, list, executor, observer);
  size_t at = 0;
  for (const CallId id : call_order(program)) {
    const Call& call = program.graph.calls[id.value];
    const std::string place = cat("call ", call.name);
    BRAID_TRY(guarded([&] { return executor.before_call(id); }).at(place));
    const Clock::time_point started = Clock::now();
    const size_t begin = at;
    BRAID_ASSIGN(at, run.run(id, at));
    if (at > begin) timer(call, std::chrono::duration<double>(Clock::now() - started).count());
    BRAID_TRY(guarded([&] { return executor.after_call(id); }).at(place));
  }
  BRAID_CHECK(at == list.instructions.size(), "a call's instructions lie apart from each other");
  return ok_status();
}

}  // namespace braid
