#include "program/program.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "base/contains.h"
#include "base/text.h"
#include "program/early_update.h"
#include "program/lower.h"

namespace braid::inline program {
namespace {

Program lower_in_order(const Graph& graph, const std::vector<CallId>& order) {
  const auto waits = waited_for(graph);
  // By call: what it ends with, its share included, and where it begins.
  std::vector<InstructionId> last(graph.calls.size(), InstructionId{-1}), begin = last;
  Program program;
  program.graph = graph;
  program.staleness = steps_ahead(graph);
  program.ranks.resize(1);
  RankProgram& out = program.ranks[0];
  const auto append = [&out](Instruction instruction) {
    out.instructions.push_back(std::move(instruction));
    return InstructionId{static_cast<int32_t>(out.instructions.size()) - 1};
  };
  const auto shares = shares_before(graph, order);
  const auto share_before = [&](size_t place, CallId beside) {
    for (const CallId before : shares[place])
      last[before.value] = append({OpKind::kShare,
                                   beside,
                                   ExitCondition::kNone,
                                   {last[before.value]},
                                   add_share(before, {DeviceId{0}}, &program)});
  };
  for (size_t place = 0; place < order.size(); ++place) {
    const CallId id = order[place];
    share_before(place, id);
    std::vector<Instruction> block = lower(graph.calls[id.value], id);
    for (const CallId before : waits[id.value])
      if (last[before.value].value >= 0) block.front().after.push_back(last[before.value]);
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i].kind == OpKind::kRepeat)
        block[i].detail = begin[fetch_of(graph, id).value].value;
      if (i > 0) block[i].after.push_back(last[id.value]);
      last[id.value] = append(std::move(block[i]));
      if (i == 0) begin[id.value] = last[id.value];
    }
  }
  share_before(order.size(), order.back());
  return program;
}

std::string interval_text(const Interval& interval) {
  return cat(interval.begin, "-", interval.end);
}

// What a message carries: "query[layers 0-4, 0-4096]".
void write_parts(const Message& message, std::ostream& out) {
  for (const MessagePart& part : message.parts) {
    out << " tensor " << part.item << "[layers " << interval_text(part.layers) << ", "
        << interval_text(part.units) << "]";
  }
}

// "early samples", or "part 3 of 4" of a call in as many, where an update begins early.
std::string part_text(const Program& program, CallId call, SamplePart part) {
  const bool numbered = begins_early(program, call) || scores_beside(program, call);
  return numbered
             ? cat("part ", static_cast<int>(part), " of ", parts_of_call(program, call).size())
             : cat(part_name(part), " samples");
}

void write_exchange(const Program& program, const Exchange& exchange, std::ostream& out) {
  if (!exchange.shared())
    out << " for " << program.graph.calls[exchange.consumer.value].name << ":";
  for (const std::string& field : exchange.fields) out << " " << field;
  if (exchange.shared()) return;
  if (exchange.part != SamplePart::kAll)
    out << " of " << part_text(program, exchange.consumer, exchange.part);
  out << " of " << program.graph.calls[exchange.producer.value].name << " among ranks";
  for (const DeviceId member : exchange.members) out << " " << member;
}

// The messages of one rank among those of a reallocation.
void write_reallocation(const Program& program, const Reallocation& reallocation, DeviceId rank,
                        std::ostream& out) {
  out << " copy " << reallocation.copy << " of " << program.copies[reallocation.copy].role;
  for (const Message& message : reallocation.messages) {
    if (message.from == rank) {
      out << "; to " << message.to << " " << format_bytes(message.bytes);
      write_parts(message, out);
    }
    if (message.to == rank) out << "; from " << message.from << " " << format_bytes(message.bytes);
  }
}

void write_detail(const Program& program, const Instruction& instruction, DeviceId rank,
                  std::ostream& out) {
  if (instruction.detail < 0) return;
  switch (instruction.kind) {
    case OpKind::kReallocate:
      return write_reallocation(program, program.reallocations[instruction.detail], rank, out);
    case OpKind::kShare:
    case OpKind::kExchange:
      return write_exchange(program, program.exchanges[instruction.detail], out);
    case OpKind::kReduce:
    case OpKind::kAgree:
    case OpKind::kTally:
    case OpKind::kAllGather:
      out << " over ranks";
      for (const DeviceId member : program.groups[instruction.detail].members) out << " " << member;
      return;
    case OpKind::kLoad:
    case OpKind::kOffload:
      out << " " << program.states[instruction.detail].role
          << (program.states[instruction.detail].optimizer ? " optimizer" : " weights");
      if (instruction.layers.size() > 0) out << " layers " << interval_text(instruction.layers);
      return;
    case OpKind::kRepeat:
      out << " from " << instruction.detail;
      return;
    case OpKind::kPasses:
      for (const CallId other : program.fused[instruction.detail].calls)
        if (other != instruction.call)
          out << " fused with " << program.graph.calls[other.value].name;
      return;
    default:
      out << " copy " << instruction.detail << " of " << program.copies[instruction.detail].role;
  }
}

void write_instruction(const Program& program, const Instruction& instruction, DeviceId rank,
                       std::ostream& out) {
  const Call& call = program.graph.calls[instruction.call.value];
  const bool names_call = instruction.kind == OpKind::kCall ||
                          instruction.kind == OpKind::kRegionBegin ||
                          instruction.kind == OpKind::kRegionEnd;
  const bool inside = inside_region(instruction.kind) && instruction.kind != OpKind::kRegionEnd;
  out << (inside ? "    " : "  ") << op_kind_name(instruction.kind) << " " << call.name;
  if (names_call)
    out << " (" << call_kind_name(call.kind)
        << (call.role.value.empty() ? "" : " " + call.role.value)
        << (call.function.empty() ? "" : " " + call.function) << ")";
  if (names_call && call.steps_ahead > 0) out << " of step + " << call.steps_ahead;
  if (instruction.exit != ExitCondition::kNone)
    out << " until " << exit_condition_name(instruction.exit);
  if (instruction.part != SamplePart::kAll)
    out << ", " << part_text(program, instruction.call, instruction.part);
  if (instruction.kind == OpKind::kTally && !counts_together(instruction.part))
    out << " by messages of those that went on";
  write_detail(program, instruction, rank, out);
  if (!instruction.after.empty()) out << " after";
  for (const InstructionId before : instruction.after) out << " " << before;
  if (!instruction.within.empty()) out << " within";
  for (const InstructionId load : instruction.within) out << " " << load;
}

}  // namespace

PlaceInPair place_in_pair(const Program& program, CallId call) {
  for (size_t entry = 0; entry < program.fused.size(); ++entry)
    for (int32_t c = 0; c < 2; ++c)
      if (program.fused[entry].calls[c] == call) return {static_cast<int32_t>(entry), c};
  return {};
}

std::vector<SamplePart> parts_of_call(const Program& program, CallId call) {
  int64_t parts = hand_overs_of(program, call);
  if (begins_early(program, call) || scores_beside(program, call)) {
    parts += program.early_update.parts;
  } else if (parts > 0) {
    ++parts;
  }
  if (parts == 0) return {SamplePart::kAll};
  std::vector<SamplePart> out;
  for (int64_t part = 1; part <= parts; ++part) out.push_back(static_cast<SamplePart>(part));
  return out;
}

int64_t hand_overs_of(const Program& program, CallId call) {
  const FusedScoring& fused = program.scoring;
  const bool handed = fused.is_on() && (fused.generate == call || contains(fused.scorers, call) ||
                                        fused.streamed.has(call));
  return handed ? fused.hand_overs() : 0;
}

bool of_hand_over(const Program& program, CallId call, SamplePart part) {
  return part != SamplePart::kAll && static_cast<int64_t>(part) <= hand_overs_of(program, call);
}

std::string part_name(SamplePart part) {
  switch (part) {
    case SamplePart::kAll:
      return "all";
    case SamplePart::kEarly:
      return "early";
    case SamplePart::kLate:
      return "late";
  }
  return cat("part ", static_cast<int>(part));
}

const char* exit_condition_name(ExitCondition condition) {
  switch (condition) {
    case ExitCondition::kNone:
      return "none";
    case ExitCondition::kDrained:
      return "drained";
    case ExitCondition::kMinibatchesDone:
      return "minibatches_done";
    case ExitCondition::kFilled:
      return "filled";
    case ExitCondition::kFewLeft:
      return "few_left";
    case ExitCondition::kEnoughGroups:
      return "enough_groups";
  }
  return "unknown";
}

Result<Program> compile(const Graph& graph) {
  BRAID_TRY(verify(graph));
  std::vector<CallId> order;
  for (size_t i = 0; i < graph.calls.size(); ++i) order.push_back(CallId{static_cast<int32_t>(i)});
  Program program = lower_in_order(graph, order);
  BRAID_TRY(verify(program));
  return program;
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
  Program out = lower_in_order(program.graph, order);
  BRAID_TRY(verify(out));
  return out;
}

std::string executed_instruction(const Program& program, size_t rank, size_t index) {
  const Instruction& instruction = program.ranks[rank].instructions[index];
  return cat(index, " ", op_kind_name(instruction.kind), " ",
             program.graph.calls[instruction.call.value].name, "\n");
}

std::string program_text(const Program& program) {
  std::ostringstream out;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& list = program.ranks[rank].instructions;
    out << "rank " << rank << ": " << list.size() << " instructions of graph " << program.graph.name
        << "\n";
    for (size_t i = 0; i < list.size(); ++i) {
      out << "  " << i;
      write_instruction(program, list[i], DeviceId{static_cast<int32_t>(rank)}, out);
      out << "\n";
    }
  }
  return out.str();
}

}  // namespace braid::inline program
