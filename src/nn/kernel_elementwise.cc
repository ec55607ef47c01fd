// Row-wise and element-wise kernels with hand-written CPU forwards and backwards: one pass over
// memory, inputs saved instead of intermediates, arithmetic in f32. Other devices take the
// composition of ATen operators.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "nn/kernel_rows.h"
#include "nn/kernel_simd.h"
#include "nn/kernels.h"

namespace braid {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

BRAID_SIMD void rms_forward_row(const float* x, const float* w, float* y, int64_t width,
                                float eps) {
  const float inverse = 1.0F / std::sqrt(dot_lanes(x, x, width) / static_cast<float>(width) + eps);
  for (int64_t i = 0; i < width; ++i) y[i] = x[i] * inverse * w[i];
}

// dx = inverse * (g w - x * inverse^2 * mean(g w x)); dw += g x inverse.
BRAID_SIMD void rms_backward_row(const float* x, const float* w, const float* g, float* dx,
                                 float* dw, float* gw, int64_t width, float eps) {
  const float inverse = 1.0F / std::sqrt(dot_lanes(x, x, width) / static_cast<float>(width) + eps);
  for (int64_t i = 0; i < width; ++i) gw[i] = g[i] * w[i];
  const float mean = dot_lanes(gw, x, width) / static_cast<float>(width) * inverse * inverse;
  for (int64_t i = 0; i < width; ++i) {
    dx[i] = inverse * (gw[i] - x[i] * mean);
    dw[i] += g[i] * x[i] * inverse;
  }
}

std::vector<float> effective_weight(const at::Tensor& w, bool unit_offset) {
  const at::Tensor wide = w.to(at::kFloat).contiguous();
  std::vector<float> out(wide.const_data_ptr<float>(), wide.const_data_ptr<float>() + wide.numel());
  if (unit_offset)
    for (float& value : out) value += 1;
  return out;
}

at::Tensor rms_norm_cpu(const at::Tensor& x_in, const at::Tensor& w, float eps, bool unit_offset) {
  const at::Tensor x = x_in.contiguous();
  at::Tensor y = at::empty_like(x);
  const int64_t width = x.size(-1), rows = x.numel() / width;
  const std::vector<float> weight = effective_weight(w, unit_offset);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rms_norm", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = y.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
      RowBuffer in, out;
      for (int64_t r = begin; r < end; ++r) {
        rms_forward_row(in.read(from + r * width, width), weight.data(),
                        out.target(to + r * width, width), width, eps);
        out.write(to + r * width, width);
      }
    });
  });
  return y;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in, const at::Tensor& w,
                            double eps, bool unit_offset) {
    const at::Tensor x = x_in.contiguous();
    context->save_for_backward({x, w});
    context->saved_data["eps"] = eps;
    context->saved_data["unit_offset"] = unit_offset;
    return rms_norm_cpu(x, w, static_cast<float>(eps), unit_offset);
  }

  // Rows are cut into a fixed number of slices, each with its own weight gradient, added in order.
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1];
    const at::Tensor grad = grads[0].contiguous();
    const float eps = static_cast<float>(context->saved_data["eps"].toDouble());
    const std::vector<float> weight =
        effective_weight(w, context->saved_data["unit_offset"].toBool());
    const int64_t width = x.size(-1), rows = x.numel() / width,
                  slices = std::min<int64_t>(rows, 16);
    at::Tensor dx = at::empty_like(x);
    at::Tensor dw = at::zeros({slices, width}, x.options().dtype(at::kFloat));
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rms_norm", [&] {
      at::parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
        RowBuffer in, g, out;
        std::vector<float> gw(width);
        for (int64_t slice = begin; slice < end; ++slice)
          for (int64_t r = rows * slice / slices; r < rows * (slice + 1) / slices; ++r) {
            scalar_t* to = dx.mutable_data_ptr<scalar_t>() + r * width;
            rms_backward_row(
                in.read(x.const_data_ptr<scalar_t>() + r * width, width), weight.data(),
                g.read(grad.const_data_ptr<scalar_t>() + r * width, width), out.target(to, width),
                dw.mutable_data_ptr<float>() + slice * width, gw.data(), width, eps);
            out.write(to, width);
          }
      });
    });
    return {dx, dw.sum(0).to(w.scalar_type()), at::Tensor(), at::Tensor()};
  }
};

// y = x sigmoid(x) and its derivative; gelu in the tanh form (Hendrycks & Gimpel, 2016).
__attribute__((always_inline)) inline float sigmoid(float x) {
  return 1.0F / (1.0F + fast_exp(-x));
}
__attribute__((always_inline)) inline float gelu_inner(float x) {
  return 0.7978845608F * (x + 0.044715F * x * x * x);
}

BRAID_SIMD void silu_row(const float* gate, const float* up, float* y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}
BRAID_SIMD void silu_backward_row(const float* gate, const float* up, const float* g, float* dgate,
                                  float* dup, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float s = sigmoid(gate[i]);
    dup[i] = g[i] * gate[i] * s;
    dgate[i] = g[i] * up[i] * s * (1 + gate[i] * (1 - s));
  }
}
BRAID_SIMD void gelu_row(const float* gate, const float* up, float* y, int64_t width) {
  // 0.5 (1 + tanh(z)) = sigmoid(2 z)
  for (int64_t i = 0; i < width; ++i) y[i] = gate[i] * sigmoid(2 * gelu_inner(gate[i])) * up[i];
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

at::Tensor gated_cpu(const at::Tensor& gate_up_in, Activation activation) {
  const at::Tensor gate_up = gate_up_in.contiguous();
  const int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
  at::Tensor y = at::empty({rows, width}, gate_up.options());
  const auto row_kernel = activation == Activation::kSilu ? silu_row : gelu_row;
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

at::Tensor rms_norm(const at::Tensor& x_TH, const at::Tensor& w_H, double eps, bool unit_offset) {
  if (has_row_kernels(x_TH)) {
    if (!at::GradMode::is_enabled())
      return rms_norm_cpu(x_TH, w_H, static_cast<float>(eps), unit_offset);
    return RmsNormFunction::apply(x_TH, w_H, eps, unit_offset);
  }
  const at::Tensor wide = x_TH.to(at::kFloat);
  const at::Tensor scale = unit_offset ? w_H.to(at::kFloat) + 1 : w_H.to(at::kFloat);
  return (wide * at::rsqrt(at::mean(wide * wide, {-1}, true) + eps) * scale).to(x_TH.scalar_type());
}

at::Tensor layer_norm(const at::Tensor& x_TH, const at::Tensor& w_H, const at::Tensor& b_H,
                      double eps) {
  return at::layer_norm(x_TH, {x_TH.size(-1)}, w_H, b_H, eps);
}

at::Tensor gated_activation(const at::Tensor& gate_up_T2I, Activation activation) {
  const bool fused = activation == Activation::kSilu || activation == Activation::kGeluTanh;
  if (has_row_kernels(gate_up_T2I) && fused) {
    if (!at::GradMode::is_enabled()) return gated_cpu(gate_up_T2I, activation);
    return GatedFunction::apply(gate_up_T2I, static_cast<int64_t>(activation));
  }
  const int64_t width = gate_up_T2I.size(1) / 2;
  return activate(gate_up_T2I.narrow(1, 0, width), activation) *
         gate_up_T2I.narrow(1, width, width);
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

}  // namespace braid
