// Weights that are slices (ZeRO-3) outside of passes: ranks that share them bring them together, in
// the time of the thread that computes.
#include "base/rng.h"
#include "base/text.h"
#include "emulate/emulated_rank.h"
#include "program/placement.h"

namespace braid::inline emulate {

// Of the weights that this rank has of a copy; without a group where it shares none.
EmulatedRank::Gather EmulatedRank::gather_of(int32_t copy) const {
  Gather out;
  out.sharers = slice_sharers(program_.copies[copy].layout, work_.rank);
  if (out.sharers.empty()) return out;
  const CallId user = user_of(program_, copy);
  const auto work = work_.calls.lower_bound({user, SamplePart::kAll});
  BRAID_CHECK(work != work_.calls.end() && work->first.first == user,
              "a rank with slices is in the call that uses them");
  out.group = work->second.groups.weights;
  out.price = prices_.gathered(copy, work_.rank);
  return out;
}

EmulatedRank::Gather EmulatedRank::gather_of_arrivals(int32_t entry) const {
  Gather out = gather_of(program_.reallocations[entry].copy);
  if (out.group != nullptr) out.price = prices_.gathered_arrivals(entry, work_.rank);
  return out;
}

Status EmulatedRank::gather_slices(const Gather& gather, int32_t index, bool arrived) {
  if (gather.group == nullptr) return ok_status();
  const CallId of = list()[index].call;
  const uint64_t what = mix_seed(mix_seed(static_cast<uint64_t>(of.value) + 1, arrived ? 1 : 0),
                                 static_cast<uint64_t>(list()[index].detail + 2));
  const StandIn mine{device_ns_, static_cast<int64_t>(what >> 1),
                     clock_.length_ns(gather.price.seconds)};
  BRAID_ASSIGN(const Fabric::Span span,
               pass_together(gather.group, OpKind::kAllGather, mine,
                             group_ports(problem_.cluster, gather.sharers)));
  TraceEvent event;
  event.kind = EventKind::kReallocation, event.call = of, event.instruction = index;
  event.track = farthest_link(problem_.cluster, work_.rank, gather.sharers) == LinkKind::kNetwork
                    ? TrackKind::kNetworkOut
                    : TrackKind::kNvlinkOut;
  event.bytes = gather.price.bytes, event.peer = work_.rank;
  record(event, span.begin_ns, span.end_ns);
  return ok_status();
}

// What this rank gives is there before its messages go, and what came when all of it has come.
// Where it stands before the step's data is there, as further draws have it, it does not wait.
Status EmulatedRank::move_slices(int32_t index) {
  const int32_t entry = list()[index].detail;
  const RoleId& role = program_.copies[program_.reallocations[entry].copy].role;
  world_.position().enter(cat("emulated step, weights of ", role));
  BRAID_ASSIGN(const int64_t ready, latest(list()[index].after));
  device_ns_ = std::max(device_ns_, ready);
  BRAID_TRY(gather_slices(gather_of(home_copy(program_, role)), index, false));
  BRAID_TRY(begin_reallocation(index, device_ns_));
  BRAID_ASSIGN(const int64_t arrived, end_of(index));
  compute_until(arrived);
  BRAID_TRY(gather_slices(gather_of_arrivals(entry), index, true));
  ends_[index] = device_ns_;
  return ok_status();
}

// Slices of a role that a call follows.
Status EmulatedRank::gather_followed(CallId id) {
  if (call(id).kind != CallKind::kFollow) return ok_status();
  return gather_slices(gather_of(program_.calls[id.value].copy), instruction_, false);
}

// The real calls of all of these.
void EmulatedRank::note_gathers() {
  const auto note = [&](const Gather& gather) {
    if (gather.group != nullptr) calls_.note(gather.price.seconds, {gather.group});
  };
  for (const Instruction& i : list()) {
    if (i.kind == OpKind::kReallocate && prices_.moves_slices(i.detail)) {
      const int32_t copy = program_.reallocations[i.detail].copy;
      note(gather_of(home_copy(program_, program_.copies[copy].role)));
      note(gather_of_arrivals(i.detail));
    } else if (i.kind == OpKind::kCall && call(i.call).kind == CallKind::kFollow) {
      note(gather_of(program_.calls[i.call.value].copy));
    }
  }
}

}  // namespace braid::inline emulate
