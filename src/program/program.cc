#include "program/program.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>

#include "base/text.h"

namespace braid {
namespace {

// The instructions that one call becomes.
std::vector<Instruction> lower(const Call& call, CallId id) {
  const auto region = [&](ExitCondition exit, std::vector<OpCode> body) {
    std::vector<Instruction> out = {{OpCode::kRegionBegin, id, exit, {}}};
    for (const OpCode code : body) out.push_back({code, id, ExitCondition::kNone, {}});
    out.push_back({OpCode::kRegionEnd, id, exit, {}});
    return out;
  };
  switch (call.kind) {
    case CallKind::kGenerate:
      return region(ExitCondition::kDrained, {OpCode::kGenerateStep, OpCode::kAgree});
    case CallKind::kTrainStep:
      return region(ExitCondition::kMinibatchesDone,
                    {OpCode::kSchedule, OpCode::kAgree, OpCode::kOptimizerStep});
    default:
      return {{OpCode::kCall, id, ExitCondition::kNone, {}}};
  }
}

RankProgram lower_in_order(const Graph& graph, const std::vector<CallId>& order) {
  const auto waits = dependencies(graph);
  std::vector<InstructionId> last(graph.calls.size(), InstructionId{-1});
  RankProgram out;
  for (const CallId id : order) {
    std::vector<Instruction> block = lower(graph.calls[id.value], id);
    for (const CallId before : waits[id.value]) block.front().after.push_back(last[before.value]);
    for (size_t i = 0; i < block.size(); ++i) {
      const auto here = static_cast<int32_t>(out.instructions.size());
      if (i > 0) block[i].after.push_back(InstructionId{here - 1});
      out.instructions.push_back(std::move(block[i]));
    }
    last[id.value] = InstructionId{static_cast<int32_t>(out.instructions.size()) - 1};
  }
  return out;
}

Status verify_rank(const Graph& graph, const RankProgram& rank) {
  std::set<int32_t> seen;
  bool open = false;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    const Instruction& instruction = rank.instructions[i];
    const std::string where = cat("instruction ", i, " (", op_code_name(instruction.code), ")");
    for (const InstructionId before : instruction.after)
      if (before.value < 0 || before.value >= static_cast<int32_t>(i))
        return invalid_input(
            cat(where, ": waits for instruction ", before, ", which is not earlier"));
    const bool starts =
        instruction.code == OpCode::kCall || instruction.code == OpCode::kRegionBegin;
    if (starts && open) return invalid_input(cat(where, ": a region is still open"));
    if (starts && !seen.insert(instruction.call.value).second)
      return invalid_input(
          cat(where, ": call ", graph.calls[instruction.call.value].name, " occurs twice"));
    if (!starts && !open) return invalid_input(cat(where, ": outside of a region"));
    if (instruction.code == OpCode::kRegionBegin) open = true;
    if (instruction.code == OpCode::kRegionEnd) open = false;
  }
  if (open) return invalid_input("the last region is not closed");
  if (seen.size() != graph.calls.size()) return invalid_input("not every call of the graph occurs");
  return ok_status();
}

}  // namespace

const char* op_code_name(OpCode code) {
  switch (code) {
    case OpCode::kCall:
      return "call";
    case OpCode::kRegionBegin:
      return "region_begin";
    case OpCode::kRegionEnd:
      return "region_end";
    case OpCode::kGenerateStep:
      return "generate_step";
    case OpCode::kSchedule:
      return "schedule";
    case OpCode::kAgree:
      return "agree";
    case OpCode::kOptimizerStep:
      return "optimizer_step";
  }
  return "unknown";
}

const char* exit_condition_name(ExitCondition condition) {
  switch (condition) {
    case ExitCondition::kNone:
      return "none";
    case ExitCondition::kDrained:
      return "drained";
    case ExitCondition::kMinibatchesDone:
      return "minibatches_done";
  }
  return "unknown";
}

Result<Program> compile(const Graph& graph) {
  BRAID_TRY(verify(graph));
  std::vector<CallId> order;
  for (size_t i = 0; i < graph.calls.size(); ++i) order.push_back(CallId{static_cast<int32_t>(i)});
  Program program{graph, {lower_in_order(graph, order)}};
  BRAID_TRY(verify(program));
  return program;
}

Status verify(const Program& program) {
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    BRAID_TRY(verify_rank(program.graph, program.ranks[rank]).at(cat("program of rank ", rank)));
  return ok_status();
}

Result<Program> reorder(const Program& program, const std::vector<CallId>& order) {
  const auto waits = dependencies(program.graph);
  std::set<int32_t> done;
  for (const CallId id : order) {
    for (const CallId before : waits[id.value])
      if (done.count(before.value) == 0)
        return invalid_input(cat("call ", program.graph.calls[id.value].name, " must come after ",
                                 program.graph.calls[before.value].name));
    done.insert(id.value);
  }
  Program out{program.graph, {lower_in_order(program.graph, order)}};
  BRAID_TRY(verify(out));
  return out;
}

std::string program_text(const Program& program) {
  std::ostringstream out;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& list = program.ranks[rank].instructions;
    out << "rank " << rank << ": " << list.size() << " instructions of graph " << program.graph.name
        << "\n";
    for (size_t i = 0; i < list.size(); ++i) {
      const Call& call = program.graph.calls[list[i].call.value];
      const bool inside = list[i].code != OpCode::kCall && list[i].code != OpCode::kRegionBegin &&
                          list[i].code != OpCode::kRegionEnd;
      out << "  " << i << (inside ? "    " : "  ") << op_code_name(list[i].code) << " "
          << call.name;
      if (!inside)
        out << " (" << call_kind_name(call.kind)
            << (call.role.value.empty() ? "" : " " + call.role.value)
            << (call.function.empty() ? "" : " " + call.function) << ")";
      if (list[i].exit != ExitCondition::kNone)
        out << " until " << exit_condition_name(list[i].exit);
      if (!list[i].after.empty()) {
        out << " after";
        for (const InstructionId before : list[i].after) out << " " << before;
      }
      out << "\n";
    }
  }
  return out.str();
}

// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::string program_hash(const Program& program) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : program_text(program))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace braid
