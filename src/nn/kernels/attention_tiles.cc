#include "nn/kernels/attention_tiles.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "nn/kernels/simd.h"

namespace braid::inline nn::tiles {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

template <int kRows>
__attribute__((always_inline)) inline void dot_rows(const float* a, int64_t a_stride,
                                                    const float* bt, float* s, int64_t depth) {
  float sums[kRows][kKeys] = {};
  for (int64_t d = 0; d < depth; ++d)
    for (int i = 0; i < kRows; ++i) {
      const float x = a[i * a_stride + d];
      for (int64_t j = 0; j < kKeys; ++j) sums[i][j] += x * bt[d * kKeys + j];
    }
  for (int i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kKeys; ++j) s[i * kKeys + j] = sums[i][j];
}

__attribute__((always_inline)) inline void ask_for_row(const Ahead& ahead, int64_t row) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < ahead.row_bytes; i += kLine)
    __builtin_prefetch(ahead.data + row * ahead.row_bytes + i, 0, 2);
}

template <int kRows>
__attribute__((always_inline)) inline void dot_pair_rows(const float* a, int64_t a_stride,
                                                         const BlockPair& pair, float* s,
                                                         int64_t block_stride, int64_t depth) {
  float sums[2][kRows][kKeys] = {};
  for (int64_t d = 0; d < depth; ++d) {
    for (int block = 0; block < 2; ++block) {
      const float* keys = pair.keys_t[block] + d * kKeys;
      for (int i = 0; i < kRows; ++i) {
        const float x = a[i * a_stride + d];
        for (int64_t j = 0; j < kKeys; ++j) sums[block][i][j] += x * keys[j];
      }
    }
    for (const Ahead& ahead : pair.ahead) ask_for_row(ahead, d);
  }
  for (int block = 0; block < 2; ++block)
    for (int i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kKeys; ++j)
        s[block * block_stride + i * kKeys + j] = sums[block][i][j];
}

// Columns d .. d + kChunk - 1 of kRows rows of accumulate.
template <int kRows, int kChunk>
__attribute__((always_inline)) inline void accumulate_block(const float* w, const Values& v,
                                                            float* o, int64_t depth, int64_t d) {
  float sums[kRows][kChunk];
  for (int i = 0; i < kRows; ++i)
    for (int c = 0; c < kChunk; ++c) sums[i][c] = o[i * depth + d + c];
  for (int64_t j = 0; j < v.keys; ++j) {
    for (int i = 0; i < kRows; ++i) {
      const float x = w[i * kKeys + j];
      for (int c = 0; c < kChunk; ++c) sums[i][c] += x * v.data[j * v.stride + d + c];
    }
    if (d == 0) ask_for_row(v.ahead, j);
  }
  for (int i = 0; i < kRows; ++i)
    for (int c = 0; c < kChunk; ++c) o[i * depth + d + c] = sums[i][c];
}

template <int kRows>
__attribute__((always_inline)) inline void accumulate_rows(const float* w, const Values& v,
                                                           float* o, int64_t depth) {
  int64_t d = 0;
  if constexpr (kRows <= 2)
    for (; d + 64 <= depth; d += 64) accumulate_block<kRows, 64>(w, v, o, depth, d);
  for (; d + 32 <= depth; d += 32) accumulate_block<kRows, 32>(w, v, o, depth, d);
  for (; d < depth; d += 16) accumulate_block<kRows, 16>(w, v, o, depth, d);
}

using Lanes16 __attribute__((vector_size(64), aligned(4))) = float;

// Transposes 16 x 16 numbers in registers by exchanging ever smaller blocks.
__attribute__((always_inline)) inline void transpose_block(Lanes16* rows) {
  for (int i = 0; i < 16; ++i)
    if ((i & 8) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 8];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
      rows[i + 8] = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28,
                                            29, 30, 31);
    }
  for (int i = 0; i < 16; ++i)
    if ((i & 4) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 4];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
      rows[i + 4] =
          __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }
  for (int i = 0; i < 16; ++i)
    if ((i & 2) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 2];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      rows[i + 2] =
          __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  for (int i = 0; i < 16; ++i)
    if ((i & 1) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 1];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
      rows[i + 1] =
          __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    }
}

// What reductions do to a number, or a register, with another.
struct Larger {
  template <typename T>
  __attribute__((always_inline)) void operator()(T& a, const T& b) const {
    a = a > b ? a : b;
  }
};
struct Sum {
  template <typename T>
  __attribute__((always_inline)) void operator()(T& a, const T& b) const {
    a = a + b;
  }
};

// The kKeys numbers of a row combined by halves, which vectorises and is the same on every machine.
template <typename Combine>
__attribute__((always_inline)) inline float reduce(const float* row, const Combine& combine) {
  float lanes[kKeys];
  for (int j = 0; j < kKeys; ++j) lanes[j] = row[j];
  for (int half = kKeys / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) combine(lanes[j], lanes[j + half]);
  return lanes[0];
}

constexpr int kFolded = 16;  // rows that reduce together

using Register16 __attribute__((vector_size(64))) = float;

// Combines rows i and i + half, in each of which blocks of 2 x half lanes have two halves to
// combine: row i's go to a block's first half, the other row's to its second.
template <int kHalf, int... kLane, typename Combine>
__attribute__((always_inline)) inline void fold_pairs(Register16* rows, const Combine& combine,
                                                      std::integer_sequence<int, kLane...>) {
  for (int i = 0; i < kHalf; ++i) {
    const Register16 a = rows[i], b = rows[i + kHalf];
    rows[i] = __builtin_shufflevector(
        a, b, (kLane / kHalf % 2 == 0 ? kLane : kFolded + kLane - kHalf)...);
    combine(rows[i], __builtin_shufflevector(
                         a, b, (kLane / kHalf % 2 == 0 ? kLane + kHalf : kFolded + kLane)...));
  }
}

// reduce() of kFolded rows at once, whose first step gave `rows`: row i's result is in lane i.
// Pairs of rows share the registers that become half empty.
template <typename Combine>
__attribute__((always_inline)) inline void fold(Register16* rows, const Combine& combine) {
  constexpr auto lanes = std::make_integer_sequence<int, kFolded>();
  fold_pairs<8>(rows, combine, lanes);
  fold_pairs<4>(rows, combine, lanes);
  fold_pairs<2>(rows, combine, lanes);
  fold_pairs<1>(rows, combine, lanes);
}

template <typename Combine>
__attribute__((always_inline)) inline void fold_keys(const float* s, float* out,
                                                     const Combine& combine) {
  static_assert(kKeys == 32, "two registers hold a row");
  Register16 rows[kFolded];
  for (int i = 0; i < kFolded; ++i) {
    Register16 low, high;
    std::memcpy(&low, s + i * kKeys, sizeof(low));
    std::memcpy(&high, s + i * kKeys + 16, sizeof(high));
    combine(low, high);
    rows[i] = low;
  }
  fold(rows, combine);
  std::memcpy(out, &rows[0], sizeof(Register16));
}

// The largest score of a row so far, and the sum of one block's weights under it.
struct RowStep {
  float top, weights;
};
__attribute__((always_inline)) inline void take_row(const RowStep& step, float* maximum, float* sum,
                                                    float* o, int64_t depth) {
  const float scale = fast_exp(*maximum - step.top);
  *sum = *sum * scale + step.weights;
  *maximum = step.top;
  if (scale != 1.0F)
    for (int64_t d = 0; d < depth; ++d) o[d] *= scale;
}

// softmax_step() of kFolded rows.
__attribute__((always_inline)) inline void softmax_rows(float* s, float* maximum, float* sum,
                                                        float* o, int64_t depth) {
  float tops[kFolded], weights[kFolded];
  fold_keys(s, tops, Larger());
  for (int i = 0; i < kFolded; ++i) tops[i] = std::max(maximum[i], tops[i]);
  for (int i = 0; i < kFolded; ++i) {
    // A row that sees no key yet has weights of 0.
    const float top = tops[i] == kMasked ? 0.0F : tops[i];
    for (int64_t j = 0; j < kKeys; ++j) s[i * kKeys + j] = fast_exp(s[i * kKeys + j] - top);
  }
  fold_keys(s, weights, Sum());
  for (int i = 0; i < kFolded; ++i)
    if (tops[i] != kMasked)
      take_row({tops[i], weights[i]}, &maximum[i], &sum[i], o + i * depth, depth);
}

}  // namespace

BRAID_SIMD void dot(const float* a, int64_t a_stride, const float* bt, float* s, int64_t rows,
                    int64_t depth) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) dot_rows<4>(a + r * a_stride, a_stride, bt, s + r * kKeys, depth);
  for (; r + 2 <= rows; r += 2) dot_rows<2>(a + r * a_stride, a_stride, bt, s + r * kKeys, depth);
  for (; r < rows; ++r) dot_rows<1>(a + r * a_stride, a_stride, bt, s + r * kKeys, depth);
}

BRAID_SIMD void dot_pair(const float* a, int64_t a_stride, const BlockPair& pair, float* s,
                         int64_t rows, int64_t depth) {
  const int64_t block_stride = rows * kKeys;
  BlockPair rest = pair;
  for (int64_t r = 0; r < rows;) {
    const int64_t count = r + 2 <= rows ? 2 : 1;
    const float* from = a + r * a_stride;
    if (count == 2)
      dot_pair_rows<2>(from, a_stride, rest, s + r * kKeys, block_stride, depth);
    else
      dot_pair_rows<1>(from, a_stride, rest, s + r * kKeys, block_stride, depth);
    for (Ahead& ahead : rest.ahead) ahead = {};
    r += count;
  }
}

BRAID_SIMD void widen(const at::BFloat16* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i].x) << 16;
    std::memcpy(&to[i], &bits, sizeof(bits));
  }
}

BRAID_SIMD void accumulate(const float* w, const Values& v, float* o, int64_t rows, int64_t depth) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) accumulate_rows<4>(w + r * kKeys, v, o + r * depth, depth);
  for (; r + 2 <= rows; r += 2) accumulate_rows<2>(w + r * kKeys, v, o + r * depth, depth);
  for (; r < rows; ++r) accumulate_rows<1>(w + r * kKeys, v, o + r * depth, depth);
}

BRAID_SIMD void softmax_step(float* s, float* maximum, float* sum, float* o, int64_t rows,
                             int64_t depth) {
  int64_t r = 0;
  for (; r + kFolded <= rows; r += kFolded)
    softmax_rows(s + r * kKeys, maximum + r, sum + r, o + r * depth, depth);
  for (; r < rows; ++r) {
    float* row = s + r * kKeys;
    const float top = std::max(maximum[r], reduce(row, Larger()));
    if (top == kMasked) {
      for (int64_t j = 0; j < kKeys; ++j) row[j] = 0;
      continue;
    }
    for (int64_t j = 0; j < kKeys; ++j) row[j] = fast_exp(row[j] - top);
    take_row({top, reduce(row, Sum())}, &maximum[r], &sum[r], o + r * depth, depth);
  }
}

namespace {

BRAID_SIMD void cap_scores(float* s, int64_t count, const Scores& scores) {
  const float inner = scores.scale / scores.cap, cap = scores.cap;
  for (int64_t i = 0; i < count; ++i) s[i] = cap * fast_tanh(s[i] * inner);
}

// What the cap leaves of the gradient by scores that it gave. Hidden ones are minus infinity.
BRAID_SIMD void cap_slopes(const float* s, float* slopes, int64_t count, float cap) {
  const float inverse = 1.0F / cap;
  for (int64_t i = 0; i < count; ++i) {
    const float ratio = s[i] * inverse;
    slopes[i] = ratio < -1.0F ? 0.0F : 1.0F - ratio * ratio;
  }
}

}  // namespace

BRAID_SIMD void scale_and_mask(float* s, const Mask& mask, int64_t rows, const Scores& scores) {
  const auto [positions, least, first_key, window] = mask;
  if (scores.cap > 0) cap_scores(s, rows * kKeys, scores);
  const float scale = scores.cap > 0 ? 1.0F : scores.scale;
  if (window == 0 && first_key + kKeys - 1 <= least) {
    for (int64_t i = 0; i < rows * kKeys; ++i) s[i] *= scale;
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const auto last = static_cast<int32_t>(std::max<int64_t>(positions[r] - first_key, -1));
    const auto oldest =
        window > 0 ? static_cast<int32_t>(std::max<int64_t>(last - window + 1, 0)) : 0;
    float* row = s + r * kKeys;
    for (int32_t j = 0; j < kKeys; ++j)
      row[j] = j <= last && j >= oldest ? row[j] * scale : kMasked;
  }
}

BRAID_SIMD void score_gradient(float* s, const float* dp, const float* lse, const float* delta,
                               float* ds, int64_t rows, const Scores& scores) {
  float slopes[kTileRows * kKeys];
  if (scores.cap > 0) cap_slopes(s, slopes, rows * kKeys, scores.cap);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < kKeys; ++j) {
      const int64_t at = r * kKeys + j;
      s[at] = fast_exp(s[at] - lse[r]);
      ds[at] = s[at] * (dp[at] - delta[r]) * scores.scale;
    }
  if (scores.cap > 0)
    for (int64_t i = 0; i < rows * kKeys; ++i) ds[i] *= slopes[i];
}

BRAID_SIMD float inner_product(const float* a, const float* b, int64_t count) {
  return dot_lanes(a, b, count);
}

BRAID_SIMD void transpose(const float* from, int64_t from_stride, float* to, int64_t columns) {
  for (int64_t r = 0; r < kKeys; r += 16)
    for (int64_t c = 0; c < columns; c += 16) {
      Lanes16 rows[16];
      for (int i = 0; i < 16; ++i)
        std::memcpy(&rows[i], from + (r + i) * from_stride + c, sizeof(Lanes16));
      transpose_block(rows);
      for (int i = 0; i < 16; ++i) std::memcpy(to + (c + i) * kKeys + r, &rows[i], sizeof(Lanes16));
    }
}

}  // namespace braid::inline nn::tiles
