// A packed batch as rectangles, for attention by ATen operators: sequences of like size side by
// side, padded to the largest of them. Attention then takes as many launches as there are
// rectangles, not sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/kernels/kernels.h"

namespace braid::inline nn {

// B sequences, each of Q queries and L keys with padding.
struct PaddedGroup {
  int64_t sequences, queries, keys;
  // Every query sees the keys up to its own: keys are the sequence's rows of the batch. `bias`,
  // `key_rows` and `pages` are undefined.
  bool whole;
  at::Tensor bias;      // [B, 1, Q, L]: 0, or minus infinity where a query may not see a key
  at::Tensor key_rows;  // [B L] rows of the batch, T for padding
  at::Tensor pages;     // [B L / kPageTokens]; undefined: the batch has no pages
};

struct PaddedBatch {
  at::Device device;
  at::ScalarType dtype;  // of the biases
  int64_t window;
  std::vector<PaddedGroup> groups;
  // Both undefined: the queries of the groups, one after the other, are the batch's rows in order.
  at::Tensor rows;    // [sum of B Q] row of the batch, T for padding
  at::Tensor places;  // [T] where each row of the batch is among these
  // Where the key of each row goes, page * kPageTokens + slot; undefined without pages.
  at::Tensor slot_T;
};

// That of the batch: what an earlier call left in it, where it was made for this device and type.
const PaddedBatch& padded_batch(const AttentionBatch& batch, at::Device device,
                                at::ScalarType dtype);

// x_TND in the order of `padded.rows`, zeros as padding; and back. Differentiable.
at::Tensor pad_rows(const at::Tensor& x_TND, const PaddedBatch& padded);
at::Tensor unpad_rows(const at::Tensor& x_RND, const PaddedBatch& padded);

// Row i is row index[i] of x_TND, or zeros where that is T. Differentiable.
at::Tensor take_rows(const at::Tensor& x_TND, const at::Tensor& index);

}  // namespace braid::inline nn
