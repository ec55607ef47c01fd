#include "nn/kernels/wide_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace braid::inline nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Elements of a block of w in f32: it stays in the cache between its conversion and its GEMM.
constexpr int64_t kBlockElements = int64_t{1} << 20;

// Calls run(begin, count) for blocks of the rows of `w`.
template <typename Run>
void for_blocks(const at::Tensor& w, const Run& run) {
  const int64_t rows = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, w.size(1)));
  for (int64_t begin = 0; begin < w.size(0); begin += rows)
    run(begin, std::min(rows, w.size(0) - begin));
}

at::Tensor gemm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  const at::Tensor wide = x.to(at::kFloat), out = at::empty({x.size(0), w.size(0)}, x.options());
  for_blocks(w, [&](int64_t begin, int64_t count) {
    const at::Tensor bias = b.defined() ? b.narrow(0, begin, count).to(at::kFloat) : b;
    out.narrow(1, begin, count)
        .copy_(at::linear(wide, w.narrow(0, begin, count).to(at::kFloat), bias));
  });
  return out;
}

at::Tensor input_gradient(const at::Tensor& grad, const at::Tensor& w) {
  const at::Tensor sum = at::zeros({grad.size(0), w.size(1)}, grad.options().dtype(at::kFloat));
  for_blocks(w, [&](int64_t begin, int64_t count) {
    sum.addmm_(grad.narrow(1, begin, count).to(at::kFloat),
               w.narrow(0, begin, count).to(at::kFloat));
  });
  return sum.to(grad.scalar_type());
}

at::Tensor weight_gradient(const at::Tensor& grad, const at::Tensor& x) {
  return at::mm(grad.t().to(at::kFloat), x.to(at::kFloat)).to(grad.scalar_type());
}

struct WideLinearFunction : torch::autograd::Function<WideLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b) {
    context->save_for_backward({x, w});
    context->saved_data["bias"] = b.has_value();
    return gemm(x, w, b.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], &grad = grads[0];
    variable_list out(3);
    if (context->needs_input_grad(0)) out[0] = input_gradient(grad, w);
    if (context->needs_input_grad(1)) out[1] = weight_gradient(grad, x);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) out[2] = grad.sum(0);
    return out;
  }
};

}  // namespace

bool multiplies_wide(const at::Tensor& w_OI) {
#if defined(__x86_64__)
  return w_OI.device().is_cpu() && w_OI.scalar_type() == at::kBFloat16 &&
         __builtin_cpu_supports("avx512bf16") == 0;
#else
  static_cast<void>(w_OI);
  return false;
#endif
}

at::Tensor wide_linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O) {
  if (!at::GradMode::is_enabled()) return gemm(x_TI, w_OI, b_O);
  return WideLinearFunction::apply(x_TI, w_OI, b_O.defined() ? std::optional(b_O) : std::nullopt);
}

}  // namespace braid::inline nn
