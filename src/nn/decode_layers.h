// Layers that serve a decode step at once (nn/kernels/decode_step.h), where these are of the form
// it knows: an RMS norm before attention and before a gated activation, rotary positions, f32 on
// the CPU, GEMMs of our own, no adapters, a whole model on this rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nn/decoder_layer.h"

namespace braid::inline nn {

// Hidden states [T, H] after the layers, whose matrices are packed; undefined where layers, batch
// or h_TH are not of that form.
at::Tensor run_decode_step(const std::vector<DecoderLayer>& layers, const LayerContext& context,
                           const at::Tensor& h_TH, const std::vector<KvLayer>& kv);

}  // namespace braid::inline nn
