// Shared by the hand-written CPU kernels: the attribute that compiles a function for several x86
// levels, chosen at load time, and a vectorisable exponential.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define BRAID_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BRAID_SIMD
#endif

namespace braid::inline nn {

// exp(x) to about 2 units in the last place for x <= 88; exactly 0 below -87. Range reduction by ln
// 2 in two parts and a polynomial of degree 6 (Cephes expf's scheme).
__attribute__((always_inline)) inline float fast_exp(float x) {
  const float clamped = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
  const float shifted =
      clamped * 1.44269504F + 12582912.0F;  // round to nearest by the 1.5 * 2^23 trick
  const float n = shifted - 12582912.0F;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float y = p * r * r + r + 1.0F;
  union {
    int32_t bits;
    float value;
  } scale;
  scale.bits = (static_cast<int32_t>(n) + 127) << 23;
  return x < -87.0F ? 0.0F : y * scale.value;
}

// tanh(x) to about 3 units in the last place (Cephes tanhf's scheme).
__attribute__((always_inline)) inline float fast_tanh(float x) {
  const float size = x < 0 ? -x : x, z = x * x;
  const float large = 1.0F - 2.0F / (fast_exp(2.0F * size) + 1.0F);
  float p = -5.70498872745e-3F;
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const float small = x + x * z * p;
  return size < 0.625F ? small : (x < 0 ? -large : large);
}

// Sum of products in 16 fixed lanes, then lanes by halves: the same whatever the vector width.
__attribute__((always_inline)) inline float dot_lanes(const float* a, const float* b,
                                                      int64_t count) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (int half = 8; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  float total = lanes[0];
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

}  // namespace braid::inline nn
