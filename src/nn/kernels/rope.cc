// Rotary positions, and the cut of a joined projection into query, key and value heads that applies
// them in the same pass. Hand-written on the CPU, arithmetic in f32; compositions of ATen operators
// on other devices.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/kernels/kernels.h"
#include "nn/kernels/rotation.h"
#include "nn/kernels/row_kernels.h"
#include "nn/kernels/rows.h"
#include "nn/kernels/simd.h"

namespace braid::inline nn {

BRAID_SIMD void rows::rotate_head(const float* x, const float* cosine, const float* sine, float* y,
                                  int64_t half, float sign) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i], s = sign * sine[i];
    y[i] = a * cosine[i] - b * s;
    y[half + i] = b * cosine[i] + a * s;
  }
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Where the rotation of each token is; no table: heads are only copied.
struct Rotation {
  const float* table;
  const int64_t* positions;
  float sign;
  Rotation(const at::Tensor& rows, const at::Tensor& positions_T, float sign_in)
      : table(rows.defined() ? rows.const_data_ptr<float>() : nullptr),
        positions(rows.defined() ? positions_T.const_data_ptr<int64_t>() : nullptr),
        sign(sign_in) {}
};

// `heads` heads of token t, one after the other in memory.
template <typename T>
void move_heads(const T* from, T* to, int64_t t, int64_t heads, int64_t depth,
                const Rotation& rotation, RowBuffer& in, RowBuffer& out) {
  if (rotation.table == nullptr) {
    std::copy_n(from, heads * depth, to);
    return;
  }
  const float* row = rotation.table + rotation.positions[t] * depth;
  for (int64_t h = 0; h < heads; ++h) {
    const float* x = in.read(from + h * depth, depth);
    float* y = out.target(to + h * depth, depth);
    rows::rotate_head(x, row, row + depth / 2, y, depth / 2, rotation.sign);
    out.write(to + h * depth, depth);
  }
}

at::Tensor rotate_cpu(const at::Tensor& x_in, const at::Tensor& table, const at::Tensor& positions,
                      float sign) {
  const at::Tensor x = x_in.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), depth = x.size(2), width = heads * depth;
  at::Tensor y = at::empty_like(x);
  const Rotation rotation(table, positions, sign);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rotate", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = y.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, tokens, kRowGrain, [&](int64_t begin, int64_t end) {
      RowBuffer in, out;
      for (int64_t t = begin; t < end; ++t)
        move_heads(from + t * width, to + t * width, t, heads, depth, rotation, in, out);
    });
  });
  return y;
}

// The pairs (a, b) of a head are [2, D/2]: (a, b) cos + sign (b, a) (-sin, sin).
at::Tensor rotate_by_operators(const at::Tensor& x, const at::Tensor& table,
                               const at::Tensor& positions, float sign) {
  const at::Tensor rows =
      (table.size(1) == 3 ? table : rotation_rows(table, positions)).unsqueeze(1);
  const at::Tensor pairs = x.view({x.size(0), x.size(1), 2, x.size(2) / 2});
  return at::addcmul(pairs * rows.narrow(2, 0, 1), pairs.flip({2}), rows.narrow(2, 1, 2), sign)
      .flatten(2)
      .to(x.scalar_type());
}

at::Tensor rotate_rows(const at::Tensor& x, const at::Tensor& table, const at::Tensor& positions,
                       float sign) {
  return has_row_kernels(x) ? rotate_cpu(x, table, positions, sign)
                            : rotate_by_operators(x, table, positions, sign);
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& table,
                            const at::Tensor& positions) {
    context->save_for_backward({table, positions});
    return rotate_rows(x, table, positions, 1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {rotate_rows(grads[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

// Copies between a joined [T, (A + 2 K) D] tensor and its heads, q and k rotated on the way.
template <bool kCut>
void exchange_heads(const at::Tensor& joined, const std::vector<at::Tensor>& qkv,
                    const Rotation& rotation) {
  const int64_t width = joined.size(1), depth = qkv[0].size(2);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, joined.scalar_type(), "split_heads", [&] {
    at::parallel_for(0, joined.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
      RowBuffer in, out;
      for (int64_t t = begin; t < end; ++t) {
        scalar_t* row = joined.mutable_data_ptr<scalar_t>() + t * width;
        for (int part = 0; part < 3; ++part) {
          const int64_t heads = qkv[part].size(1);
          scalar_t* other = qkv[part].mutable_data_ptr<scalar_t>() + t * heads * depth;
          Rotation own = rotation;
          if (part == 2) own.table = nullptr;
          move_heads(kCut ? row : other, kCut ? other : row, t, heads, depth, own, in, out);
          row += heads * depth;
        }
      }
    });
  });
}

std::vector<at::Tensor> cut_heads(const at::Tensor& qkv_in, const HeadLayout& layout,
                                  const at::Tensor& table, const at::Tensor& positions) {
  const at::Tensor qkv = qkv_in.contiguous();
  std::vector<at::Tensor> parts;
  for (const int64_t heads : {layout.heads, layout.kv_heads, layout.kv_heads})
    parts.push_back(at::empty({qkv.size(0), heads, layout.head_dim}, qkv.options()));
  exchange_heads<true>(qkv, parts, Rotation(table, positions, 1));
  return parts;
}

struct SplitHeadsFunction : torch::autograd::Function<SplitHeadsFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv,
                               const HeadLayout& layout, const std::optional<at::Tensor>& table,
                               const std::optional<at::Tensor>& positions) {
    context->save_for_backward({table.value_or(at::Tensor()), positions.value_or(at::Tensor())});
    return cut_heads(qkv, layout, table.value_or(at::Tensor()), positions.value_or(at::Tensor()));
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    std::vector<at::Tensor> parts;
    int64_t width = 0;
    for (const at::Tensor& grad : grads) {
      parts.push_back(grad.contiguous());
      width += grad.size(1) * grad.size(2);
    }
    const at::Tensor joined = at::empty({grads[0].size(0), width}, grads[0].options());
    exchange_heads<false>(joined, parts, Rotation(saved[0], saved[1], -1));
    return {joined, at::Tensor(), at::Tensor(), at::Tensor()};
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

at::Tensor rope_table(const RopeSpec& rope, int64_t head_dim, int64_t positions) {
  const int64_t half = head_dim / 2;
  at::Tensor table = at::empty({positions, 2, half}, at::kFloat);
  float* out = table.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    double frequency =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (rope.kind == RopeSpec::Kind::kLinear) frequency /= rope.factor;
    if (rope.kind == RopeSpec::Kind::kLlama3) frequency = llama3_frequency(frequency, rope);
    if (rope.kind == RopeSpec::Kind::kLong) frequency /= rope.divisors[i];
    for (int64_t p = 0; p < positions; ++p) {
      // The angle is rounded to f32 first, as transformers computes it.
      const float angle = static_cast<float>(p) * static_cast<float>(frequency);
      const auto amplitude = static_cast<float>(rope.amplitude);
      out[(p * 2) * half + i] = std::cos(angle) * amplitude;
      out[(p * 2 + 1) * half + i] = std::sin(angle) * amplitude;
    }
  }
  return table;
}

at::Tensor rotation_rows(const at::Tensor& table, const at::Tensor& positions_T) {
  const at::Tensor rows = at::index_select(table, 0, positions_T);
  const at::Tensor sine = rows.narrow(1, 1, 1);
  return at::cat({rows.narrow(1, 0, 1), sine.neg(), sine}, 1);
}

at::Tensor rotate(const at::Tensor& x_TAD, const at::Tensor& table, const at::Tensor& positions_T) {
  return at::GradMode::is_enabled() ? RotateFunction::apply(x_TAD, table, positions_T)
                                    : rotate_rows(x_TAD, table, positions_T, 1);
}

std::vector<at::Tensor> split_heads(const at::Tensor& qkv_TW, const HeadLayout& layout,
                                    const at::Tensor& table, const at::Tensor& positions_T) {
  if (has_row_kernels(qkv_TW)) {
    if (!at::GradMode::is_enabled()) return cut_heads(qkv_TW, layout, table, positions_T);
    const auto given = [](const at::Tensor& t) {
      return t.defined() ? std::optional(t) : std::nullopt;
    };
    return SplitHeadsFunction::apply(qkv_TW, layout, given(table), given(positions_T));
  }
  const int64_t turned = layout.heads + layout.kv_heads;
  const std::vector<at::Tensor> parts =
      qkv_TW.view({qkv_TW.size(0), turned + layout.kv_heads, layout.head_dim})
          .split_with_sizes({turned, layout.kv_heads}, 1);
  const std::vector<at::Tensor> heads =
      (table.defined() ? rotate(parts[0], table, positions_T) : parts[0])
          .split_with_sizes({layout.heads, layout.kv_heads}, 1);
  return {heads[0], heads[1], parts[1]};
}

}  // namespace braid::inline nn
