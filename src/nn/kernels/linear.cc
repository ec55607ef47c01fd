// GEMMs whose rows do not depend on the batch. GEMMs of our own are so by nature.
// Measured of the others on AVX-512: with the default library rows of batches of up to 11, on
// processors without AMX of up to 15 and with two threads of any number, may differ in bits from
// those of larger ones; with oneDNN's packed weights only a single row may. The default library is
// therefore told to be strict, and small batches are padded, for libraries that cannot be told;
// where rows differ all the same the choice leaves the library out (choice.h).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdlib>

#include "nn/kernels/choice.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/wide_linear.h"

namespace braid::inline nn {
namespace {

// MKL reads its mode of reproducibility at its first GEMM. Strict: the bits of a row depend
// neither on the number of rows nor on that of threads (oneMKL's developer guide, "Obtaining
// numerically reproducible results"); speed is the same within the noise. Other libraries and
// processors ignore it; a mode that the user chose stays.
[[maybe_unused]] const bool told_strict = [] {
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return ::setenv("MKL_CBWR", wide ? "AVX512,STRICT" : "AVX2,STRICT", 0) == 0;
#else
  return true;
#endif
}();

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename Gemm>
at::Tensor with_padded_rows(const at::Tensor& x, MatrixLibrary library, const Gemm& gemm) {
  const int64_t rows = x.size(0), wanted = padded_rows(rows, library);
  if (rows == wanted) return gemm(x);
  return gemm(at::constant_pad_nd(x, {0, 0, 0, wanted - rows}, 0)).narrow(0, 0, rows);
}

MatrixLibrary library_of(const at::Tensor& w) {
  const at::ScalarType type = w.scalar_type();
  if (!w.device().is_cpu() || (type != at::kFloat && type != at::kBFloat16))
    return MatrixLibrary::kDefault;
  return matrix_library({w.size(1), w.size(0), type});
}

// Undefined where the default library takes the weight as it is.
at::Tensor packed_or_none(const at::Tensor& w) {
  const MatrixLibrary library = library_of(w);
  return library == MatrixLibrary::kDefault ? at::Tensor() : pack_weight(w, library);
}

at::Tensor multiply_packed(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& b) {
  return with_padded_rows(x, library_of_packed(packed),
                          [&](const at::Tensor& rows) { return packed_gemm(rows, packed, b); });
}

// dy w. `transpose` is w^T packed, or undefined: where packing it pays it is packed for this once.
at::Tensor input_gradient(const at::Tensor& grad, const at::Tensor& w, at::Tensor transpose) {
  if (!transpose.defined()) transpose = packed_or_none(w.t());
  if (!transpose.defined()) return at::mm(grad, w);
  return multiply_packed(grad.contiguous(), transpose, {});
}

struct PackedLinearFunction : torch::autograd::Function<PackedLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const PackedLinear& packed) {
    context->save_for_backward({x, w});
    context->saved_data["transpose"] = packed.backward;
    context->saved_data["bias"] = b.has_value();
    return multiply_packed(x, packed.forward, b.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], &grad = grads[0];
    variable_list out(4);
    if (context->needs_input_grad(0))
      out[0] = input_gradient(grad, w, context->saved_data["transpose"].toTensor());
    if (context->needs_input_grad(1)) out[1] = at::mm(grad.t(), x);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) out[2] = grad.sum(0);
    return out;
  }
};

}  // namespace

PackedLinear pack_linear(const at::Tensor& w_OI, bool for_backward) {
  const at::NoGradGuard no_grad;
  PackedLinear packed;
  packed.forward = packed_or_none(w_OI);
  if (for_backward && packed.forward.defined()) packed.backward = packed_or_none(w_OI.t());
  return packed;
}

at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O,
                  const PackedLinear* packed) {
  const std::optional<at::Tensor> bias = b_O.defined() ? std::optional(b_O) : std::nullopt;
  if (library_of(w_OI) != MatrixLibrary::kDefault) {
    const bool have = packed != nullptr && packed->forward.defined();
    const PackedLinear own = have ? PackedLinear{} : pack_linear(w_OI, false);
    const PackedLinear& use = have ? *packed : own;
    if (!at::GradMode::is_enabled()) return multiply_packed(x_TI, use.forward, b_O);
    return PackedLinearFunction::apply(x_TI, w_OI, bias, use);
  }
  if (!x_TI.device().is_cpu()) return at::linear(x_TI, w_OI, bias);
  return with_padded_rows(x_TI, MatrixLibrary::kDefault, [&](const at::Tensor& rows) {
    return multiplies_wide(w_OI) ? wide_linear(rows, w_OI, b_O) : at::linear(rows, w_OI, bias);
  });
}

bool batch_invariance_holds() {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const int64_t width : {64, 256, 512, 1376}) {
      const at::Tensor x = at::randn({96, width}).to(type), w = at::randn({256, width}).to(type);
      const at::Tensor whole = braid::linear(x, w, {});
      for (int64_t rows = 1; rows <= 64; ++rows)
        if (!at::equal(braid::linear(x.narrow(0, 0, rows), w, {}), whole.narrow(0, 0, rows)))
          return false;
    }
  return true;
}

}  // namespace braid::inline nn
