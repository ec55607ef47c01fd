// Steps of the language-model head, for heads whose vocabulary lies on several ranks. Shapes as in
// kernels.h; U rows of the vocabulary are here, and a target outside of [0, U) lies elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/kernels/kernels.h"

namespace torch::autograd {
struct AutogradContext;
}

namespace braid::inline nn {

// Of each row over the U logits z here: largest z; sum of e^((z - largest) / temperature); sum of
// the same times (z - largest) / temperature; z of the target, or 0. f64 [N, 4].
at::Tensor head_partials(const at::Tensor& h_NH, const at::Tensor& w_UH,
                         const at::Tensor& targets_N, const HeadOptions& options);

struct HeadGradients {
  at::Tensor h_NH, w_UH;  // of the hidden states through the rows here; of the rows here in f32
};

// statistics_N3 (f32): log-prob, entropy and log of the sum of exponentials of the whole
// vocabulary; gradients_N2 (f32): of the loss by log-prob and entropy.
struct HeadBackwardInputs {
  at::Tensor h_NH, w_UH, targets_N, statistics_N3, gradients_N2;
  HeadOptions options = {};
  bool through_entropy = true;  // false: its gradients are zeros
};
HeadGradients head_backward(const HeadBackwardInputs& in);

// In the form that an autograd context can hold.
void save_head_options(const HeadOptions& options, torch::autograd::AutogradContext* context);
HeadOptions saved_head_options(const torch::autograd::AutogradContext& context);

}  // namespace braid::inline nn
