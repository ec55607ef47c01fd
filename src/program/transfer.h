// Who sends what to whom so that every receiver gets every unit of a tensor that it lacks exactly
// once. Pure; deterministic.
//
// A piece travels from a device that has it, on the receiver's node if there is one, else from the
// least loaded holder, to the receiver there that has taken the least from other nodes, which
// passes it on there. Further receivers may pass pieces on as well: that is how one piece reaches
// many devices without one sender sending it many times. As every hop waits for the one before,
// that is done only where it spreads the load. `depth` counts the hops before.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/cluster.h"
#include "program/layout.h"

namespace braid::inline program {

struct Holding {
  DeviceId device;
  Interval units;
  friend bool operator==(const Holding&, const Holding&) = default;
};

// Something that can be cut into units.
struct MoveItem {
  int32_t id = 0;  // the caller's
  double unit_bytes = 0;
  std::vector<Holding> owners, receivers;  // a device may receive the same for several calls
};

struct MovePiece {
  int32_t item = 0;
  Interval units;
  DeviceId from, to;
  int32_t depth = 0;
  friend bool operator==(const MovePiece&, const MovePiece&) = default;
};

// Bytes that each device sends so far, inside its node and out of it, and has received from other
// nodes; [device].
struct SendLoad {
  std::vector<double> inside, outside, brought_in;
  explicit SendLoad(size_t devices) : inside(devices), outside(devices), brought_in(devices) {}
};

// Who passes pieces on: any receiver, inside a node where it makes the item's load more even; or
// only who has brought a piece into its node, to the others there.
enum class Relays { kWhereEven, kIntoNodes };

// Appends the pieces of one item in an order in which every relay comes before its use. Units that
// no owner has are left out: REQUIRES that owners together hold what receivers want.
void plan_moves(const MoveItem& item, const Cluster& cluster, Relays relays, SendLoad* load,
                std::vector<MovePiece>* pieces);

}  // namespace braid::inline program
