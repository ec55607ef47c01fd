#include "train/update_rule.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <optional>

namespace braid {

bool has_moments(const OptimizerConfig& config) { return config.name == "adamw"; }

void apply_update(const OptimizerConfig& config, const UpdateStep& step, UpdateTensors tensors) {
  if (tensors.weights.empty()) return;
  const bool clips = config.max_grad_norm > 0 && step.grad_norm > config.max_grad_norm;
  const double divisor = clips ? step.grad_norm / config.max_grad_norm : 1;
  if (!has_moments(config)) {
    for (size_t i = 0; i < tensors.weights.size(); ++i) {
      if (config.weight_decay != 0) tensors.weights[i].mul_(1 - step.lr * config.weight_decay);
      tensors.weights[i].add_(tensors.gradients[i], -step.lr / divisor);
    }
    return;
  }
  const auto scalar = tensors.gradients[0].options().requires_grad(false);
  const std::vector<at::Tensor> steps(tensors.gradients.size(),
                                      at::full({}, static_cast<double>(step.number), scalar));
  std::optional<at::Tensor> scale;  // divides the gradients inside the fused update
  if (clips) scale = at::full({}, divisor, scalar);
  at::_fused_adamw_(tensors.weights, tensors.gradients, tensors.exp_avgs, tensors.exp_avg_sqs, {},
                    steps, step.lr, config.betas[0], config.betas[1], config.weight_decay,
                    config.eps, false, false, scale);
}

}  // namespace braid
