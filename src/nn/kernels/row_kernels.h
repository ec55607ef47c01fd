// Arithmetic on single rows of f32 numbers, shared by the kernels over whole tensors and by the
// decode step, so that both give the same bits. Stateless.
#pragma once

#include <cstdint>

namespace braid::inline nn::rows {

// y = x / rms(x) * w.
void rms_norm(const float* x, const float* w, float* y, int64_t width, float eps);

// sum = x + y.
void add(const float* x, const float* y, float* sum, int64_t width);

// y = act(gate) * up, act the sigmoid unit or gelu in its tanh form.
void gated_silu(const float* gate, const float* up, float* y, int64_t width);
void gated_gelu(const float* gate, const float* up, float* y, int64_t width);

// (a, b) -> (a c - b s, b c + a s) for the two halves of a head; sign = -1 rotates back.
void rotate_head(const float* x, const float* cosine, const float* sine, float* y, int64_t half,
                 float sign);

}  // namespace braid::inline nn::rows
