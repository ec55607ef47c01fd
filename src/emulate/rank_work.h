// What one rank does in an emulated step: the ops of its calls, as the runtime expands them, with
// their prices, and the runtime's groups. Made before the step; plain values but for the
// communicators, which are the world's.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "program/op_cursor.h"
#include "samples/call_groups.h"
#include "sim/step_prices.h"

namespace braid::inline emulate {

// A call, or one part of those that run in parts.
using CallPart = std::pair<CallId, SamplePart>;

// A call with a model on this rank, or a part of it.
struct EmulatedCall {
  CallId id;
  SamplePart part = SamplePart::kAll;
  bool generates = false;  // in rounds, without ops of its own
  Expansion ops;
  std::vector<double> seconds;  // of the ops
  CallGroups groups;
  std::vector<int64_t> ends;  // of the ops that have, by the clock of the step
  OpCursor cursor;            // in them, of the region that is open
  struct Round {
    Expansion ops;
    double seconds = 0;      // of the whole round
    double agreement_s = 0;  // of the agreements after it
    int64_t times = 1;       // how many it stands for
    int64_t agreements = 0;  // and how many after them
  };
  std::vector<Round> rounds;  // of generation; rounds that are alike are one
  int64_t copied_after = -1;  // of these: then caches are copied ahead of a hand-over; -1: none are
};

// The collectives inside of an op: one real call for each group that they are of.
struct InsideCall {
  Communicator* group = nullptr;
  OpKind kind = OpKind::kAllReduce;
};
std::vector<InsideCall> calls_inside(const CallGroups& groups, const Expansion& ops, const Op& op);

struct RankWork {
  DeviceId rank;
  std::vector<Communicator*> connected;  // in an order that their members have in common
  std::map<CallPart, EmulatedCall> calls;
};

// Connects the groups of all calls, and expands and prices the calls of this rank. `change` edits
// the ops before they run: what-if, as SimOptions::change_ops.
Result<RankWork> make_rank_work(const Program& program, const StepPrices& prices, World& world,
                                const std::function<void(Expansion*)>& change);

}  // namespace braid::inline emulate
