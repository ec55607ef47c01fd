// The arithmetic of attention on tiles: up to kTileRows query rows against one block of kPageTokens
// keys, in f32. A row's result does not depend on the rows that share its tile. Stateless; callers
// give every thread its own memory. Keys are transposed, [depth][kKeys].
#pragma once

#include <cstdint>

#include "nn/kernels/kernels.h"

namespace braid::inline nn::tiles {

inline constexpr int64_t kKeys = kPageTokens;
inline constexpr int64_t kTileRows = 32;  // most query rows of one tile

// s[rows][kKeys] = a[rows][depth] * bt[depth][kKeys]; rows of `a` are a_stride apart.
void dot(const float* a, int64_t a_stride, const float* bt, float* s, int64_t rows, int64_t depth);

// Memory that will be read next, asked for row by row beside the work on what is there: asked for
// at once it would hold that work up.
struct Ahead {
  const char* data = nullptr;  // null: nothing
  int64_t row_bytes = 0;
};

// dot() of the same rows against two blocks, s[2][rows][kKeys]: one or two rows against one block
// are too few sums at a time to fill the multipliers.
struct BlockPair {
  const float* keys_t[2];
  Ahead ahead[2];  // `depth` rows
};
void dot_pair(const float* a, int64_t a_stride, const BlockPair& pair, float* s, int64_t rows,
              int64_t depth);

// o[rows][depth] += w[rows][kKeys] * v[keys][depth] over the first `keys` keys; depth is a
// multiple of 16; rows of v are `stride` apart.
struct Values {
  const float* data;
  int64_t stride, keys;
  Ahead ahead = {};  // `keys` rows
};
void accumulate(const float* w, const Values& v, float* o, int64_t rows, int64_t depth);

// One step of the online softmax for each row: scores become weights, running maximum, sum and
// output are rescaled.
void softmax_step(float* s, float* maximum, float* sum, float* o, int64_t rows, int64_t depth);

// What products of queries and keys become: scale s, or cap tanh(scale s / cap) where cap > 0.
struct Scores {
  float scale, cap;
};

// Scales, and sets scores of keys that a row may not see to minus infinity. positions[r] is the
// row's own position, at least `least`: where that sees the whole block, nothing is hidden.
struct Mask {
  const int64_t* positions;
  int64_t least, first_key, window;
};
void scale_and_mask(float* s, const Mask& mask, int64_t rows, const Scores& scores);

// ds = p * (dp - delta) * scale, times 1 - (s / cap)^2 under a cap, with p = exp(s - lse); p
// replaces s.
void score_gradient(float* s, const float* dp, const float* lse, const float* delta, float* ds,
                    int64_t rows, const Scores& scores);

// Sum of a[i] * b[i].
float inner_product(const float* a, const float* b, int64_t count);

// Widens `count` numbers.
void widen(const at::BFloat16* from, float* to, int64_t count);

// to[c][r] = from[r][c] for a [kKeys][columns] block; columns is a multiple of 16, `to` has kKeys
// numbers a row.
void transpose(const float* from, int64_t from_stride, float* to, int64_t columns);

}  // namespace braid::inline nn::tiles
