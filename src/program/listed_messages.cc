#include "program/listed_messages.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "program/local_parts.h"
#include "program/placement.h"

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

size_t place_of(const ParamLayout& layout, DeviceId rank) {
  const auto place = place_in_mesh(layout, rank);
  BRAID_CHECK(place.has_value(), "ranks that share slices are in the mesh of their layout");
  return *place;
}

// Routed experts that a rank shares with nobody.
void drop_whole_experts(const ParamLayout& layout, size_t place, std::vector<TensorKind>* kinds) {
  const GridPosition at = grid_position(layout_grid(layout), place);
  ParamLayout whole = layout;
  whole.sharded = false;
  std::erase_if(*kinds, [&](const TensorKind& kind) {
    return kind.routed && held_elements(kind, layout, at) == held_elements(kind, whole, at);
  });
}

// Elements of what a device holds: of the ends of the model, then of each layer.
std::vector<int64_t> elements_by_layer(const std::vector<TensorKind>& kinds, int64_t layers,
                                       const ParamLayout& layout, size_t place) {
  std::vector<int64_t> out(layers + 1);
  for (const MessagePart& part : held_parts(kinds, layers, layout, place)) {
    const TensorKind& kind = kinds[part.item];
    const bool end = kind.layer_begin == kind.layer_end;
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
      out[end ? 0 : layer + 1] += part.units.size();
  }
  return out;
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

MovedWeights moved_weights(const Program& program, int32_t entry) {
  const Reallocation& reallocation = program.reallocations[entry];
  const WeightCopy& to = program.copies[reallocation.copy];
  const WeightCopy& home = program.copies[home_copy(program, to.role)];
  const ModelShape& model = *find_shape(program, to.role);
  return {home.layout,   to.layout,    reallocation.messages,
          model.changed, model.layers, std::llround(model.widths.gathered)};
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

std::vector<DeviceId> slice_sharers(const ParamLayout& layout, DeviceId rank) {
  auto at = place_in_grid(layout, rank);
  if (!at || !layout.sharded) return {};
  const int first = at->dp_rank / layout.shards * layout.shards;
  std::vector<DeviceId> out;
  for (at->dp_rank = first; at->dp_rank < first + layout.shards; ++at->dp_rank)
    out.push_back(layout.mesh.devices[mesh_index(layout_grid(layout), *at)]);
  return out;
}

std::vector<int64_t> gathered_weights(const ModelShape& model, const ParamLayout& layout,
                                      DeviceId rank) {
  const size_t place = place_of(layout, rank);
  std::vector<TensorKind> kinds = model.kinds;
  for (const TensorKind& kind : model.changed)  // adapters lie beside the others
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  drop_whole_experts(layout, place, &kinds);
  ParamLayout whole = layout;
  whole.sharded = false;
  std::vector<int64_t> out = elements_by_layer(kinds, model.layers, whole, place);
  for (int64_t& each : out) each = std::llround(static_cast<double>(each) * model.widths.gathered);
  return out;
}

std::vector<int64_t> gathered_arrivals(const ModelShape& model, const ParamLayout& to,
                                       const std::vector<DeviceId>& sharers) {
  std::vector<int64_t> out(model.layers + 1);
  for (const DeviceId rank : sharers) {
    const size_t place = place_of(to, rank);
    std::vector<TensorKind> kinds = model.changed;
    drop_whole_experts(to, place, &kinds);
    const std::vector<int64_t> own = elements_by_layer(kinds, model.layers, to, place);
    for (size_t layer = 0; layer < own.size(); ++layer)
      out[layer] = std::max(out[layer], own[layer]);
  }
  for (int64_t& each : out) each *= std::ssize(sharers) * std::llround(model.widths.gathered);
  return out;
}

std::vector<int64_t> gathered_where_they_come(const ModelShape& model, const ParamLayout& to,
                                              DeviceId rank) {
  std::vector<int64_t> out = gathered_arrivals(model, to, slice_sharers(to, rank));
  if (model.trained_share >= 1) return out;
  const std::vector<int64_t> below = gathered_weights(model, to, rank);
  out.insert(out.end(), below.begin(), below.end());
  return out;
}

}  // namespace braid::inline program
