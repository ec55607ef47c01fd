// Normalizations with hand-written CPU forwards and backwards: one pass over memory, inputs saved
// instead of intermediates, arithmetic in f32. Other devices take the composition of ATen
// operators.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "nn/kernels/kernels.h"
#include "nn/kernels/row_kernels.h"
#include "nn/kernels/rows.h"
#include "nn/kernels/simd.h"

namespace braid::inline nn {

BRAID_SIMD void rows::rms_norm(const float* x, const float* w, float* y, int64_t width, float eps) {
  const float inverse = 1.0F / std::sqrt(dot_lanes(x, x, width) / static_cast<float>(width) + eps);
  for (int64_t i = 0; i < width; ++i) y[i] = x[i] * inverse * w[i];
}

BRAID_SIMD void rows::add(const float* x, const float* y, float* sum, int64_t width) {
  for (int64_t i = 0; i < width; ++i) sum[i] = x[i] + y[i];
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// dx = inverse * (g w - x * inverse^2 * mean(g w x)) [+ what else flows into x]; dw += g x inverse.
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

struct NormOptions {
  float eps;
  bool unit_offset;
};

// The norm of x, or of x + y, which then goes to `sum`.
at::Tensor norm_rows(const at::Tensor& x, const at::Tensor* y, const at::Tensor* sum,
                     const at::Tensor& w, const NormOptions& options) {
  at::Tensor out = at::empty_like(x);
  const int64_t width = x.size(-1), rows = x.numel() / width;
  const std::vector<float> weight = effective_weight(w, options.unit_offset);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rms_norm", [&] {
    at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
      RowBuffer in, other, added, normed;
      for (int64_t r = begin; r < end; ++r) {
        const float* row = in.read(x.const_data_ptr<scalar_t>() + r * width, width);
        if (y != nullptr) {
          scalar_t* to = sum->mutable_data_ptr<scalar_t>() + r * width;
          rows::add(row, other.read(y->const_data_ptr<scalar_t>() + r * width, width),
                    added.target(to, width), width);
          added.write(to, width);
          row = in.read(to, width);  // rounded as it is stored
        }
        scalar_t* to = out.mutable_data_ptr<scalar_t>() + r * width;
        rows::rms_norm(row, weight.data(), normed.target(to, width), width, options.eps);
        normed.write(to, width);
      }
    });
  });
  return out;
}

// Gradients by x and w of rms_norm(x). Rows are cut into a fixed number of slices, each with its
// own weight gradient, added in order. `through` is what flows into x besides, or undefined.
std::pair<at::Tensor, at::Tensor> norm_backward(const at::Tensor& x, const at::Tensor& w,
                                                const at::Tensor& grad, const at::Tensor& through,
                                                const NormOptions& options) {
  const std::vector<float> weight = effective_weight(w, options.unit_offset);
  const int64_t width = x.size(-1), rows = x.numel() / width, slices = std::min<int64_t>(rows, 16);
  at::Tensor dx = at::empty_like(x);
  at::Tensor dw = at::zeros({slices, width}, x.options().dtype(at::kFloat));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rms_norm", [&] {
    at::parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
      RowBuffer in, g, more, out;
      std::vector<float> gw(width);
      for (int64_t slice = begin; slice < end; ++slice)
        for (int64_t r = rows * slice / slices; r < rows * (slice + 1) / slices; ++r) {
          scalar_t* to = dx.mutable_data_ptr<scalar_t>() + r * width;
          float* d = out.target(to, width);
          rms_backward_row(in.read(x.const_data_ptr<scalar_t>() + r * width, width), weight.data(),
                           g.read(grad.const_data_ptr<scalar_t>() + r * width, width), d,
                           dw.mutable_data_ptr<float>() + slice * width, gw.data(), width,
                           options.eps);
          if (through.defined())
            rows::add(d, more.read(through.const_data_ptr<scalar_t>() + r * width, width), d,
                      width);
          out.write(to, width);
        }
    });
  });
  return {dx, dw.sum(0).to(w.scalar_type())};
}

NormOptions saved_options(const AutogradContext& context) {
  return {static_cast<float>(context.saved_data.at("eps").toDouble()),
          context.saved_data.at("unit_offset").toBool()};
}

void save_options(AutogradContext* context, const NormOptions& options) {
  context->saved_data["eps"] = static_cast<double>(options.eps);
  context->saved_data["unit_offset"] = options.unit_offset;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in, const at::Tensor& w,
                            const NormOptions& options) {
    const at::Tensor x = x_in.contiguous();
    context->save_for_backward({x, w});
    save_options(context, options);
    return norm_rows(x, nullptr, nullptr, w, options);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const auto [dx, dw] =
        norm_backward(saved[0], saved[1], grads[0].contiguous(), {}, saved_options(*context));
    return {dx, dw, at::Tensor()};
  }
};

NormedSum add_and_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& w,
                       const NormOptions& options) {
  const at::Tensor sum = at::empty_like(x), other = y.contiguous();
  return {sum, norm_rows(x, &other, &sum, w, options)};
}

struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& w, const NormOptions& options) {
    const NormedSum out = add_and_norm(x.contiguous(), y, w, options);
    context->save_for_backward({out.sum_TH, w});
    save_options(context, options);
    return {out.sum_TH, out.normed_TH};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor through = grads[0].defined() ? grads[0].contiguous() : at::Tensor();
    const auto [dx, dw] =
        norm_backward(saved[0], saved[1], grads[1].contiguous(), through, saved_options(*context));
    return {dx, dx, dw, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_TH, const at::Tensor& w_H, double eps, bool unit_offset) {
  if (has_row_kernels(x_TH)) {
    const NormOptions options{static_cast<float>(eps), unit_offset};
    if (!at::GradMode::is_enabled())
      return norm_rows(x_TH.contiguous(), nullptr, nullptr, w_H, options);
    return RmsNormFunction::apply(x_TH, w_H, options);
  }
  if (!unit_offset && w_H.scalar_type() == x_TH.scalar_type())
    return at::rms_norm(x_TH, {x_TH.size(-1)}, w_H, eps);
  const at::Tensor wide = x_TH.to(at::kFloat);
  const at::Tensor scale = unit_offset ? w_H.to(at::kFloat) + 1 : w_H.to(at::kFloat);
  return (wide * at::rsqrt(at::mean(wide * wide, {-1}, true) + eps) * scale).to(x_TH.scalar_type());
}

NormedSum add_rms_norm(const at::Tensor& x_TH, const at::Tensor& y_TH, const at::Tensor& w_H,
                       double eps, bool unit_offset) {
  if (!has_row_kernels(x_TH)) {
    const at::Tensor sum = x_TH + y_TH;
    return {sum, rms_norm(sum, w_H, eps, unit_offset)};
  }
  const NormOptions options{static_cast<float>(eps), unit_offset};
  if (!at::GradMode::is_enabled()) return add_and_norm(x_TH.contiguous(), y_TH, w_H, options);
  const variable_list out = AddRmsNormFunction::apply(x_TH, y_TH, w_H, options);
  return {out[0], out[1]};
}

at::Tensor layer_norm(const at::Tensor& x_TH, const at::Tensor& w_H, const at::Tensor& b_H,
                      double eps) {
  return at::layer_norm(x_TH, {x_TH.size(-1)}, w_H, b_H, eps);
}

}  // namespace braid::inline nn
