// Rows of hand-written CPU kernels: computed in f32, read and written in place where the tensor is
// f32, through a buffer of the thread's own where it is narrower.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#if defined(__GNUC__) && !defined(__clang__) && !defined(_OPENMP)
#error "compile with -fopenmp: without it at::parallel_for runs on one thread"
#endif

namespace braid {

inline constexpr int64_t kRowGrain = 16;  // rows of one parallel task

inline bool has_row_kernels(const at::Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

class RowBuffer {
 public:
  // The row in f32, valid until the next call.
  template <typename T>
  const float* read(const T* from, int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      return from;
    } else {
      values_.resize(count);
      for (int64_t i = 0; i < count; ++i) values_[i] = static_cast<float>(from[i]);
      return values_.data();
    }
  }
  // Where to compute a row that write() then stores at `to`.
  template <typename T>
  float* target(T* to, int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      return to;
    } else {
      values_.resize(count);
      return values_.data();
    }
  }
  template <typename T>
  void write(T* to, int64_t count) const {
    if constexpr (!std::is_same_v<T, float>)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(values_[i]);
  }

 private:
  std::vector<float> values_;
};

}  // namespace braid
