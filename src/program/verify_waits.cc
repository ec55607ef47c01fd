#include "program/verify_waits.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "program/early_update.h"
#include "program/exchange.h"
#include "program/local_parts.h"
#include "program/placement.h"
#include "program/streamed_update.h"

namespace braid::inline program {
namespace {

class WaitWalk {
 public:
  WaitWalk(const Program& program, size_t rank, const CallWaits& waits)
      : program_(program),
        self_(DeviceId{static_cast<int32_t>(rank)}),
        list_(program.ranks[rank].instructions),
        waits_(waits),
        ends_(program.graph.calls.size(), -1),
        shares_(ends_) {}

  Status run() {
    for (size_t i = 0; i < list_.size(); ++i) {
      const auto at = static_cast<int32_t>(i);
      if (const Status status = step(at, list_[i]); !status.ok())
        return status.at(
            cat("rank ", self_, ", instruction ", i, " (", op_kind_name(list_[i].kind), ")"));
      note(at, list_[i]);
    }
    return ok_status();
  }

 private:
  const Call& call(CallId id) const { return program_.graph.calls[id.value]; }

  static bool waits_for(const Instruction& i, int32_t before) {
    return std::find(i.after.begin(), i.after.end(), InstructionId{before}) != i.after.end();
  }
  // Nothing is needed where there is no such instruction.
  static Status needs(const Instruction& i, int32_t before, const std::string& what) {
    if (before < 0 || waits_for(i, before)) return ok_status();
    return invalid_input(cat("does not wait for instruction ", before, ", ", what));
  }
  // Whose samples an instruction is of: what moves fields may stand at a call of another step.
  CallId samples_of(const Instruction& i) const {
    return moves_fields(i.kind) ? program_.exchanges[i.detail].samples_of() : i.call;
  }
  // The end of a call that has ended on this rank, or its share. Of a call over other samples, as
  // those of another step are, only what it does here.
  Status needs_call(const Instruction& i, CallId before, const char* what) const {
    const int32_t end = ends_[before.value];
    const bool same = waits_.samples[before.value] == waits_.samples[samples_of(i).value];
    const int32_t share = same || end >= 0 ? shares_[before.value] : -1;
    if (share >= 0 && waits_for(i, share)) return ok_status();
    return needs(i, end >= 0 ? end : share, cat("with which ", call(before).name, " ends, ", what));
  }

  Status step(int32_t at, const Instruction& i) {
    if (inside_region(i.kind)) return needs(i, at - 1, "which is before it in the region");
    if (i.kind == OpKind::kRepeat) return needs(i, at - 1, "the call that it is of");
    switch (i.kind) {
      case OpKind::kCall:
      case OpKind::kRegionBegin:
        return start_call(i);
      case OpKind::kShare:
      case OpKind::kExchange:
        return move_fields(i, program_.exchanges[i.detail]);
      case OpKind::kHandOver:
        return needs(i, begun_, "after which few samples are left");
      case OpKind::kReallocate:
        return reallocate(i);
      case OpKind::kLoad:
        return load(i);
      case OpKind::kOffload:
      case OpKind::kRelease:
        return needs(i, used_, "the last that uses the memory which it frees");
      default:
        return ok_status();
    }
  }

  Status start_call(const Instruction& i) const {
    const bool generates = i.call == program_.scoring.generate;
    // What is left is generated, and what had finished scored, when that is known.
    if (generates ? i.part != SamplePart::kEarly : of_hand_over(program_, i.call, i.part))
      BRAID_TRY(needs(i, handed_, "which says what has finished"));
    for (const CallId before : waits_.reads[i.call.value])
      if (ends_[before.value] < 0 && runs_here(before) && !goes_on_after(i, before))
        return invalid_input(cat("stands before ", call(before).name, ", which it waits for"));
    for (const CallId before : waits_.all[i.call.value])
      BRAID_TRY(goes_on_after(i, before)
                    ? needs_part(i, before)
                    : needs_call(i, before, "which it reads or which settles its samples"));
    return ok_status();
  }

  // Whether a call that a part of another reads of may go on behind that part.
  bool goes_on_after(const Instruction& i, CallId before) const {
    return i.call != before && of_hand_over(program_, i.call, i.part) &&
           of_hand_over(program_, before, i.part);
  }
  Status needs_part(const Instruction& i, CallId before) const {
    if (before == program_.scoring.generate)
      return needs(i, begun_, "with which a part of the generation ends");
    if (!runs_here(before)) return ok_status();
    const auto end = part_ends_.find({before.value, i.part});
    if (end == part_ends_.end())
      return invalid_input(cat("stands before ", call(before).name, ", which it waits for"));
    return needs(i, end->second, cat("with which ", call(before).name, " ends in this part"));
  }

  bool runs_here(CallId id) const {
    if (program_.calls.empty()) return true;
    const auto& devices = program_.calls[id.value].mesh.devices;
    return std::find(devices.begin(), devices.end(), self_) != devices.end();
  }

  Status move_fields(const Instruction& i, const Exchange& exchange) const {
    const CallId from = exchange.producer;
    const bool part = exchange.part != SamplePart::kAll;
    if (part && from == program_.scoring.generate)
      return needs(i, handed_, "which says what has finished");
    const SamplePart given = parts_given(program_, exchange).back();
    if (const auto end = part_ends_.find({from.value, given}); end != part_ends_.end())
      BRAID_TRY(needs(i, end->second, "which makes what it moves"));
    // What is dropped later is of no part before the last.
    if (ends_before_update(program_, exchange.consumer, exchange.part)) return ok_status();
    if (exchange.shared() && ends_[from.value] < 0 && runs_here(from))
      return invalid_input(cat("shares what ", call(from).name, " finds before that"));
    if (!part) BRAID_TRY(needs_call(i, from, "which makes what it moves"));
    if (exchange.shared()) return ok_status();
    const CallId settles = exchanged_after(program_.graph, waits_.shared, from, exchange.consumer);
    const bool later = std::any_of(list_.begin(), list_.end(), [&](const Instruction& other) {
      return other.kind == OpKind::kShare && program_.exchanges[other.detail].producer == settles;
    });
    if (settles != from && later && shares_[settles.value] < 0)
      return invalid_input(
          cat("stands before the share of ", call(settles).name, ", which settles its rows"));
    return part && settles == from ? ok_status() : needs_call(i, settles, "which settles its rows");
  }

  Status reallocate(const Instruction& i) const {
    const WeightCopy& copy = program_.copies[program_.reallocations[i.detail].copy];
    for (const WeightCopy& home : program_.copies) {
      if (!home.home || home.role != copy.role || !place_in_mesh(home.layout, self_)) continue;
      for (size_t c = 0; c < ends_.size(); ++c) {
        if (changes(program_.graph.calls[c], copy.role))
          BRAID_TRY(needs(i, ends_[c], "which changes what it reads"));
      }
    }
    return place_in_mesh(copy.layout, self_)
               ? needs(i, used_, "the last that uses the memory which it fills")
               : ok_status();
  }

  // What is prefetched, as weights a few layers at a time and optimizers may be, waits for the call
  // before the last.
  Status load(const Instruction& i) const {
    const bool prefetched = i.layers.size() > 0 || program_.states[i.detail].optimizer;
    const auto left = offloaded_.find(i.detail);
    if (left != offloaded_.end())
      BRAID_TRY(needs(i, left->second, "which brings to the host what it loads"));
    return !prefetched || (used_ >= 0 && waits_for(i, used_))
               ? needs(i, used_, "the last that uses the memory which it fills")
               : needs(i, used_before_, "the last but one that uses the memory which it fills");
  }

  void note(int32_t at, const Instruction& i) {
    if (i.kind == OpKind::kOffload) offloaded_[i.detail] = at;
    if (i.kind == OpKind::kHandOver) handed_ = at;
    if (i.kind == OpKind::kShare) shares_[program_.exchanges[i.detail].producer.value] = at;
    const bool repeats = i.kind == OpKind::kRepeat;  // what it repeats uses memory until then
    if (i.kind != OpKind::kCall && i.kind != OpKind::kRegionEnd && !repeats) return;
    if (i.call == program_.scoring.generate && i.kind == OpKind::kRegionEnd) begun_ = at;
    if (i.part != SamplePart::kAll) part_ends_[{i.call.value, i.part}] = at;
    if (i.part == parts_of_call(program_, i.call).back()) ends_[i.call.value] = at;
    if (repeats) used_before_ = used_ = at;
    if (used_roles(program_.graph, call(i.call)).empty()) return;
    // Calls that share a region use the memory together.
    const bool shared =
        at > 0 && i.kind == OpKind::kRegionEnd && list_[at - 1].kind == OpKind::kRegionEnd;
    if (!shared) used_before_ = used_;
    used_ = at;
  }

  const Program& program_;
  const DeviceId self_;
  const std::vector<Instruction>& list_;
  const CallWaits& waits_;
  std::vector<int32_t> ends_, shares_;                           // by call: the instruction, or -1
  std::map<std::pair<int32_t, SamplePart>, int32_t> part_ends_;  // those of its parts
  std::map<int32_t, int32_t> offloaded_;                         // by state: the last
  int32_t begun_ = -1;                    // the last end of a part of such a generation
  int32_t handed_ = -1;                   // where it was last handed over
  int32_t used_ = -1, used_before_ = -1;  // ends of the last two calls with a model
};

// A fetch brings new samples, whatever it waits for; whoever reads what a call wrote works on its
// samples. Where calls work ahead, all of a step's work on its own.
std::vector<int32_t> samples_of_calls(const Graph& graph) {
  std::vector<int32_t> out(graph.calls.size());
  const bool ahead = steps_ahead(graph) > 0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int32_t>(ahead ? graph.calls[i].steps_ahead : i);
    if (ahead) continue;
    if (graph.calls[i].kind == CallKind::kFetch) continue;
    for (const std::string& field : graph.calls[i].reads) {
      const int32_t same = out[producer_of(graph, field).value], other = out[i];
      std::replace(out.begin(), out.begin() + static_cast<int64_t>(i) + 1, other, same);
    }
  }
  return out;
}

}  // namespace

CallWaits call_waits(const Graph& graph) {
  return {dependencies(graph), waited_for(graph), shared_before(graph), samples_of_calls(graph)};
}

Status verify_waits(const Program& program, size_t rank, const CallWaits& waits) {
  return WaitWalk(program, rank, waits).run();
}

}  // namespace braid::inline program
