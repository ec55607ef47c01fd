#include "program/local_parts.h"

#include <algorithm>

namespace braid::inline program {
namespace {

Interval common(const Interval& a, const Interval& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

std::optional<size_t> place_in_mesh(const ParamLayout& layout, DeviceId device) {
  const std::vector<DeviceId>& devices = layout.mesh.devices;
  const auto found = std::find(devices.begin(), devices.end(), device);
  if (found == devices.end()) return std::nullopt;
  return static_cast<size_t>(found - devices.begin());
}

std::optional<GridPosition> place_in_grid(const ParamLayout& layout, DeviceId device) {
  const auto place = place_in_mesh(layout, device);
  if (!place) return std::nullopt;
  return grid_position(layout_grid(layout), *place);
}

std::vector<MessagePart> held_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                    const ParamLayout& layout, size_t mesh_index) {
  const GridPosition position = grid_position(layout_grid(layout), mesh_index);
  std::vector<MessagePart> out;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const Interval units = held_elements(kinds[kind], layout, position);
    if (units.size() == 0) continue;
    for (const Interval& run : held_layers(kinds[kind], layout, layers, position.stage))
      out.push_back({static_cast<int32_t>(kind), run, units});
  }
  return out;
}

std::vector<MessagePart> kept_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                    const ParamLayout& from, const ParamLayout& to,
                                    DeviceId device) {
  const auto before = place_in_mesh(from, device), after = place_in_mesh(to, device);
  std::vector<MessagePart> out;
  if (!before || !after) return out;
  const std::vector<MessagePart> old_parts = held_parts(kinds, layers, from, *before);
  for (const MessagePart& wanted : held_parts(kinds, layers, to, *after))
    for (const MessagePart& held : old_parts) {
      const Interval run = common(wanted.layers, held.layers);
      const Interval units = common(wanted.units, held.units);
      if (wanted.item == held.item && run.size() > 0 && units.size() > 0)
        out.push_back({wanted.item, run, units});
    }
  return out;
}

std::vector<MessagePart> alike_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                     const ParamLayout& from, const ParamLayout& to,
                                     DeviceId device) {
  const auto before = place_in_grid(from, device), after = place_in_grid(to, device);
  if (!before || !after) return {};
  const bool cut_alike = from.tp == to.tp && before->tp_rank == after->tp_rank;
  std::vector<MessagePart> out = kept_parts(kinds, layers, from, to, device);
  std::erase_if(out, [&](const MessagePart& part) {
    const TensorKind& kind = kinds[part.item];
    const bool uncut = kind.units == 1 && !kind.partial;
    return !(cut_alike || uncut) ||
           held_elements(kind, from, *before) != held_elements(kind, to, *after);
  });
  return out;
}

int64_t elements_of(const std::vector<MessagePart>& parts) {
  int64_t sum = 0;
  for (const MessagePart& part : parts) sum += part.layers.size() * part.units.size();
  return sum;
}

}  // namespace braid::inline program
