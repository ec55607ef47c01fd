// What travels in place of tensors: a few numbers, through the very c10d call that the op names.
// Each rank says since when it is ready, so that the begin of the modelled transfer, the latest of
// them, does not count what the transport itself takes; and what it believes to transfer, so that
// ranks that mean different things find out.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "program/op.h"

namespace braid::inline emulate {

struct StandIn {
  int64_t ready_ns = 0;
  int64_t what = 0;       // equal on all ranks that mean the same
  int64_t length_ns = 0;  // of the modelled transfer
};

inline constexpr int64_t kStandInBytes = 3 * sizeof(int64_t);

// The collective of this kind over the members of the group: what each of them brought, in their
// order; of a broadcast from `root` (a global rank) only what that and this rank brought; of an
// all-reduce, and of what only agrees, the largest and the least `what` of all of them, each with
// the latest time and what the first member says of the transfer.
Result<std::vector<StandIn>> exchange_stand_ins(Communicator& group, OpKind kind, int64_t root,
                                                const StandIn& mine, std::string_view name);

// Messages. The calling thread waits; starts are serialised by the caller.
at::Tensor tensor_of(const StandIn& stand_in);
StandIn stand_in_of(const at::Tensor& tensor);

}  // namespace braid::inline emulate
