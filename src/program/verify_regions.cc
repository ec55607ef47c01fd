#include "program/verify_regions.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "program/expand.h"
#include "program/lower.h"
#include "program/streamed_update.h"

namespace braid::inline program {
namespace {

// What a call's region consists of. Reductions and gathers where copies of weights take part; not
// in a program of one rank.
std::vector<OpKind> parts_of(const Program& program, CallId id, SamplePart part) {
  if (program.graph.calls[id.value].kind == CallKind::kGenerate)
    return generation_body(of_hand_over(program, id, part));
  const bool ends_early = ends_before_update(program, id, part);
  std::vector<OpKind> out = training_body(ends_early);
  if (ends_early || program.calls.empty() || !sums_copies(program.calls[id.value].strategy))
    return out;
  const int zero = program.calls[id.value].strategy.zero_stage;
  out.push_back(OpKind::kReduce);
  if (zero == 1 || zero == 2) out.push_back(OpKind::kAllGather);
  return out;
}

// The ranks that an instruction of a region is in together with this one: all of a training call
// agree, or a replica that generates; all of a generation count what is left until it is handed
// over; those that hold the same parameters sum gradients and give each other what they updated.
Status verify_group(const Program& program, size_t rank, const Instruction& i) {
  const bool agrees = i.kind == OpKind::kAgree || i.kind == OpKind::kTally;
  if (!agrees && i.kind != OpKind::kReduce && i.kind != OpKind::kAllGather) return ok_status();
  std::vector<DeviceId> expected = {DeviceId{static_cast<int32_t>(rank)}};
  const bool by_messages = i.kind == OpKind::kTally && !counts_together(i.part);
  if (!program.calls.empty() && !by_messages) {
    const CallFrame frame = call_frame(program, i.call);
    const bool dense = dense_copies(frame.where->strategy) > 1;
    GroupKind kind = dense ? GroupKind::kData : GroupKind::kExpertData;
    if (agrees)
      kind = i.kind == OpKind::kAgree && frame.kind == CallKind::kGenerate ? GroupKind::kReplica
                                                                           : GroupKind::kCall;
    expected = group_of(frame, kind, position_in(*frame.where, expected[0])).members;
  }
  const bool right =
      i.detail < 0 ? expected.size() == 1 : program.groups[i.detail].members == expected;
  return right ? ok_status() : invalid_input("is not among the ranks that it should be");
}

class RegionWalk {
 public:
  RegionWalk(const Program& program, size_t rank)
      : program_(program), rank_(rank), list_(program.ranks[rank].instructions) {}

  Status run() {
    for (at_ = 0; at_ < list_.size(); ++at_)
      if (const Status status = step(list_[at_]); !status.ok())
        return status.at(cat("instruction ", at_, " (", op_kind_name(list_[at_].kind), ")"));
    return calls_.empty() ? ok_status() : invalid_input("the last region is not closed");
  }

 private:
  using Place = std::pair<int, size_t>;  // phase, call of the region

  Status verify_exit(const Instruction& i) const {
    const Call& call = program_.graph.calls[i.call.value];
    const ExitCondition right = call.kind == CallKind::kTrainStep
                                    ? ExitCondition::kMinibatchesDone
                                    : generation_exit(call, of_hand_over(program_, i.call, i.part));
    if (i.exit == right && i.detail < 0) return ok_status();
    return invalid_input(cat("is not until ", exit_condition_name(right)));
  }

  const std::string& name(CallId call) const { return program_.graph.calls[call.value].name; }

  Status step(const Instruction& i) {
    if (i.kind == OpKind::kRegionBegin) return begin(i);
    if (!inside_region(i.kind))
      return calls_.empty() ? ok_status() : invalid_input("a region is still open");
    if (calls_.empty()) return invalid_input("outside of a region");
    BRAID_TRY(in_place(i));
    if (i.kind == OpKind::kRegionEnd) return end(i);
    BRAID_TRY(verify_part(i));
    return verify_group(program_, rank_, i);
  }

  Status begin(const Instruction& i) {
    const CallKind kind = program_.graph.calls[i.call.value].kind;
    if (kind != CallKind::kGenerate && kind != CallKind::kTrainStep)
      return invalid_input(cat(name(i.call), " has no region"));
    const bool joins = calls_.size() == 1 && at_ > 0 &&
                       list_[at_ - 1].kind == OpKind::kRegionBegin && pair_ >= 0 &&
                       program_.fused[pair_].calls[1] == i.call;
    if (!calls_.empty() && !joins) return invalid_input("a region is still open");
    if (calls_.empty()) {
      const PlaceInPair place = place_in_pair(program_, i.call);
      pair_ = place.entry;
      if (place.second())
        return invalid_input(cat(name(i.call), " begins before the call that it is fused with"));
      seen_.clear(), ended_ = 0, last_ = {0, 0}, part_ = i.part;
    }
    calls_.push_back(i.call);
    return verify_exit(i);
  }

  // Phases follow each other, and in a phase the calls.
  Status in_place(const Instruction& i) {
    const auto call = std::find(calls_.begin(), calls_.end(), i.call);
    if (call == calls_.end()) return invalid_input(cat(name(i.call), " has no open region"));
    if (i.part != part_) return invalid_input("is of other samples than its region");
    const Place place{region_phase(i.kind), static_cast<size_t>(call - calls_.begin())};
    if (place < last_)
      return invalid_input(cat("stands behind ", op_kind_name(list_[at_ - 1].kind), " of ",
                               name(list_[at_ - 1].call)));
    last_ = place;
    return ok_status();
  }

  Status verify_part(const Instruction& i) {
    if (pair_ >= 0 && calls_.size() < 2)
      return invalid_input(cat("the region is without ", name(program_.fused[pair_].calls[1])));
    const std::vector<OpKind> parts = parts_of(program_, i.call, i.part);
    if (std::find(parts.begin(), parts.end(), i.kind) == parts.end())
      return invalid_input(cat(name(i.call), " has none"));
    if (!seen_.insert({i.call, i.kind}).second) return invalid_input("is there twice");
    if (i.kind == OpKind::kPasses && (i.detail != pair_ || i.call != calls_.front()))
      return invalid_input("does not execute the passes of all calls of its region");
    const Instruction& before = list_[at_ - 1];
    if (i.kind == OpKind::kAllGather && (before.kind != OpKind::kUpdate || before.call != i.call))
      return invalid_input("does not follow the update whose weights it brings");
    return ok_status();
  }

  Status end(const Instruction& i) {
    BRAID_TRY(verify_exit(i));
    for (const OpKind part : parts_of(program_, i.call, i.part)) {
      const CallId call = part == OpKind::kPasses ? calls_.front() : i.call;
      if (seen_.count({call, part}) == 0)
        return invalid_input(cat("the region lacks ", op_kind_name(part), " of ", name(call)));
    }
    if (!seen_.insert({i.call, i.kind}).second) return invalid_input("is there twice");
    if (++ended_ == calls_.size()) calls_.clear();
    return ok_status();
  }

  const Program& program_;
  const size_t rank_;
  const std::vector<Instruction>& list_;
  size_t at_ = 0;
  std::vector<CallId> calls_;  // of the open region
  int32_t pair_ = -1;          // that they are
  std::set<std::pair<CallId, OpKind>> seen_;
  size_t ended_ = 0;
  Place last_;
  SamplePart part_ = SamplePart::kAll;
};

}  // namespace

Status verify_regions(const Program& program, size_t rank) {
  return RegionWalk(program, rank).run();
}

}  // namespace braid::inline program
