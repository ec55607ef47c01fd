// What a device holds under a layout, and what of it needs no message when the layout changes.
// Pure.
#pragma once

#include <optional>
#include <vector>

#include "program/reallocation.h"

namespace braid::inline program {

// Place of the device in the layout's mesh; nothing where it has none.
std::optional<size_t> place_in_mesh(const ParamLayout& layout, DeviceId device);

// Everything that the device at a place of the mesh holds, kind by kind.
std::vector<MessagePart> held_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                    const ParamLayout& layout, size_t mesh_index);

// What the device holds under both layouts: it is copied, or shared, without a message.
std::vector<MessagePart> kept_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                    const ParamLayout& from, const ParamLayout& to,
                                    DeviceId device);

// Whether everything that the device holds under `to` it holds under `from`, each slice inside of
// one slice: then `to` may be views of `from`.
bool contains_layout(const std::vector<TensorKind>& kinds, int64_t layers, const ParamLayout& from,
                     const ParamLayout& to, DeviceId device);

}  // namespace braid::inline program
