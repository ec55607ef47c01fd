// Activations with hand-written CPU forwards and backwards: one pass over memory, inputs saved
// instead of intermediates, arithmetic in f32. Other devices take the composition of ATen
// operators.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/row_kernels.h"
#include "nn/kernels/rows.h"
#include "nn/kernels/simd.h"

namespace braid::inline nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// y = x sigmoid(x) and its derivative; gelu in the tanh form (Hendrycks & Gimpel, 2016).
__attribute__((always_inline)) inline float sigmoid(float x) {
  return 1.0F / (1.0F + fast_exp(-x));
}
__attribute__((always_inline)) inline float gelu_inner(float x) {
  return 0.7978845608F * (x + 0.044715F * x * x * x);
}

BRAID_SIMD void silu_backward_row(const float* gate, const float* up, const float* g, float* dgate,
                                  float* dup, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float s = sigmoid(gate[i]);
    dup[i] = g[i] * gate[i] * s;
    dgate[i] = g[i] * up[i] * s * (1 + gate[i] * (1 - s));
  }
}
BRAID_SIMD void gelu_backward_row(const float* gate, const float* up, const float* g, float* dgate,
                                  float* dup, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float x = gate[i], s = sigmoid(2 * gelu_inner(x));
    const float slope = 2 * 0.7978845608F * (1 + 3 * 0.044715F * x * x);
    dup[i] = g[i] * x * s;
    dgate[i] = g[i] * up[i] * (s + x * s * (1 - s) * slope);
  }
}

}  // namespace

BRAID_SIMD void rows::gated_silu(const float* gate, const float* up, float* y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}
BRAID_SIMD void rows::gated_gelu(const float* gate, const float* up, float* y, int64_t width) {
  // 0.5 (1 + tanh(z)) = sigmoid(2 z)
  for (int64_t i = 0; i < width; ++i) y[i] = gate[i] * sigmoid(2 * gelu_inner(gate[i])) * up[i];
}

namespace {

at::Tensor gated_cpu(const at::Tensor& gate_up_in, Activation activation) {
  const at::Tensor gate_up = gate_up_in.contiguous();
  const int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
  at::Tensor y = at::empty({rows, width}, gate_up.options());
  const auto row_kernel = activation == Activation::kSilu ? rows::gated_silu : rows::gated_gelu;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, gate_up.scalar_type(), "gated", [&] {
    const scalar_t* from = gate_up.const_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
      RowBuffer in, out;
      for (int64_t r = begin; r < end; ++r) {
        scalar_t* to = y.mutable_data_ptr<scalar_t>() + r * width;
        const float* row = in.read(from + r * 2 * width, 2 * width);
        row_kernel(row, row + width, out.target(to, width), width);
        out.write(to, width);
      }
    });
  });
  return y;
}

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_in,
                            int64_t activation) {
    const at::Tensor gate_up = gate_up_in.contiguous();
    context->save_for_backward({gate_up});
    context->saved_data["activation"] = activation;
    return gated_cpu(gate_up, static_cast<Activation>(activation));
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor gate_up = context->get_saved_variables()[0], grad = grads[0].contiguous();
    const int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
    const bool silu =
        context->saved_data["activation"].toInt() == static_cast<int64_t>(Activation::kSilu);
    const auto row_kernel = silu ? silu_backward_row : gelu_backward_row;
    at::Tensor dx = at::empty_like(gate_up);
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, gate_up.scalar_type(), "gated", [&] {
      at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
        RowBuffer in, g, out;
        for (int64_t r = begin; r < end; ++r) {
          scalar_t* to = dx.mutable_data_ptr<scalar_t>() + r * 2 * width;
          const float* row = in.read(gate_up.const_data_ptr<scalar_t>() + r * 2 * width, 2 * width);
          float* d = out.target(to, 2 * width);
          row_kernel(row, row + width, g.read(grad.const_data_ptr<scalar_t>() + r * width, width),
                     d, d + width, width);
          out.write(to, 2 * width);
        }
      });
    });
    return {dx, at::Tensor()};
  }
};

}  // namespace

at::Tensor gated_activation(const at::Tensor& gate_up_T2I, Activation activation) {
  const bool fused = activation == Activation::kSilu || activation == Activation::kGeluTanh;
  if (has_row_kernels(gate_up_T2I) && fused) {
    if (!at::GradMode::is_enabled()) return gated_cpu(gate_up_T2I, activation);
    return GatedFunction::apply(gate_up_T2I, static_cast<int64_t>(activation));
  }
  const std::vector<at::Tensor> halves = gate_up_T2I.chunk(2, 1);
  return activate(halves[0], activation) * halves[1];
}

at::Tensor activate(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
  }
  BRAID_CHECK(false, "unknown activation");
}

}  // namespace braid::inline nn
