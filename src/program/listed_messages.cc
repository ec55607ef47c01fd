#include "program/listed_messages.h"

#include <algorithm>

#include "base/status.h"
#include "program/local_parts.h"

namespace braid::inline program {
namespace {

// Pieces of at least so many bytes travel alone, without a copy where they lie in one run of
// memory; smaller ones share a buffer. Both sides cut a message alike.
constexpr int64_t kAlone_bytes = 64 << 10;

void list_messages(const std::vector<Message>& messages, int64_t number_bytes, DeviceId rank,
                   std::vector<ListedMessage>* out) {
  for (const Message& message : messages) {
    const bool sends = message.from == rank;
    if (!sends && message.to != rank) continue;
    for (const auto& pieces : cut_message(message, number_bytes))
      out->push_back({sends ? OpKind::kSend : OpKind::kReceive, sends ? message.to : message.from,
                      elements_of(pieces) * number_bytes});
  }
}

}  // namespace

int64_t bytes_of(const FieldMove& move, const std::vector<MovedField>& fields) {
  int64_t sum = 0;
  for (size_t field = 0; field < fields.size(); ++field)
    for (const int32_t row : move.rows[field]) sum += fields[field].numbers[row];
  return sum * kNumberBytes;
}

std::vector<ListedMessage> messages_of(const std::vector<FieldMove>& moves,
                                       const std::vector<MovedField>& fields, DeviceId rank) {
  std::vector<ListedMessage> out;
  for (const FieldMove& move : moves) {
    const bool sends = move.from == rank.value;
    const int64_t bytes = bytes_of(move, fields);
    if (bytes == 0 || (!sends && move.to != rank.value)) continue;
    out.push_back(
        {sends ? OpKind::kSend : OpKind::kReceive, DeviceId{sends ? move.to : move.from}, bytes});
  }
  return out;
}

int64_t elements_of(const std::vector<MessagePiece>& pieces) {
  int64_t sum = 0;
  for (const MessagePiece& piece : pieces) sum += piece.units.size();
  return sum;
}

std::vector<std::vector<MessagePiece>> cut_message(const Message& message, int64_t number_bytes) {
  std::vector<std::vector<MessagePiece>> out(1);
  for (const MessagePart& part : message.parts)
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
      const MessagePiece piece{part.item, layer, part.units};
      if (part.units.size() * number_bytes >= kAlone_bytes)
        out.push_back({piece});
      else
        out[0].push_back(piece);
    }
  if (out[0].empty()) out.erase(out.begin());
  return out;
}

std::vector<MessagePart> parts_of_layer(const std::vector<MessagePart>& parts,
                                        const std::vector<TensorKind>& kinds, int64_t layer) {
  std::vector<MessagePart> out;
  for (const MessagePart& part : parts) {
    const TensorKind& kind = kinds[part.item];
    const bool end = kind.layer_begin == kind.layer_end;
    if (end && layer == kEndsOfModel) out.push_back(part);
    if (!end && part.layers.begin <= layer && layer < part.layers.end)
      out.push_back({part.item, {layer, layer + 1}, part.units});
  }
  return out;
}

std::vector<Message> messages_of_layer(const std::vector<Message>& messages,
                                       const std::vector<TensorKind>& kinds, int64_t layer) {
  std::vector<Message> out;
  for (const Message& message : messages) {
    std::vector<MessagePart> parts = parts_of_layer(message.parts, kinds, layer);
    if (parts.empty()) continue;
    out.push_back(message);
    out.back().parts = std::move(parts);
  }
  return out;
}

std::vector<ListedMessage> messages_of(const MovedWeights& moved, DeviceId rank) {
  std::vector<ListedMessage> out;
  if (!moved.sliced()) {
    list_messages(moved.messages, moved.number_bytes, rank, &out);
    return out;
  }
  for (int64_t layer = kEndsOfModel; layer < moved.layers; ++layer)
    list_messages(messages_of_layer(moved.messages, moved.kinds, layer), moved.number_bytes, rank,
                  &out);
  return out;
}

int64_t gathered_bytes(const MovedWeights& moved, const std::vector<DeviceId>& sharers,
                       int64_t layer) {
  int64_t most = 0;
  for (const DeviceId rank : sharers) {
    const auto place = place_in_mesh(moved.to, rank);
    BRAID_CHECK(place.has_value(), "ranks that share slices are in the target's mesh");
    const std::vector<MessagePart> held = held_parts(moved.kinds, moved.layers, moved.to, *place);
    most = std::max(most, elements_of(parts_of_layer(held, moved.kinds, layer)));
  }
  return most * static_cast<int64_t>(sharers.size()) * moved.number_bytes;
}

}  // namespace braid::inline program
