// GEMMs of this project's own on the CPU, f32 and bf16: the weight lies in panels of 32
// output columns, each a stream that is read from end to end, so that few rows take what reading
// the weight takes. Every number of a result is one chain of fused multiply-adds over the inputs in
// order (of bf16, over pairs of inputs, in f32): its bits depend neither on how many rows there are
// nor on threads, and f32 has the same bits with either width of registers. Stateless; may be
// called from one thread at a time (it uses libtorch's pool). The weight is read once for each 8
// rows, later ones from the second-level cache: rates hold for up to some 8000 inputs.
#pragma once

#include <ATen/core/Tensor.h>

namespace braid::inline nn::panels {

enum class Simd { kNone, kAvx2, kAvx512 };

// The instructions that GEMMs of the type use on this processor; kNone: it has no GEMMs in
// panels (bf16 wants AVX512_BF16).
Simd simd_for(at::ScalarType dtype);

// A weight [out, in], of any strides, in panels: a tensor of the same sizes whose elements have
// another order, and whose storage is filled up with zeros to whole panels.
// REQUIRES: a CPU tensor of f32 or bf16.
at::Tensor pack(const at::Tensor& w_OI);

// y_TO = x_TI w_OI^T + b_O (b may be undefined), in the type of x, from pack() of w.
// REQUIRES: the types are equal, and simd_for(type) is at least `simd`, which is not kNone.
at::Tensor gemm(const at::Tensor& x_TI, const at::Tensor& packed, const at::Tensor& b_O, Simd simd);

// The same in f32 on memory of the caller's, cut into tasks that any threads may run in any order.
class GemmTasks {
 public:
  // x [rows][in], y [rows][out], both dense; the tensors outlive the tasks.
  // REQUIRES: f32, a contiguous bias, simd_for(f32) is not kNone, threads > 0.
  GemmTasks(const float* x, const at::Tensor& packed, const at::Tensor& b_O, float* y, int64_t rows,
            int64_t threads);
  int64_t count() const { return count_; }
  void run(int64_t task) const;

 private:
  const float *x_, *w_, *bias_;
  float* y_;
  int64_t rows_, in_, out_, count_;
  Simd simd_;
};

}  // namespace braid::inline nn::panels
