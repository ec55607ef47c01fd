// What the instructions between calls send: the fields of an exchange or a share, and the weights
// of a reallocation, message by message, as a runtime's communicators count them. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "program/exchange.h"
#include "program/model_shape.h"
#include "program/op_kind.h"
#include "program/reallocation.h"

namespace braid::inline program {

// A message of a rank.
struct ListedMessage {
  OpKind kind = OpKind::kSend;  // or receive
  DeviceId peer;
  int64_t bytes = 0;
  friend bool operator==(const ListedMessage&, const ListedMessage&) = default;
};

// Bytes of a number of a field between ranks: of tokens, f32 values, flags and counts.
inline constexpr int64_t kNumberBytes = 4;

// Bytes that a move of these fields takes.
int64_t bytes_of(const FieldMove& move, const std::vector<MovedField>& fields);
// Messages of a rank in moves of fields, in their order; rows without numbers need none.
std::vector<ListedMessage> messages_of(const std::vector<FieldMove>& moves,
                                       const std::vector<MovedField>& fields, DeviceId rank);

// Elements of one layer of a part of a message.
struct MessagePiece {
  int32_t item = 0;
  int64_t layer = 0;
  Interval units;
  friend bool operator==(const MessagePiece&, const MessagePiece&) = default;
};
int64_t elements_of(const std::vector<MessagePiece>& pieces);
// What of a message travels together, in this order: the small pieces in one buffer, then each
// large one alone, from and into its place.
std::vector<std::vector<MessagePiece>> cut_message(const Message& message, int64_t number_bytes);

// In the place of a layer: the ends of the model.
inline constexpr int64_t kEndsOfModel = -1;
// What of parts, or of messages, is of one layer.
std::vector<MessagePart> parts_of_layer(const std::vector<MessagePart>& parts,
                                        const std::vector<TensorKind>& kinds, int64_t layer);
std::vector<Message> messages_of_layer(const std::vector<Message>& messages,
                                       const std::vector<TensorKind>& kinds, int64_t layer);

// The weights that a reallocation moves. Refers to its parts.
struct MovedWeights {
  const ParamLayout& from;
  const ParamLayout& to;
  const std::vector<Message>& messages;
  const std::vector<TensorKind>& kinds;
  int64_t layers = 0, number_bytes = 0;
  // Whether one side has slices (ZeRO-3): then they go layer by layer, the ends of the model first.
  bool sliced() const { return from.sharded || to.sharded; }
};
// Of an entry of a program's reallocations.
MovedWeights moved_weights(const Program& program, int32_t entry);
// Messages of a rank, in their order.
std::vector<ListedMessage> messages_of(const MovedWeights& moved, DeviceId rank);

// The ranks that share the slices which a rank has under a layout (ZeRO-3), itself included, in the
// order of their group; none where its weights are whole, or it has none.
std::vector<DeviceId> slice_sharers(const ParamLayout& layout, DeviceId rank);
// Bytes of the all-gathers in which these bring all weights of a layer together, as
// gathers_of_layer() has them but for what buckets are padded with: of the ends of the model, then
// of each layer; 0: the rank has nothing of it. REQUIRES: it shares slices.
std::vector<int64_t> gathered_weights(const ModelShape& model, const ParamLayout& layout,
                                      DeviceId rank);
// Likewise of those in which ranks that share slices of the target bring together what came.
std::vector<int64_t> gathered_arrivals(const ModelShape& model, const ParamLayout& to,
                                       const std::vector<DeviceId>& sharers);
// All of them that a rank takes part in where weights come: under adapters only these come, into
// layers whose other weights are brought together for it. REQUIRES: it shares slices.
std::vector<int64_t> gathered_where_they_come(const ModelShape& model, const ParamLayout& to,
                                              DeviceId rank);

}  // namespace braid::inline program
