// What a device holds under a layout, and what of it needs no message when the layout changes.
// Pure.
#pragma once

#include <optional>
#include <vector>

#include "program/reallocation.h"

namespace braid::inline program {

// Place of the device in the layout's mesh; nothing where it has none.
std::optional<size_t> place_in_mesh(const ParamLayout& layout, DeviceId device);
// The same as what it holds there: stage, tensor-parallel and data-parallel rank.
std::optional<GridPosition> place_in_grid(const ParamLayout& layout, DeviceId device);

// Everything that the device at a place of the mesh holds, kind by kind.
std::vector<MessagePart> held_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                    const ParamLayout& layout, size_t mesh_index);

// What the device holds under both layouts: it is copied, or shared, without a message.
std::vector<MessagePart> kept_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                    const ParamLayout& from, const ParamLayout& to,
                                    DeviceId device);

// Of that the tensors whose slice is the same under both, which may be one memory. Where tensor
// parallelism cuts differently these are the tensors that it does not cut: matrices that lie in one
// block (queries beside keys) are the same as a whole or not.
std::vector<MessagePart> alike_parts(const std::vector<TensorKind>& kinds, int64_t layers,
                                     const ParamLayout& from, const ParamLayout& to,
                                     DeviceId device);

// Over all layers.
int64_t elements_of(const std::vector<MessagePart>& parts);

}  // namespace braid::inline program
