// How an optimizer step changes f32 weights: AdamW or plain gradient descent, element by element,
// so that any slice of the weights may be updated anywhere. Stateless.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "config/options.h"

namespace braid::inline train {

// Tensors of equal shapes by index; the moments are empty for plain gradient descent.
struct UpdateTensors {
  std::vector<at::Tensor> weights, gradients, exp_avgs, exp_avg_sqs;
};

// Whether weight decay shrinks a parameter: norms and biases, which are the vectors, are spared
// unless config.decay_norms.
bool decays(const OptimizerConfig& config, const at::Tensor& parameter);

// Those that weight decay shrinks, and those that it spares.
struct UpdateParts {
  UpdateTensors decayed, spared;
};

struct UpdateStep {
  int64_t number = 1;  // updates applied, this one included
  double lr = 0;
  double grad_norm = 0;  // of all gradients of the model; clipped at config.max_grad_norm
};

bool has_moments(const OptimizerConfig& config);

// Gradients are scaled down to a global norm of max_grad_norm (Pascanu et al., 2013). adamw:
// Loshchilov & Hutter, 2019, algorithm 2; sgd: w (1 - lr weight_decay) - lr g.
void apply_update(const OptimizerConfig& config, const UpdateStep& step, UpdateParts parts);

}  // namespace braid::inline train
