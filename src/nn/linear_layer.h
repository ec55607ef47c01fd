// A linear layer whose matrix may be several checkpoint matrices stored one below another (q, k, v;
// gate, up), so that one GEMM serves all. Each part stays a parameter of its own: a leaf tensor
// that is a view of the joined storage. Parameters must be changed in place. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/adapter_dropout.h"
#include "nn/kernels/kernels.h"

namespace braid::inline nn {

// How a forward uses adapters.
struct AdapterUse {
  double scale = 0;                               // 0 = adapters off
  std::shared_ptr<const AdapterDropout> dropout;  // null = none
};

struct LinearPart {
  std::string module;  // full Hugging Face name, "model.layers.0.self_attn.q_proj"
  int64_t rows = 0;
  int64_t first_column = 0;   // of the whole matrix, where ranks share its columns
  at::Tensor weight, bias;    // leaves [rows, in] and [rows]; bias may be undefined
  at::Tensor lora_a, lora_b;  // leaves [r, in] and [rows, r]; undefined without adapter
};

struct LinearLayer {
  at::Tensor weight, bias;  // [sum of rows, in] and [sum of rows], without gradient
  std::vector<LinearPart> parts;
  bool transposed = false;  // files hold [in, out]
  PackedLinear packed;      // of weight; must be dropped when the weight changes
};

// Packs the weight if it is not yet (see pack_linear).
void pack_layer(LinearLayer* layer, bool for_backward);

// Allocates the joined storage for parts whose module and rows are set, as far as it is not there,
// and makes their views.
void allocate_linear(LinearLayer* layer, int64_t in, bool bias, const at::TensorOptions& options);

// Points weight and bias of the parts at their rows of the joined storage, as fresh leaves.
void bind_parts(LinearLayer* layer);

// x [T, in] -> [T, out]: linear() of the joined matrix plus scale * B A dropout(x) of each part
// that has an adapter (Hu et al., 2021, §4.1). Gradients flow to the parts.
at::Tensor apply_linear(const LinearLayer& layer, const at::Tensor& x_TI,
                        const AdapterUse& adapters);

// The same without the bias.
at::Tensor apply_gemm(const LinearLayer& layer, const at::Tensor& x_TI, const AdapterUse& adapters);

// W + lora_scale * B A of one part, in f32 GEMMs, in the weight's dtype.
at::Tensor merged_weight(const LinearPart& part, double lora_scale);

}  // namespace braid::inline nn
