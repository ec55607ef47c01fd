#include "train/update_rule.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <optional>

namespace braid::inline train {

namespace {

void update(const OptimizerConfig& config, const UpdateStep& step, double weight_decay,
            UpdateTensors tensors) {
  if (tensors.weights.empty()) return;
  const bool clips = config.max_grad_norm > 0 && step.grad_norm > config.max_grad_norm;
  const double divisor = clips ? step.grad_norm / config.max_grad_norm : 1;
  if (!has_moments(config)) {
    for (size_t i = 0; i < tensors.weights.size(); ++i) {
      if (weight_decay != 0) tensors.weights[i].mul_(1 - step.lr * weight_decay);
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
                    steps, step.lr, config.betas[0], config.betas[1], weight_decay, config.eps,
                    false, false, scale);
}

}  // namespace

bool has_moments(const OptimizerConfig& config) { return config.name == "adamw"; }

bool decays(const OptimizerConfig& config, const at::Tensor& parameter) {
  return config.decay_norms || parameter.dim() > 1;
}

void apply_update(const OptimizerConfig& config, const UpdateStep& step, UpdateParts parts) {
  update(config, step, config.weight_decay, std::move(parts.decayed));
  update(config, step, 0, std::move(parts.spared));
}

}  // namespace braid::inline train
