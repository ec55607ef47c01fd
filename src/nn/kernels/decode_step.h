// The layers of one decode step in f32 on the CPU as one parallel region: every sequence of the
// batch has one new token. With few rows an operator takes less time than starting it, waking
// threads and fetching its code; here threads stay and share the work of a layer in short tasks.
// All arithmetic is that of the kernels over whole tensors, row by row, so that every number has
// the bits that these give. Called from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/spec.h"
#include "nn/kernels/kernels.h"

namespace braid::inline nn {

// Matrices are panels::pack() of the weights; norms are contiguous f32; biases may be undefined.
struct StepMatrix {
  at::Tensor packed, bias;
};
struct StepLayer {
  at::Tensor attention_norm_H, mlp_norm_H;
  StepMatrix qkv, output, up, down;  // up is [gate | up]
};

struct StepOptions {
  HeadLayout layout;
  double norm_eps;
  ScoreRule scores;
  Activation activation;  // kSilu or kGeluTanh
  at::Tensor rope;        // of rope_table()
};

// True when decode_step() can serve heads of this form and this batch.
bool can_decode_step(const StepOptions& options, const AttentionBatch& batch);

// Hidden states [T, H] after the layers for h_TH before them; keys and values of the tokens go to
// their pages. REQUIRES: can_decode_step(); f32 throughout; one kv entry a layer.
at::Tensor decode_step(const at::Tensor& h_TH, const at::Tensor& positions_T,
                       const std::vector<StepLayer>& layers, const std::vector<KvLayer>& kv,
                       const AttentionBatch& batch, const StepOptions& options);

}  // namespace braid::inline nn
