// verify(program): the properties of each list, which a rank can check of its own alone, and those
// of all lists together.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/text.h"
#include "program/early_update.h"
#include "program/exchange.h"
#include "program/fused.h"
#include "program/placement.h"
#include "program/residency.h"
#include "program/streamed_update.h"
#include "program/verify_circles.h"
#include "program/verify_fields.h"
#include "program/verify_regions.h"
#include "program/verify_waits.h"
#include "program/verify_weights.h"

namespace braid::inline program {
namespace {

std::string place(size_t index, const Instruction& instruction) {
  return cat("instruction ", index, " (", op_kind_name(instruction.kind), ")");
}

// The size of the table that an instruction's detail points into; 0: it has none.
size_t table_size(const Program& program, OpKind kind) {
  switch (kind) {
    case OpKind::kReallocate:
      return program.reallocations.size();
    case OpKind::kShare:
    case OpKind::kExchange:
      return program.exchanges.size();
    case OpKind::kReduce:
    case OpKind::kAgree:
    case OpKind::kTally:
    case OpKind::kAllGather:
      return program.groups.size();
    case OpKind::kRepeat:
      return std::numeric_limits<int32_t>::max();  // verify_repeat() looks at it
    case OpKind::kPasses:
      return program.fused.size();
    case OpKind::kLoad:
    case OpKind::kOffload:
      return program.states.size();
    default:
      return program.copies.size();
  }
}

// A call, or its rounds, names the copy that it runs on where that is not the home's; what is freed
// behind a call is that. An update is about nothing else than its call.
Status verify_copy(const Program& program, const Instruction& i) {
  const bool runs = i.kind == OpKind::kCall || i.kind == OpKind::kRound;
  if (i.kind == OpKind::kUpdate)
    return i.detail < 0 ? ok_status() : invalid_input(cat("refers to entry ", i.detail));
  if (!runs && i.kind != OpKind::kRelease) return ok_status();
  const int32_t copy = program.calls.empty() ? -1 : program.calls[i.call.value].copy;
  const int32_t right = copy >= 0 && !program.copies[copy].home ? copy : -1;
  if (i.detail == right) return ok_status();
  return invalid_input(cat("names copy ", i.detail, " of weights, and its call has ", right));
}

Status verify_references(const Program& program, const Instruction& instruction, size_t index) {
  if (instruction.call.value < 0 || instruction.call.value >= std::ssize(program.graph.calls))
    return invalid_input(cat("is of call ", instruction.call, ", which the graph does not have"));
  for (const InstructionId before : instruction.after)
    if (before.value < 0 || before.value >= static_cast<int32_t>(index))
      return invalid_input(cat("waits for instruction ", before, ", which is not earlier"));
  const int32_t detail = instruction.detail;
  const bool needs = instruction.kind == OpKind::kReallocate || moves_fields(instruction.kind) ||
                     instruction.kind == OpKind::kReduce ||
                     instruction.kind == OpKind::kAllGather || instruction.kind == OpKind::kLoad ||
                     instruction.kind == OpKind::kOffload || instruction.kind == OpKind::kRelease;
  if (detail < (needs ? 0 : -1) ||
      detail >= static_cast<int32_t>(table_size(program, instruction.kind)))
    if (detail != -1 || needs)
      return invalid_input(cat("refers to entry ", detail, " of its table"));
  return verify_copy(program, instruction);
}

// A call, or one part of its samples.
using PartOfCall = std::pair<int32_t, SamplePart>;

std::set<PartOfCall> expected_calls(const Program& program, size_t rank) {
  std::set<PartOfCall> out;
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    bool here = program.calls.empty();
    if (!here)
      for (const DeviceId device : program.calls[i].mesh.devices)
        here = here || device.value == static_cast<int32_t>(rank);
    const auto id = static_cast<int32_t>(i);
    for (const SamplePart part : parts_of_call(program, CallId{id}))
      if (here) out.insert({id, part});
  }
  return out;
}

// How often a generation has been handed over where a part of a call stands.
int64_t handed_before(const Program& program, const Instruction& i) {
  const auto part = static_cast<int64_t>(i.part);
  if (i.call == program.scoring.generate) return part - 1;
  return of_hand_over(program, i.call, i.part) ? part : program.scoring.hand_overs();
}

// A generation is handed over on every rank as often as the plan says, between its parts, and what
// had finished is scored after each.
Status verify_hand_over(const Program& program, const std::vector<Instruction>& list) {
  const FusedScoring& scoring = program.scoring;
  if (!scoring.is_on()) return ok_status();
  if (scoring.pre_copy != 0 && (!scoring.cache || scoring.pre_copy <= scoring.below))
    return invalid_input(cat("caches are copied when at most ", scoring.pre_copy,
                             " samples are left, which is not before they are handed over"));
  int64_t handed = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind == OpKind::kHandOver) {
      if (list[i].call != program.scoring.generate)
        return invalid_input(cat(place(i, list[i]), ": is of another call than the generation"));
      if (static_cast<int64_t>(list[i].part) != ++handed || handed > program.scoring.hand_overs())
        return invalid_input(cat(place(i, list[i]), ": the generation is handed over too often"));
    }
    if (!starts_call(list[i].kind) || list[i].part == SamplePart::kAll) continue;
    if (handed_before(program, list[i]) != handed)
      return invalid_input(cat(place(i, list[i]), ": stands on the wrong side of the hand-over"));
  }
  return handed == program.scoring.hand_overs()
             ? ok_status()
             : invalid_input(cat("the generation is handed over ", handed, " times, not ",
                                 program.scoring.hand_overs()));
}

// Whether an instruction that is repeated would not do the same again.
bool runs_once(OpKind kind) {
  return moves_state(kind) || kind == OpKind::kReallocate || kind == OpKind::kRelease ||
         kind == OpKind::kUpdate;
}

// A repeat follows its call, goes back to that call's fetch, and repeats what may be.
Status verify_repeat(const Program& program, const std::vector<Instruction>& list, size_t at) {
  const Instruction& i = list[at];
  const bool selects = program.graph.calls[i.call.value].kind == CallKind::kSelect;
  const bool follows = at > 0 && list[at - 1].kind == OpKind::kCall && list[at - 1].call == i.call;
  if (!selects || !follows) return invalid_input("does not follow the call that it is of");
  if (i.exit != ExitCondition::kFilled) return invalid_input("has no exit condition");
  const bool begins = i.detail >= 0 && i.detail < static_cast<int32_t>(at) &&
                      list[i.detail].kind == OpKind::kCall &&
                      list[i.detail].call == fetch_of(program.graph, i.call);
  if (!begins) return invalid_input(cat("goes back to ", i.detail, ", which is not its fetch"));
  for (size_t between = i.detail; between < at; ++between)
    if (runs_once(list[between].kind))
      return invalid_input(
          cat("repeats ", place(between, list[between]), ", which moves or changes weights"));
  return ok_status();
}

// Whether the repeat of a call is where it should be: behind it.
bool lacks_repeat(const Program& program, const std::vector<Instruction>& list, size_t at) {
  if (list[at].kind != OpKind::kCall) return false;
  if (program.graph.calls[list[at].call.value].kind != CallKind::kSelect) return false;
  return at + 1 == list.size() || list[at + 1].kind != OpKind::kRepeat;
}

// Every call of a rank occurs once.
Status verify_calls(const Program& program, size_t rank) {
  std::set<PartOfCall> missing = expected_calls(program, rank);
  const auto& list = program.ranks[rank].instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    if (const Status references = verify_references(program, list[i], i); !references.ok())
      return references.at(place(i, list[i]));
    if (starts_call(list[i].kind) && missing.erase({list[i].call.value, list[i].part}) == 0)
      return invalid_input(cat(place(i, list[i]), ": call ",
                               program.graph.calls[list[i].call.value].name,
                               " occurs twice or does not belong here"));
    if (list[i].kind == OpKind::kRepeat)
      BRAID_TRY(verify_repeat(program, list, i).at(place(i, list[i])));
    if (lacks_repeat(program, list, i))
      return invalid_input(cat(place(i, list[i]), ": is not followed by its repeat"));
  }
  if (missing.empty()) {
    BRAID_TRY(verify_parts(list));
    return verify_hand_over(program, list);
  }
  return invalid_input(cat("call ", program.graph.calls[missing.begin()->first].name,
                           " of the graph does not occur"));
}

// A copy is freed on all ranks that have it, or on none.
Status verify_releases(const Program& program) {
  std::map<std::pair<int32_t, int32_t>, std::set<size_t>> freed;  // by copy and call
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    for (const Instruction& i : program.ranks[rank].instructions)
      if (i.kind == OpKind::kRelease) freed[{i.detail, i.call.value}].insert(rank);
  for (const auto& [where, ranks] : freed)
    for (const DeviceId device : program.calls[where.second].mesh.devices)
      if (ranks.count(device.value) == 0)
        return invalid_input(cat("rank ", device, ": copy ", where.first, " of ",
                                 program.copies[where.first].role, " is not released after ",
                                 program.graph.calls[where.second].name, " as on other ranks"));
  return ok_status();
}

// Every entry of a table is on the ranks that it names, each once, and in the table's order: so
// ranks that meet in several meet in the same order. `is_entry` tells its instructions.
template <typename Entry, typename IsEntry>
Status verify_entries(const Program& program, size_t rank, const std::vector<Entry>& table,
                      const std::string& what, const IsEntry& is_entry) {
  const DeviceId self{static_cast<int32_t>(rank)};
  const auto& list = program.ranks[rank].instructions;
  size_t next = 0;
  const auto skip = [&] {
    while (next < table.size() &&
           !std::binary_search(table[next].members.begin(), table[next].members.end(), self))
      ++next;
  };
  for (size_t i = 0; i < list.size(); ++i) {
    if (!is_entry(list[i].kind)) continue;
    skip();
    if (static_cast<size_t>(list[i].detail) != next)
      return invalid_input(cat(place(i, list[i]), ": ", what, " ", list[i].detail, " stands where ",
                               what, " ", next, " of this rank should"));
    ++next;
  }
  skip();
  if (next < table.size())
    return invalid_input(cat(what, " ", next, " does not occur, which this rank takes part in"));
  return ok_status();
}

Status verify_tables(const Program& program, size_t rank) {
  BRAID_TRY(verify_entries(program, rank, program.exchanges, "exchange", moves_fields));
  for (size_t i = 0; const Instruction& each : program.ranks[rank].instructions) {
    if (moves_fields(each.kind) &&
        (each.kind == OpKind::kShare) != program.exchanges[each.detail].shared())
      return invalid_input(cat(place(i, each), ": is not what exchange ", each.detail, " is"));
    ++i;
  }
  return verify_entries(program, rank, program.reallocations, "reallocation",
                        [](OpKind kind) { return kind == OpKind::kReallocate; });
}

// Nobody reads what was made longer ago than the plan allows.
Status verify_staleness(const Program& program) {
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    for (const std::string& field : program.graph.calls[i].reads) {
      const Call& reader = program.graph.calls[i];
      const Call& producer = program.graph.calls[producer_of(program.graph, field).value];
      const int64_t age = producer.steps_ahead - reader.steps_ahead;
      if (age < 0 || age > program.staleness)
        return invalid_input(cat("call ", reader.name, ": reads ", field, " of step + ",
                                 producer.steps_ahead, ", and rollouts may be ", program.staleness,
                                 " steps older than the weights that learn from them"));
    }
  return ok_status();
}

// Which replica has which sample is said once in a step, when its prompts are there.
Status verify_predictions(const Program& program) {
  if (!program.predicts_lengths) return ok_status();
  bool several = false;
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const CallKind kind = program.graph.calls[i].kind;
    if (kind == CallKind::kSelect)
      return invalid_input("lengths are predicted of samples that a step draws several times");
    several = several || (kind == CallKind::kGenerate && program.calls[i].strategy.dp > 1);
  }
  if (steps_ahead(program.graph) > 0)
    return invalid_input("lengths are predicted of samples of a later step");
  return several ? ok_status()
                 : invalid_input("lengths are predicted, and no generation has several replicas");
}

// Of the program as a whole, whatever its lists are.
Status verify_program_tables(const Program& program) {
  BRAID_TRY(verify_staleness(program));
  BRAID_TRY(verify_predictions(program));
  BRAID_TRY(verify_early_update(program));
  BRAID_TRY(verify_streamed_update(program));
  return verify_exchange_table(program);
}

// What a list has to obey whatever those of other ranks are.
Status verify_one(const Program& program, size_t rank, const CallWaits& waits) {
  const std::string where = cat("program of rank ", rank);
  BRAID_TRY(verify_calls(program, rank).at(where));
  BRAID_TRY(verify_tables(program, rank).at(where));
  BRAID_TRY(verify_regions(program, rank).at(where));
  if (!program.calls.empty()) {
    BRAID_TRY(verify_fields(program, rank));
    BRAID_TRY(verify_copies(program, rank));
    BRAID_TRY(verify_residency(program, rank));
  }
  return verify_waits(program, rank, waits);
}

}  // namespace

Status verify_list(const Program& program, DeviceId rank) {
  if (rank.value < 0 || rank.value >= std::ssize(program.ranks))
    return invalid_input(cat("rank ", rank, " is not in the program"));
  BRAID_TRY(verify_program_tables(program));
  BRAID_TRY(verify_reallocation_table(program, rank));
  return verify_one(program, rank.value, call_waits(program.graph));
}

Status verify(const Program& program) {
  BRAID_TRY(verify_program_tables(program));
  BRAID_TRY(verify_reallocation_table(program));
  const CallWaits waits = call_waits(program.graph);
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    BRAID_TRY(verify_one(program, rank, waits));
  if (program.calls.empty()) return ok_status();
  BRAID_TRY(verify_releases(program));
  for (const FusedCalls& fused : program.fused) BRAID_TRY(verify_order(program, fused));
  return verify_circles(program);
}

}  // namespace braid::inline program
