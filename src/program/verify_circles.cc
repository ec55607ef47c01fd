#include "program/verify_circles.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"

namespace braid::inline program {
namespace {

// All lists at once; a rank executes an instruction when its partners have come to it.
class Run {
 public:
  explicit Run(const Program& program)
      : program_(program),
        next_(program.ranks.size(), 0),
        come_(program.ranks.size(), false),
        exchanging_(program.exchanges.size(), 0) {
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      everyone_.push_back(DeviceId{static_cast<int32_t>(rank)});
  }

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < next_.size(); ++rank)
        for (; !done(rank) && ready(rank); moved = true) {
          ++next_[rank];
          come_[rank] = false;
        }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank)
      if (!done(rank))
        return invalid_input(cat(
            "rank ", rank, ", instruction ", next_[rank], " (", op_kind_name(current(rank).kind),
            "): ",
            meeting(current(rank)) == &nobody_ ? "is no instruction of a list" : "waits forever"));
    return ok_status();
  }

 private:
  // What, of which table entry, for a call, of which of its samples.
  using Meeting = std::tuple<OpKind, int32_t, int32_t, SamplePart>;

  const Instruction& current(size_t rank) const {
    return program_.ranks[rank].instructions[next_[rank]];
  }
  bool done(size_t rank) const { return next_[rank] == program_.ranks[rank].instructions.size(); }

  // Whether the exchanges that an instruction waits for have all of their members.
  bool exchanged(size_t rank, const Instruction& i) const {
    return std::all_of(i.after.begin(), i.after.end(), [&](InstructionId id) {
      const Instruction& before = program_.ranks[rank].instructions[id.value];
      return before.kind != OpKind::kExchange ||
             exchanging_[before.detail] == program_.exchanges[before.detail].members.size();
    });
  }

  // Who meets in an instruction; null: nobody waits in it; nobody_: no list has its kind.
  const std::vector<DeviceId>* meeting(const Instruction& i) const {
    switch (i.kind) {
      case OpKind::kReduce:
      case OpKind::kAgree:
      case OpKind::kTally:
      case OpKind::kAllGather:
        return i.detail < 0 ? nullptr : &program_.groups[i.detail].members;
      case OpKind::kShare:
        return &program_.exchanges[i.detail].members;
      case OpKind::kHandOver:
        return &everyone_;  // at a later one each waits for some of them alone
      case OpKind::kReallocate:
        return &program_.reallocations[i.detail].members;
      case OpKind::kCall:
      case OpKind::kRegionBegin:
        return program_.calls.empty() ||
                       used_roles(program_.graph, program_.graph.calls[i.call.value]).empty()
                   ? nullptr
                   : &program_.calls[i.call.value].mesh.devices;
      case OpKind::kPasses:
      case OpKind::kUpdate:
      case OpKind::kRound:
      case OpKind::kRegionEnd:
      case OpKind::kRepeat:
      case OpKind::kExchange:
      case OpKind::kLoad:
      case OpKind::kOffload:
      case OpKind::kRelease:
        return nullptr;
      default:
        return &nobody_;
    }
  }

  // A reallocation, a share, a call or a collective needs all of its ranks. Whoever comes to an
  // exchange goes on.
  bool ready(size_t rank) {
    const Instruction& i = current(rank);
    if (!exchanged(rank, i)) return false;
    if (i.kind == OpKind::kExchange) ++exchanging_[i.detail];
    const std::vector<DeviceId>* members = meeting(i);
    if (members == nullptr) return true;
    size_t& met = met_[{i.kind, i.detail, i.call.value, i.part}];
    if (!come_[rank]) ++met;
    come_[rank] = true;
    return met == members->size();
  }

  const Program& program_;
  std::vector<DeviceId> everyone_;
  const std::vector<DeviceId> nobody_;
  std::vector<size_t> next_;
  std::vector<bool> come_;          // [rank]: to its current meeting
  std::map<Meeting, size_t> met_;   // ranks that have come to it
  std::vector<size_t> exchanging_;  // [exchange]: ranks that have come to it
};

}  // namespace

Status verify_circles(const Program& program) { return Run(program).run(); }

}  // namespace braid::inline program
