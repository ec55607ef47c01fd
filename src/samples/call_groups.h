// The communicators that a rank needs in a call, one for each group of the call's ops
// (program/op.h). Groups of equal kind and ranks are the same communicator in every call. Plain
// values; the communicators are the world's.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "comm/world.h"
#include "nn/tensor_parallel.h"
#include "program/expand.h"
#include "program/program.h"

namespace braid::inline samples {

// Null where the group is this rank alone.
struct CallGroups {
  TensorParallelGroup tensor;
  Communicator* data = nullptr;     // same slice of the weights, other samples; of ZeRO, those
                                    // that share what it shards
  Communicator* across = nullptr;   // those that share the same of it
  Communicator* weights = nullptr;  // the same ranks, where they gather weights (ZeRO-3)
  Communicator* ends = nullptr;     // both ends of the pipeline that hold a tied embedding
  Communicator* replica = nullptr;  // all ranks of one data-parallel rank
  Communicator* call = nullptr;     // all ranks of the call
  // Each of the call's groups that this rank is in, also of ops that only emulated devices execute.
  std::map<GroupKind, Communicator*> by_kind;
  // The one of an op, or of a gather of weights in a pass; null where the rank is alone.
  Communicator* of(GroupKind kind, bool gathers_weights = false) const;
};

// The name of a group's communicator: "tensor-0-1", or of many "data-0-to-60-of-16-1234". Ranks
// that bring weights together in passes have one of their own, apart from that of reductions, which
// ranks without samples begin earlier.
inline constexpr const char* kWeightsInPasses = "weights";
std::string group_name(std::string_view kind, const OpGroup& group);

// All ranks of the call must call it together. `at` is this rank's position in the call's grid;
// `world` is null in a job of one rank. Errors: those of World::group().
Result<CallGroups> connect_groups(const CallFrame& frame, const GridPosition& at, World* world);

// The same for all calls with a model that this rank takes part in, by call, in the graph's order
// on every rank: connecting a group takes all of its members.
Result<std::map<int32_t, CallGroups>> connect_calls(const Program& program, DeviceId self,
                                                    World* world);

// Whether something is so on any rank of the group, all of which call this; null: this rank alone.
// `what` is its name in messages.
Result<bool> on_any_rank(bool here, Communicator* group, std::string_view what);

}  // namespace braid::inline samples
