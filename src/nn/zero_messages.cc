#include "nn/zero_messages.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "comm/communicator.h"

namespace braid::inline nn {

at::Tensor ZeroMessages::zeros(int64_t rows, int64_t columns, at::ScalarType type) const {
  return at::zeros({rows, columns}, at::TensorOptions(options_.device).dtype(type));
}

// All rows of what ranks keep apart.
void ZeroMessages::gather() const {
  const at::NoGradGuard no_grad;
  enter_shared(zeros(kept_rows(rows_, group_), spec_.hidden, options_.dtype), rows_, group_);
}

void ZeroMessages::sum() const {
  const at::NoGradGuard no_grad;
  leave_shared(zeros(rows_, spec_.hidden, options_.dtype), group_);
}

void ZeroMessages::enter_model() const {
  if (speaks()) sum();
}

// Attention, then the MLP.
void ZeroMessages::pass_layer() const {
  if (!speaks()) return;
  for (int part = 0; part < 2; ++part) {
    gather();
    sum();
  }
}

// The MLP, then attention: what was gathered is summed, and the other way round.
void ZeroMessages::return_layer(const LayerGradients& gradients) const {
  if (!speaks()) return;
  if (gradients.output) gather();
  if (gradients.middle) {
    sum();
    gather();
  }
  if (gradients.input) sum();
}

void ZeroMessages::leave_layers() const {
  if (speaks()) gather();
}

void ZeroMessages::pass_head(int64_t rows) const {
  if (!has_shared_head()) return;
  const at::Tensor top = zeros(rows, 1, at::kDouble);
  wait_or_throw(group_.communicator->all_reduce(top, Reduce::kMax, "largest logits"));
  sum_over_ranks(zeros(rows, 3, at::kDouble), group_, "sums of logits");
}

void ZeroMessages::return_head(int64_t rows) const {
  if (!has_shared_head()) return;
  sum_over_ranks(zeros(rows, spec_.hidden, options_.dtype), group_, "gradient of hidden states");
}

void ZeroMessages::return_to_model() const {
  if (speaks()) gather();
}

}  // namespace braid::inline nn
