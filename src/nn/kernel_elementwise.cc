// Row-wise and element-wise kernels with hand-written CPU forwards and backwards: one pass over
// memory, inputs saved instead of intermediates, arithmetic in f32. Other devices take the
// composition of ATen operators.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/status.h"
#include "nn/kernel_simd.h"
#include "nn/kernels.h"

namespace braid {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool on_cpu(const at::Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

constexpr int64_t kGrain = 16;  // rows of one parallel task

template <typename T>
void widen(const T* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
template <typename T>
void narrow(const float* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

// Sum of products in 16 fixed lanes, then lanes in order: the same whatever the vector width.
__attribute__((always_inline)) inline float dot_lanes(const float* a, const float* b,
                                                      int64_t count) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  float total = 0;
  for (float lane : lanes) total += lane;
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

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

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in, const at::Tensor& w,
                            double eps, bool unit_offset) {
    const at::Tensor x = x_in.contiguous();
    at::Tensor y = at::empty_like(x);
    const int64_t width = x.size(-1), rows = x.numel() / width;
    const std::vector<float> weight = effective_weight(w, unit_offset);
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rms_norm", [&] {
      const scalar_t* from = x.const_data_ptr<scalar_t>();
      scalar_t* to = y.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, rows, kGrain, [&](int64_t begin, int64_t end) {
        std::vector<float> in(width), out(width);
        for (int64_t r = begin; r < end; ++r) {
          widen(from + r * width, in.data(), width);
          rms_forward_row(in.data(), weight.data(), out.data(), width, static_cast<float>(eps));
          narrow(out.data(), to + r * width, width);
        }
      });
    });
    context->save_for_backward({x, w});
    context->saved_data["eps"] = eps;
    context->saved_data["unit_offset"] = unit_offset;
    return y;
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
        std::vector<float> in(width), g(width), out(width), gw(width);
        for (int64_t slice = begin; slice < end; ++slice)
          for (int64_t r = rows * slice / slices; r < rows * (slice + 1) / slices; ++r) {
            widen(x.const_data_ptr<scalar_t>() + r * width, in.data(), width);
            widen(grad.const_data_ptr<scalar_t>() + r * width, g.data(), width);
            rms_backward_row(in.data(), weight.data(), g.data(), out.data(),
                             dw.mutable_data_ptr<float>() + slice * width, gw.data(), width, eps);
            narrow(out.data(), dx.mutable_data_ptr<scalar_t>() + r * width, width);
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

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_in,
                            int64_t activation) {
    const at::Tensor gate_up = gate_up_in.contiguous();
    const int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
    at::Tensor y = at::empty({rows, width}, gate_up.options());
    const auto row_kernel =
        activation == static_cast<int64_t>(Activation::kSilu) ? silu_row : gelu_row;
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, gate_up.scalar_type(), "gated", [&] {
      at::parallel_for(0, rows, kGrain, [&](int64_t begin, int64_t end) {
        std::vector<float> in(2 * width), out(width);
        for (int64_t r = begin; r < end; ++r) {
          widen(gate_up.const_data_ptr<scalar_t>() + r * 2 * width, in.data(), 2 * width);
          row_kernel(in.data(), in.data() + width, out.data(), width);
          narrow(out.data(), y.mutable_data_ptr<scalar_t>() + r * width, width);
        }
      });
    });
    context->save_for_backward({gate_up});
    context->saved_data["activation"] = activation;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor gate_up = context->get_saved_variables()[0], grad = grads[0].contiguous();
    const int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
    const bool silu =
        context->saved_data["activation"].toInt() == static_cast<int64_t>(Activation::kSilu);
    const auto row_kernel = silu ? silu_backward_row : gelu_backward_row;
    at::Tensor dx = at::empty_like(gate_up);
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, gate_up.scalar_type(), "gated", [&] {
      at::parallel_for(0, rows, kGrain, [&](int64_t begin, int64_t end) {
        std::vector<float> in(2 * width), g(width), out(2 * width);
        for (int64_t r = begin; r < end; ++r) {
          widen(gate_up.const_data_ptr<scalar_t>() + r * 2 * width, in.data(), 2 * width);
          widen(grad.const_data_ptr<scalar_t>() + r * width, g.data(), width);
          row_kernel(in.data(), in.data() + width, g.data(), out.data(), out.data() + width, width);
          narrow(out.data(), dx.mutable_data_ptr<scalar_t>() + r * 2 * width, 2 * width);
        }
      });
    });
    return {dx, at::Tensor()};
  }
};

// (a, b) -> (a c - b s, b c + a s) for the two halves of a head; sign = -1 rotates back.
BRAID_SIMD void rotate_head(const float* x, const float* cosine, const float* sine, float* y,
                            int64_t half, float sign) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i], s = sign * sine[i];
    y[i] = a * cosine[i] - b * s;
    y[half + i] = b * cosine[i] + a * s;
  }
}

at::Tensor rotate_cpu(const at::Tensor& x_in, const at::Tensor& table, const at::Tensor& positions,
                      float sign) {
  const at::Tensor x = x_in.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), depth = x.size(2), half = depth / 2;
  at::Tensor y = at::empty_like(x);
  const float* rows = table.const_data_ptr<float>();
  const int64_t* position = positions.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rotate", [&] {
    at::parallel_for(0, tokens, kGrain, [&](int64_t begin, int64_t end) {
      std::vector<float> in(depth), out(depth);
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          widen(x.const_data_ptr<scalar_t>() + (t * heads + h) * depth, in.data(), depth);
          const float* row = rows + position[t] * depth;
          rotate_head(in.data(), row, row + half, out.data(), half, sign);
          narrow(out.data(), y.mutable_data_ptr<scalar_t>() + (t * heads + h) * depth, depth);
        }
    });
  });
  return y;
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& table,
                            const at::Tensor& positions) {
    context->save_for_backward({table, positions});
    return rotate_cpu(x, table, positions, 1);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    return {rotate_cpu(grads[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

// Wavelength-dependent scaling of llama 3 (transformers modeling_rope_utils, "llama3").
double llama3_frequency(double frequency, const RopeSpec& rope) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_positions);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_TH, const at::Tensor& w_H, double eps, bool unit_offset) {
  if (on_cpu(x_TH)) return RmsNormFunction::apply(x_TH, w_H, eps, unit_offset);
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
  if (on_cpu(gate_up_T2I) && fused)
    return GatedFunction::apply(gate_up_T2I, static_cast<int64_t>(activation));
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

at::Tensor rope_table(const RopeSpec& rope, int64_t head_dim, int64_t positions) {
  const int64_t half = head_dim / 2;
  at::Tensor table = at::empty({positions, 2, half}, at::kFloat);
  float* out = table.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    double frequency =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (rope.kind == RopeSpec::Kind::kLinear) frequency /= rope.factor;
    if (rope.kind == RopeSpec::Kind::kLlama3) frequency = llama3_frequency(frequency, rope);
    for (int64_t p = 0; p < positions; ++p) {
      // The angle is rounded to f32 first, as transformers computes it.
      const float angle = static_cast<float>(p) * static_cast<float>(frequency);
      out[(p * 2) * half + i] = std::cos(angle);
      out[(p * 2 + 1) * half + i] = std::sin(angle);
    }
  }
  return table;
}

at::Tensor rotate(const at::Tensor& x_TAD, const at::Tensor& table, const at::Tensor& positions_T) {
  if (on_cpu(x_TAD)) return RotateFunction::apply(x_TAD, table, positions_T);
  const at::Tensor rows = at::index_select(table, 0, positions_T).unsqueeze(1);  // [T, 1, 2, D/2]
  const at::Tensor cosine = rows.select(2, 0), sine = rows.select(2, 1);
  const int64_t half = x_TAD.size(2) / 2;
  const at::Tensor a = x_TAD.narrow(2, 0, half).to(at::kFloat),
                   b = x_TAD.narrow(2, half, half).to(at::kFloat);
  return at::cat({a * cosine - b * sine, b * cosine + a * sine}, 2).to(x_TAD.scalar_type());
}

}  // namespace braid
