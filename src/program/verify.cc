// verify(program): structure of each list, then a run of all lists in which every instruction
// blocks its rank until its partners have come to it.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "program/exchange.h"
#include "program/expand.h"
#include "program/fused.h"
#include "program/lower.h"
#include "program/residency.h"
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
    case OpKind::kAllGather:
      return program.groups.size();
    case OpKind::kPasses:
      return program.fused.size();
    case OpKind::kLoad:
    case OpKind::kOffload:
      return program.states.size();
    default:
      return program.copies.size();
  }
}

Status verify_references(const Program& program, const Instruction& instruction, size_t index) {
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
  return ok_status();
}

std::set<int32_t> expected_calls(const Program& program, size_t rank) {
  std::set<int32_t> out;
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    bool here = program.calls.empty();
    if (!here)
      for (const DeviceId device : program.calls[i].mesh.devices)
        here = here || device.value == static_cast<int32_t>(rank);
    if (here) out.insert(static_cast<int32_t>(i));
  }
  return out;
}

// The entry of the pair of fused calls that a call is of; null: it is fused with none.
const FusedCalls* pair_of(const Program& program, CallId call) {
  for (const FusedCalls& fused : program.fused)
    if (fused.calls[0] == call || fused.calls[1] == call) return &fused;
  return nullptr;
}

// Whether an instruction opens the second of two calls that have one region.
bool joins_region(const Program& program, const std::vector<Instruction>& list, size_t at) {
  if (at == 0 || list[at].kind != OpKind::kRegionBegin) return false;
  const FusedCalls* const pair = pair_of(program, list[at].call);
  return pair != nullptr && list[at - 1].kind == OpKind::kRegionBegin &&
         pair->calls[0] == list[at - 1].call && pair->calls[1] == list[at].call;
}

Status verify_rank(const Program& program, size_t rank_index) {
  const RankProgram& rank = program.ranks[rank_index];
  std::set<int32_t> missing = expected_calls(program, rank_index);
  int open = 0;  // calls whose region is
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    const Instruction& instruction = rank.instructions[i];
    const auto wrong = [&](const std::string& what) {
      return invalid_input(cat(place(i, instruction), ": ", what));
    };
    if (const Status references = verify_references(program, instruction, i); !references.ok())
      return references.at(place(i, instruction));
    if (inside_region(instruction.kind) && open == 0) return wrong("outside of a region");
    if (!inside_region(instruction.kind) && open > 0 &&
        !joins_region(program, rank.instructions, i))
      return wrong("a region is still open");
    if (starts_call(instruction.kind) && missing.erase(instruction.call.value) == 0)
      return wrong(cat("call ", program.graph.calls[instruction.call.value].name,
                       " occurs twice or does not belong here"));
    if (instruction.kind == OpKind::kRegionBegin) ++open;
    if (instruction.kind == OpKind::kRegionEnd) --open;
  }
  if (open > 0) return invalid_input("the last region is not closed");
  if (!missing.empty())
    return invalid_input(
        cat("call ", program.graph.calls[*missing.begin()].name, " of the graph does not occur"));
  return ok_status();
}

// What a call's region consists of, in order. Reductions and gathers where copies of weights take
// part; not in a program of one rank.
std::vector<Instruction> region_of(const Program& program, CallId id) {
  std::vector<OpKind> kinds = {OpKind::kRegionBegin, OpKind::kRound, OpKind::kAgree};
  if (program.graph.calls[id.value].kind == CallKind::kTrainStep) {
    kinds = {OpKind::kRegionBegin, OpKind::kPasses};
    const bool copies = !program.calls.empty() && sums_copies(program.calls[id.value].strategy);
    const int zero = copies ? program.calls[id.value].strategy.zero_stage : 0;
    if (copies) kinds.push_back(OpKind::kReduce);
    kinds.push_back(OpKind::kAgree);
    kinds.push_back(OpKind::kUpdate);
    if (zero == 1 || zero == 2) kinds.push_back(OpKind::kAllGather);
  }
  kinds.push_back(OpKind::kRegionEnd);
  std::vector<Instruction> out;
  for (const OpKind kind : kinds) out.push_back({kind, id, ExitCondition::kNone, {}, -1});
  return out;
}

// The region that begins with this call: its own, or one with the call that it is fused with.
std::vector<Instruction> region_from(const Program& program, CallId id) {
  const FusedCalls* const pair = pair_of(program, id);
  if (pair == nullptr || pair->calls[0] != id) return region_of(program, id);
  return weave({region_of(program, id), region_of(program, pair->calls[1])},
               static_cast<int32_t>(pair - program.fused.data()));
}

// The ranks that an instruction of a region is in together with this one: all of a training call
// agree, or a replica that generates; those that hold the same parameters sum gradients and give
// each other what they updated.
Status verify_group(const Program& program, size_t rank, const Instruction& i) {
  const bool agrees = i.kind == OpKind::kAgree;
  if (!agrees && i.kind != OpKind::kReduce && i.kind != OpKind::kAllGather) return ok_status();
  std::vector<DeviceId> expected = {DeviceId{static_cast<int32_t>(rank)}};
  if (!program.calls.empty()) {
    const CallFrame frame = call_frame(program, i.call);
    const bool dense = dense_copies(frame.where->strategy) > 1;
    GroupKind kind = dense ? GroupKind::kData : GroupKind::kExpertData;
    if (agrees) kind = frame.kind == CallKind::kGenerate ? GroupKind::kReplica : GroupKind::kCall;
    expected = group_of(frame, kind, position_in(*frame.where, expected[0])).members;
  }
  const bool right =
      i.detail < 0 ? expected.size() == 1 : program.groups[i.detail].members == expected;
  return right ? ok_status() : invalid_input("is not among the ranks that it should be");
}

// Regions have all that their calls consist of, in order.
Status verify_bodies(const Program& program, size_t rank) {
  const auto& list = program.ranks[rank].instructions;
  std::vector<Instruction> left;  // of the open region, in reverse
  for (size_t i = 0; i < list.size(); ++i) {
    const auto wrong = [&](const std::string& what) {
      return invalid_input(cat(place(i, list[i]), ": ", what));
    };
    if (stands_between_calls(list[i].kind) || list[i].kind == OpKind::kCall) continue;
    if (list[i].kind == OpKind::kRegionBegin && !joins_region(program, list, i)) {
      left = region_from(program, list[i].call);
      std::reverse(left.begin(), left.end());
    }
    const bool ends = list[i].kind == OpKind::kRegionEnd;
    if (left.empty() || (!ends && left.back().kind == OpKind::kRegionEnd))
      return wrong("the region has all that it needs");
    if (ends && left.back().kind != OpKind::kRegionEnd)
      return wrong(cat("the region lacks ", op_kind_name(left.back().kind)));
    const bool passes = list[i].kind == OpKind::kPasses;
    if (left.back().kind != list[i].kind || left.back().call != list[i].call ||
        (passes && left.back().detail != list[i].detail))
      return wrong(cat("stands where ", op_kind_name(left.back().kind), " of ",
                       program.graph.calls[left.back().call.value].name, " should"));
    left.pop_back();
    if (const Status group = verify_group(program, rank, list[i]); !group.ok())
      return group.at(place(i, list[i]));
  }
  return ok_status();
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
    while (next < table.size() && std::find(table[next].members.begin(), table[next].members.end(),
                                            self) == table[next].members.end())
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

// Entries name the ranks and the fields that their calls have.
Status verify_exchange_table(const Program& program) {
  for (size_t i = 0; i < program.exchanges.size(); ++i) {
    const Exchange& e = program.exchanges[i];
    const auto calls = static_cast<int32_t>(program.graph.calls.size());
    if (e.producer.value < 0 || e.producer.value >= calls || e.consumer.value >= calls)
      return invalid_input(cat("exchange ", i, ": names a call that the graph does not have"));
    const bool right = e.shared()
                           ? e.fields == shared_fields(program.graph.calls[e.producer.value])
                           : e.fields == exchanged_fields(program.graph, e.producer, e.consumer) &&
                                 e.members == exchange_members(program, e.producer, e.consumer);
    if (!right)
      return invalid_input(cat("exchange ", i, ": its fields or ranks are not those of its calls"));
  }
  return ok_status();
}

// All lists at once; a rank executes an instruction when its partners have come to it.
class Run {
 public:
  explicit Run(const Program& program)
      : program_(program),
        next_(program.ranks.size(), 0),
        entered_by_(program.exchanges.size(), 0) {}

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < next_.size(); ++rank)
        while (!done(rank) && ready(rank)) {
          BRAID_TRY(execute(rank));
          moved = true;
        }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank)
      if (!done(rank))
        return invalid_input(
            cat("rank ", rank, ", ", place(next_[rank], current(rank)), ": waits forever"));
    return ok_status();
  }

 private:
  const Instruction& current(size_t rank) const {
    return program_.ranks[rank].instructions[next_[rank]];
  }
  bool done(size_t rank) const { return next_[rank] == program_.ranks[rank].instructions.size(); }

  bool at(DeviceId device, OpKind kind, int32_t detail, CallId call) const {
    const auto rank = static_cast<size_t>(device.value);
    if (rank >= next_.size() || done(rank)) return false;
    const Instruction& other = current(rank);
    return other.kind == kind && other.detail == detail && other.call == call;
  }

  static bool meets_group(const Instruction& i) {
    const bool groups =
        i.kind == OpKind::kReduce || i.kind == OpKind::kAgree || i.kind == OpKind::kAllGather;
    return groups && i.detail >= 0;
  }

  // Whether the exchanges that an instruction waits for have all of their members.
  bool exchanged(size_t rank, const Instruction& i) const {
    return std::all_of(i.after.begin(), i.after.end(), [&](InstructionId id) {
      const Instruction& before = program_.ranks[rank].instructions[id.value];
      return before.kind != OpKind::kExchange ||
             entered_by_[before.detail] == program_.exchanges[before.detail].members.size();
    });
  }

  // A reallocation, a share, a call or a collective needs all of its ranks. Whoever comes to an
  // exchange goes on.
  bool ready(size_t rank) const {
    const Instruction& i = current(rank);
    if (!exchanged(rank, i)) return false;
    const auto key = std::tuple(i.kind, i.detail, i.call.value);
    const std::vector<DeviceId>* members = nullptr;
    if (meets_group(i)) members = &program_.groups[i.detail].members;
    if (i.kind == OpKind::kShare) members = &program_.exchanges[i.detail].members;
    if (i.kind == OpKind::kReallocate) members = &program_.reallocations[i.detail].members;
    if (starts_call(i.kind) && !program_.calls.empty() &&
        uses_model(program_.graph.calls[i.call.value]))
      members = &program_.calls[i.call.value].mesh.devices;
    if (members == nullptr || entered_.count(key) > 0) return true;
    return std::all_of(members->begin(), members->end(),
                       [&](DeviceId member) { return at(member, i.kind, i.detail, i.call); });
  }

  Status execute(size_t rank) {
    const Instruction& i = current(rank);
    Status status;
    if (starts_call(i.kind)) status = start_call(rank, i);
    if (i.kind == OpKind::kExchange) status = check_exchange(rank, i);
    if (!status.ok()) return status.at(cat("rank ", rank, ", ", place(next_[rank], i)));
    if (moves_fields(i.kind)) ++entered_by_[i.detail];
    if (i.kind == OpKind::kShare || meets_group(i) || i.kind == OpKind::kReallocate ||
        starts_call(i.kind))
      entered_.insert({i.kind, i.detail, i.call.value});
    ++next_[rank];
    return ok_status();
  }

  const std::string& name(CallId call) const { return program_.graph.calls[call.value].name; }

  // Whether the rank has come, before an instruction, to where a call's results are there.
  bool comes_after_call(size_t rank, size_t before, CallId call) const {
    const auto& list = program_.ranks[rank].instructions;
    return std::any_of(
        list.begin(), list.begin() + static_cast<int64_t>(before), [&](const Instruction& i) {
          return i.call == call && (i.kind == OpKind::kCall || i.kind == OpKind::kRegionEnd);
        });
  }

  // Who has what is exchanged has made it before.
  Status check_exchange(size_t rank, const Instruction& i) const {
    const Exchange& exchange = program_.exchanges[i.detail];
    const auto& makers = program_.calls[exchange.producer.value].mesh.devices;
    const DeviceId self{static_cast<int32_t>(rank)};
    if (std::find(makers.begin(), makers.end(), self) == makers.end()) return ok_status();
    if (comes_after_call(rank, next_[rank], exchange.producer)) return ok_status();
    return invalid_input(cat("gives away what ", name(exchange.producer), " writes before that"));
  }

  // What the call reads of others has come to all of its ranks.
  Status start_call(size_t rank, const Instruction& i) const {
    if (program_.calls.empty()) return ok_status();
    for (int32_t p = 0; p < i.call.value; ++p) {
      const CallId producer{p};
      const auto fields = exchanged_fields(program_.graph, producer, i.call);
      if (!fields.empty() && exchange_members(program_, producer, i.call).size() > 1 &&
          !waits_for_exchange(rank, i, producer))
        return invalid_input(cat("reads ", fields.front(), " without waiting for its exchange"));
      if (shares_with(producer, i.call) && !comes_after_share(rank, producer))
        return invalid_input(cat("reads what ", name(producer), " shares before that is shared"));
    }
    return ok_status();
  }

  // Whether a call waits for its exchange of a producer, and for all before it of that producer,
  // which may bring what it lacks.
  bool waits_for_exchange(size_t rank, const Instruction& i, CallId producer) const {
    const auto& list = program_.ranks[rank].instructions;
    for (size_t before = 0; before < next_[rank]; ++before) {
      if (list[before].kind != OpKind::kExchange) continue;
      const Exchange& exchange = program_.exchanges[list[before].detail];
      if (exchange.producer != producer) continue;
      const InstructionId id{static_cast<int32_t>(before)};
      if (std::find(i.after.begin(), i.after.end(), id) == i.after.end()) return false;
      if (exchange.consumer == i.call) return true;
    }
    return false;
  }

  bool shares_with(CallId producer, CallId reader) const {
    const Call& from = program_.graph.calls[producer.value];
    if (!ends_with_share(from)) return false;
    const std::vector<std::string>& reads = program_.graph.calls[reader.value].reads;
    const std::vector<std::string> shared = shared_fields(from);
    return std::any_of(shared.begin(), shared.end(), [&](const std::string& field) {
      return std::find(reads.begin(), reads.end(), field) != reads.end();
    });
  }

  bool comes_after_share(size_t rank, CallId producer) const {
    const auto& list = program_.ranks[rank].instructions;
    return std::any_of(
        list.begin(), list.begin() + static_cast<int64_t>(next_[rank]), [&](const Instruction& i) {
          return i.kind == OpKind::kShare && program_.exchanges[i.detail].producer == producer;
        });
  }

  const Program& program_;
  std::vector<size_t> next_;
  std::set<std::tuple<OpKind, int32_t, int32_t>> entered_;
  std::vector<size_t> entered_by_;  // [exchange]: ranks
};

}  // namespace

Status verify(const Program& program) {
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    BRAID_TRY(verify_rank(program, rank).at(cat("program of rank ", rank)));
  BRAID_TRY(verify_exchange_table(program));
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    BRAID_TRY(verify_tables(program, rank).at(cat("program of rank ", rank)));
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    BRAID_TRY(verify_bodies(program, rank).at(cat("program of rank ", rank)));
  if (program.calls.empty()) return ok_status();
  BRAID_TRY(verify_releases(program));
  BRAID_TRY(verify_reallocation_table(program));
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    BRAID_TRY(verify_copies(program, rank));
    BRAID_TRY(verify_residency(program, rank));
  }
  for (const FusedCalls& fused : program.fused) BRAID_TRY(verify_order(program, fused));
  return Run(program).run();
}

}  // namespace braid::inline program
