// Rows of hand-written CPU kernels: computed in f32, read and written in place where the tensor is
// f32, through a buffer of the thread's own where it is narrower.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

#if defined(__GNUC__) && !defined(__clang__) && !defined(_OPENMP)
#error "compile with -fopenmp: without it at::parallel_for runs on one thread"
#endif

namespace braid::inline nn {

inline constexpr int64_t kRowGrain = 16;  // rows of one parallel task

inline bool has_row_kernels(const at::Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Runs body(take) on every thread: take() gives numbers from 0 on, each to one thread alone, for as
// long as these are below `tasks`. Threads never run at quite the same speed; with tasks given out
// beforehand the faster one would wait.
template <typename Body>
void share_tasks(int64_t tasks, const Body& body) {
  std::atomic<int64_t> next{0};
  const auto take = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
  at::parallel_for(0, std::min<int64_t>(tasks, at::get_num_threads()), 1,
                   [&](int64_t /*begin*/, int64_t /*end*/) { body(take); });
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

}  // namespace braid::inline nn
