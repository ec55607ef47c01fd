// bf16 GEMMs on processors without instructions for bf16.
#pragma once

#include <ATen/core/Tensor.h>

namespace braid::inline nn {

// Whether GEMMs by `w` are made in f32: the library's emulation of bf16 is up to three times
// slower than that, and the bits of its rows depend on the number of rows and of threads.
bool multiplies_wide(const at::Tensor& w_OI);

// y_TO = x_TI w_OI^T + b_O (b may be undefined), each number rounded to bf16 once. Differentiable.
// Beside the result it takes f32 copies of x and of a block of w.
at::Tensor wide_linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O);

}  // namespace braid::inline nn
