// verify(program): structure of each list, then a run of all lists in which every instruction
// blocks its rank until its partners have come to it.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "program/placement.h"
#include "program/residency.h"

namespace braid {
namespace {

bool starts_call(OpCode code) { return code == OpCode::kCall || code == OpCode::kRegionBegin; }

bool is_body(OpCode code) {
  return code == OpCode::kRegionEnd || code == OpCode::kGenerateStep || code == OpCode::kSchedule ||
         code == OpCode::kAgree || code == OpCode::kOptimizerStep || code == OpCode::kReduce ||
         code == OpCode::kGather;
}

std::string place(size_t index, const Instruction& instruction) {
  return cat("instruction ", index, " (", op_code_name(instruction.code), ")");
}

// The size of the table that an instruction's detail points into; 0: it has none.
size_t table_size(const Program& program, OpCode code) {
  switch (code) {
    case OpCode::kSend:
    case OpCode::kReceive:
      return program.messages.size();
    case OpCode::kReduce:
    case OpCode::kGather:
      return program.groups.size();
    case OpCode::kLoad:
    case OpCode::kOffload:
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
  const bool needs = instruction.code == OpCode::kSend || instruction.code == OpCode::kReceive ||
                     instruction.code == OpCode::kReduce || instruction.code == OpCode::kGather ||
                     instruction.code == OpCode::kLoad || instruction.code == OpCode::kOffload ||
                     instruction.code == OpCode::kRelease;
  if (detail < (needs ? 0 : -1) ||
      detail >= static_cast<int32_t>(table_size(program, instruction.code)))
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

Status verify_rank(const Program& program, size_t rank_index) {
  const RankProgram& rank = program.ranks[rank_index];
  std::set<int32_t> missing = expected_calls(program, rank_index);
  bool open = false;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    const Instruction& instruction = rank.instructions[i];
    const auto wrong = [&](const std::string& what) {
      return invalid_input(cat(place(i, instruction), ": ", what));
    };
    if (const Status references = verify_references(program, instruction, i); !references.ok())
      return references.at(place(i, instruction));
    if (is_body(instruction.code) && !open) return wrong("outside of a region");
    if (!is_body(instruction.code) && open) return wrong("a region is still open");
    if (starts_call(instruction.code) && missing.erase(instruction.call.value) == 0)
      return wrong(cat("call ", program.graph.calls[instruction.call.value].name,
                       " occurs twice or does not belong here"));
    if (instruction.code == OpCode::kRegionBegin) open = true;
    if (instruction.code == OpCode::kRegionEnd) open = false;
  }
  if (open) return invalid_input("the last region is not closed");
  if (!missing.empty())
    return invalid_input(
        cat("call ", program.graph.calls[*missing.begin()].name, " of the graph does not occur"));
  return ok_status();
}

// Samples of a field on a rank.
class SampleSet {
 public:
  void add(Interval units) {
    std::vector<Interval> kept;
    for (const Interval& old : parts_) {
      if (old.end < units.begin || units.end < old.begin) {
        kept.push_back(old);
        continue;
      }
      units = {std::min(units.begin, old.begin), std::max(units.end, old.end)};
    }
    kept.push_back(units);
    parts_ = std::move(kept);
  }
  bool covers(const Interval& units) const {
    return units.size() <= 0 ||
           std::any_of(parts_.begin(), parts_.end(), [&](const Interval& part) {
             return part.begin <= units.begin && units.end <= part.end;
           });
  }
  bool overlaps(const Interval& units) const {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Interval& part) {
      return part.begin < units.end && units.begin < part.end;
    });
  }

 private:
  std::vector<Interval> parts_;  // disjoint, not adjacent
};

// Of fields by their names: the producing call, and which of its fields.
using Places = std::map<std::string, std::pair<int32_t, int32_t>>;
Places places_of(const Graph& graph) {
  Places out;
  for (size_t call = 0; call < graph.calls.size(); ++call)
    for (size_t item = 0; item < graph.calls[call].writes.size(); ++item)
      out[graph.calls[call].writes[item].name] = {static_cast<int32_t>(call),
                                                  static_cast<int32_t>(item)};
  return out;
}

// All lists at once; a rank executes an instruction when its partners have come to it.
class Run {
 public:
  explicit Run(const Program& program)
      : program_(program),
        next_(program.ranks.size(), 0),
        sent_(program.messages.size(), false),
        places_(places_of(program.graph)) {}

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

  bool at(DeviceId device, OpCode code, int32_t detail, CallId call) const {
    const auto rank = static_cast<size_t>(device.value);
    if (rank >= next_.size() || done(rank)) return false;
    const Instruction& other = current(rank);
    return other.code == code && other.detail == detail && other.call == call;
  }

  // A receive is ready once it was sent; a send needs its receiver in place; a call or a collective
  // needs all of its ranks.
  bool ready(size_t rank) const {
    const Instruction& i = current(rank);
    const auto key = std::tuple(i.code, i.detail, i.call.value);
    if (i.code == OpCode::kReceive) return sent_[i.detail];
    if (i.code == OpCode::kSend)
      return at(program_.messages[i.detail].to, OpCode::kReceive, i.detail, i.call);
    const std::vector<DeviceId>* members = nullptr;
    if (i.code == OpCode::kReduce || i.code == OpCode::kGather)
      members = &program_.groups[i.detail].members;
    if (starts_call(i.code) && !program_.calls.empty() &&
        uses_model(program_.graph.calls[i.call.value]))
      members = &program_.calls[i.call.value].mesh.devices;
    if (members == nullptr || entered_.count(key) > 0) return true;
    return std::all_of(members->begin(), members->end(),
                       [&](DeviceId member) { return at(member, i.code, i.detail, i.call); });
  }

  Status execute(size_t rank) {
    const Instruction& i = current(rank);
    Status status;
    if (i.code == OpCode::kSend) status = check_send(rank, i);
    if (i.code == OpCode::kReceive) status = receive(rank, i);
    if (starts_call(i.code)) status = start_call(rank, i);
    if (!status.ok()) return status.at(cat("rank ", rank, ", ", place(next_[rank], i)));
    if (i.code == OpCode::kCall || i.code == OpCode::kRegionEnd) end_call(rank, i.call);
    if (i.code == OpCode::kReduce || i.code == OpCode::kGather || starts_call(i.code))
      entered_.insert({i.code, i.detail, i.call.value});
    ++next_[rank];
    return ok_status();
  }

  Status check_send(size_t rank, const Instruction& i) {
    const Message& message = program_.messages[i.detail];
    if (message.from.value != static_cast<int32_t>(rank))
      return invalid_input(cat("sends message ", i.detail, " of rank ", message.from));
    if (message.kind == MessageKind::kFields)
      for (const MessagePart& part : message.parts)
        if (!fields_[{rank, message.owner, part.item}].covers(part.units))
          return invalid_input(cat("sends samples of ", field_name(message.owner, part.item),
                                   " that it does not have"));
    sent_[i.detail] = true;
    return ok_status();
  }

  Status receive(size_t rank, const Instruction& i) {
    const Message& message = program_.messages[i.detail];
    if (message.to.value != static_cast<int32_t>(rank))
      return invalid_input(cat("receives message ", i.detail, " of rank ", message.to));
    if (message.kind != MessageKind::kFields) return ok_status();
    for (const MessagePart& part : message.parts) {
      BRAID_TRY(check_sizes(rank, message.owner, part));
      SampleSet& samples = fields_[{rank, message.owner, part.item}];
      if (samples.overlaps(part.units))
        return invalid_input(cat("receives samples of ", field_name(message.owner, part.item),
                                 " that it has already"));
      samples.add(part.units);
    }
    return ok_status();
  }

  // Samples of a call, counted in those of another. Where one has more of each (groups that are
  // dropped after generation), which are meant is not said: a share of one is within a sample or
  // so of the share of the other, and those at its borders are left out.
  Interval in_samples_of(int32_t other, int32_t call, const Interval& units) const {
    if (program_.calls.empty()) return units;
    const int64_t mine = program_.calls[call].samples, theirs = program_.calls[other].samples;
    if (mine == theirs || mine <= 0) return units;
    const int64_t border = (theirs + mine - 1) / mine;
    return {units.begin * theirs / mine + border, units.end * theirs / mine - border};
  }

  // Whether the rank knows how large the samples of a part are.
  Status check_sizes(size_t rank, int32_t producer, const MessagePart& part) {
    const std::string& sizes = program_.graph.calls[producer].writes[part.item].sizes;
    if (sizes.empty()) return ok_status();
    const auto [call, item] = places_.at(sizes);
    const Interval units = in_samples_of(call, producer, part.units);
    if (units.size() <= 0 || fields_[{rank, call, item}].covers(units)) return ok_status();
    return invalid_input(cat("receives samples of ", field_name(producer, part.item), " before ",
                             sizes, ", which says how large they are"));
  }

  std::string field_name(int32_t producer, int32_t item) const {
    return program_.graph.calls[producer].writes[item].name;
  }

  // Samples of a field that a rank reads or makes in a call.
  struct Part {
    int32_t producer = 0, item = 0;
    Interval units;
  };
  using PartsByRank = std::vector<std::vector<Part>>;

  const std::vector<Part>& parts_of(CallId id, bool reads, size_t rank) {
    const auto [entry, is_new] = parts_.emplace(std::pair(id.value, reads), PartsByRank());
    if (is_new) entry->second = find_parts(id, reads);
    return entry->second[rank];
  }

  PartsByRank find_parts(CallId id, bool reads) const {
    PartsByRank out(next_.size());
    for (size_t p = 0; p < program_.graph.calls.size(); ++p) {
      const CallId producer{static_cast<int32_t>(p)};
      if (!reads && producer != id) continue;
      const auto& writes = program_.graph.calls[p].writes;
      for (size_t f = 0; f < writes.size(); ++f) {
        const auto held = reads ? field_readers(program_, id, writes[f], producer)
                                : field_holders(program_, id, writes[f]);
        for (const Holding& holding : held)
          out[holding.device.value].push_back(
              {static_cast<int32_t>(p), static_cast<int32_t>(f), holding.units});
      }
    }
    return out;
  }

  Status start_call(size_t rank, const Instruction& i) {
    if (program_.calls.empty()) return ok_status();
    for (const Part& needed : parts_of(i.call, true, rank))
      if (!fields_[{rank, needed.producer, needed.item}].covers(needed.units))
        return invalid_input(cat("reads ", field_name(needed.producer, needed.item),
                                 ", which is not there for all of its samples"));
    return ok_status();
  }

  void end_call(size_t rank, CallId id) {
    if (program_.calls.empty()) return;
    for (const Part& made : parts_of(id, false, rank))
      fields_[{rank, made.producer, made.item}].add(made.units);
  }

  const Program& program_;
  std::vector<size_t> next_;
  std::vector<bool> sent_;  // by message
  std::set<std::tuple<OpCode, int32_t, int32_t>> entered_;
  std::map<std::string, std::pair<int32_t, int32_t>> places_;         // of fields: producer, field
  std::map<std::tuple<size_t, int32_t, int32_t>, SampleSet> fields_;  // (rank, producer, field)
  std::map<std::pair<int32_t, bool>, PartsByRank> parts_;             // by call, whether it reads
};

// Messages of each pair of ranks in the order of one side's list.
using Channels = std::map<std::pair<DeviceId, DeviceId>, std::vector<int32_t>>;
Channels channels(const Program& program, OpCode code) {
  Channels out;
  for (const RankProgram& rank : program.ranks)
    for (const Instruction& i : rank.instructions)
      if (i.code == code)
        out[{program.messages[i.detail].from, program.messages[i.detail].to}].push_back(i.detail);
  return out;
}

Status verify_channels(const Program& program) {
  const Channels sent = channels(program, OpCode::kSend);
  Channels received = channels(program, OpCode::kReceive);
  for (const auto& [pair, messages] : sent) {
    const auto& other = received[pair];
    for (size_t i = 0; i < std::max(messages.size(), other.size()); ++i)
      if (i >= messages.size() || i >= other.size() || messages[i] != other[i])
        return invalid_input(cat("messages from rank ", pair.first, " to rank ", pair.second,
                                 ": number ", i, " is not received as it was sent"));
  }
  for (const auto& [pair, messages] : received)
    if (sent.count(pair) == 0 && !messages.empty())
      return invalid_input(cat("rank ", pair.second, " receives message ", messages[0],
                               ", which rank ", pair.first, " never sends"));
  return ok_status();
}

// The regions of fused calls follow each other.
Status verify_fused(const Program& program, const FusedCalls& fused) {
  for (const DeviceId rank : program.calls[fused.calls[0].value].mesh.devices) {
    const auto& list = program.ranks[rank.value].instructions;
    for (size_t i = 0; i + 1 < list.size(); ++i)
      if (list[i].code == OpCode::kRegionEnd && list[i].call == fused.calls[0] &&
          (list[i + 1].code != OpCode::kRegionBegin || list[i + 1].call != fused.calls[1]))
        return invalid_input(cat("rank ", rank, ", ", place(i, list[i]),
                                 ": is not followed by the call that it is fused with"));
  }
  return ok_status();
}

}  // namespace

Status verify(const Program& program) {
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    BRAID_TRY(verify_rank(program, rank).at(cat("program of rank ", rank)));
  if (program.calls.empty()) return ok_status();
  BRAID_TRY(verify_channels(program));
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    BRAID_TRY(verify_residency(program, rank));
  for (const FusedCalls& fused : program.fused) BRAID_TRY(verify_fused(program, fused));
  return Run(program).run();
}

}  // namespace braid
