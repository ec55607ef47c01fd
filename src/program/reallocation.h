// Plans of messages that bring parameters from one layout to another. Pure; deterministic.
//
// Messages are in one global order that every rank follows, so they cannot wait for each other in a
// circle. A message of hop d of a round has slot round + d; what a relay passes on arrived with the
// slot before in the same lane.
#pragma once

#include <vector>

#include "program/layout.h"
#include "program/transfer.h"

namespace braid::inline program {

// Pieces that the layers of a stage travel in: more balance the senders better, fewer make smaller
// plans.
inline constexpr int64_t kLayerPieces = 8;

// Messages of long chains take about so much longer than the busiest link is busy: each waits for
// the one before.
inline constexpr double kHopsCost = 2;

// Part of a message: elements of tensor kind `item` in each of the layers.
struct MessagePart {
  int32_t item = 0;
  Interval layers = {0, 1};
  Interval units;
  friend bool operator==(const MessagePart&, const MessagePart&) = default;
};

struct Message {
  DeviceId from, to;
  int32_t slot = 0;
  int32_t depth = 0;
  int32_t lane = 0;  // stage of the layout that parameters come from; lanes do not wait for others
  double bytes = 0;
  std::vector<MessagePart> parts;
  friend bool operator==(const Message&, const Message&) = default;
};

struct ReallocationOptions {
  double bytes_per_parameter = 2;
  double message_bytes = 256.0 * 1048576;  // longest message: bounds the staging memory
};

// Brings every tensor slice of `to` that its device does not hold under `from` onto that device,
// each byte once.
std::vector<Message> plan_reallocation(const std::vector<TensorKind>& kinds, int64_t layers,
                                       const ParamLayout& from, const ParamLayout& to,
                                       const Cluster& cluster, const ReallocationOptions& options);

}  // namespace braid::inline program
