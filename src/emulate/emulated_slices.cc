// Weights that are slices (ZeRO-3) outside of passes.
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

// Slices of a role that a call follows: the ranks that share them bring them together, in the time
// of the thread that computes.
Status EmulatedRank::gather_followed(CallId id) {
  if (call(id).kind != CallKind::kFollow) return ok_status();
  const Gather gather = gather_of(program_.calls[id.value].copy);
  if (gather.group == nullptr) return ok_status();
  const auto what = static_cast<int64_t>(mix_seed(static_cast<uint64_t>(id.value) + 1, 0) >> 1);
  const StandIn mine{device_ns_, what, clock_.length_ns(gather.price.seconds), -1};
  BRAID_ASSIGN(const Fabric::Span span,
               pass_together(gather.group, OpKind::kAllGather, mine,
                             group_ports(problem_.cluster, gather.sharers)));
  TraceEvent event;
  event.kind = EventKind::kReallocation, event.call = id, event.instruction = instruction_;
  event.track = farthest_link(problem_.cluster, work_.rank, gather.sharers) == LinkKind::kNetwork
                    ? TrackKind::kNetworkOut
                    : TrackKind::kNvlinkOut;
  event.bytes = gather.price.bytes, event.peer = work_.rank;
  record(event, span.begin_ns, span.end_ns);
  return ok_status();
}

// The real calls of all of these.
void EmulatedRank::note_gathers() {
  for (const Instruction& i : list()) {
    if (i.kind != OpKind::kCall || call(i.call).kind != CallKind::kFollow) continue;
    const Gather gather = gather_of(program_.calls[i.call.value].copy);
    if (gather.group != nullptr) calls_.push_back({gather.price.seconds, {gather.group}});
  }
}

}  // namespace braid::inline emulate
