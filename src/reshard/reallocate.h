// Executes the messages of a reallocation plan (program/reallocation.h) on one rank. All ranks of
// the two meshes call it with equal plans. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "program/reallocation.h"
#include "reshard/element_store.h"

namespace braid {

struct ReallocateOptions {
  int32_t channel = 0;                  // of all messages; one pair's arrive in the plan's order
  int64_t staging_bytes = 512LL << 20;  // of messages under way on this rank, at least one message
};

struct ReallocateReport {
  int64_t sent_bytes = 0, received_bytes = 0;
  int64_t copied_bytes = 0;           // inside this rank
  int64_t largest_staging_bytes = 0;  // buffers and messages under way at once
};

// One rank's side: `from` holds its slices under the old layout, `to` takes those under the new one
// (null where the rank has no place in it); `kept` is kept_parts() of the rank, empty where `to` is
// a view of `from`. Ranks are device numbers of the plan. Pieces that lie in one run of memory
// travel without a copy. kDeadline, kUnavailable: a message failed; `to` is then incomplete.
Result<ReallocateReport> reallocate(const std::vector<Message>& messages,
                                    const std::vector<MessagePart>& kept, const ElementStore* from,
                                    ElementStore* to, Communicator& group,
                                    const ReallocateOptions& options);

}  // namespace braid
