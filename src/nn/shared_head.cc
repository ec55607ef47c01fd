#include "nn/shared_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "comm/communicator.h"
#include "nn/kernels/head_rows.h"

namespace braid::inline nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Log-prob, entropy and log-sum [N, 3] in f32 of the whole vocabulary from the ranks' partial sums.
at::Tensor whole_statistics(const at::Tensor& h, const at::Tensor& w, const at::Tensor& targets,
                            const SharedHeadOptions& options) {
  const at::Tensor own = head_partials(h, w, targets, options.head);
  const TensorParallelGroup& group = *options.group;
  const double inverse = 1 / options.head.temperature;
  const at::Tensor top = own.select(1, 0).clone();
  wait_or_throw(group.communicator->all_reduce(top, Reduce::kMax, "largest logits"));
  // Sums relative to the largest of this rank's logits become relative to the largest of all.
  const at::Tensor below = (own.select(1, 0) - top) * inverse, scale = below.exp();
  const at::Tensor here = targets.ge(0).logical_and(targets.lt(w.size(0)));
  const at::Tensor weights = own.select(1, 1) * scale;
  const at::Tensor products = own.select(1, 2) * scale + below * weights;
  const at::Tensor target = (own.select(1, 3) - top) * inverse * here;
  const at::Tensor sums =
      sum_over_ranks(at::stack({weights, products, target}, 1), group, "sums of logits");
  const at::Tensor log_weights = sums.select(1, 0).log();
  return at::stack(
             {sums.select(1, 2) - log_weights, log_weights - sums.select(1, 1) / sums.select(1, 0),
              top * inverse + log_weights},
             1)
      .to(at::kFloat);
}

struct SharedHeadFunction : torch::autograd::Function<SharedHeadFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& h, const at::Tensor& w,
                               const at::Tensor& targets, const SharedHeadOptions& options) {
    const at::Tensor statistics = whole_statistics(h, w, targets, options);
    context->save_for_backward({h, w, targets, statistics});
    save_head_options(options.head, context);
    context->saved_data["group"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(options.group));
    return {statistics.select(1, 0).clone(), statistics.select(1, 1).clone()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradients = at::zeros({saved[0].size(0), 2}, saved[3].options());
    for (const int column : {0, 1})
      if (grads[column].defined()) gradients.select(1, column).copy_(grads[column]);
    const HeadGradients out = head_backward(
        {saved[0], saved[1], saved[2], saved[3], gradients, saved_head_options(*context)});
    const auto* group =
        reinterpret_cast<const TensorParallelGroup*>(context->saved_data["group"].toInt());
    return {sum_over_ranks(out.h_NH, *group, "gradient of hidden states"),
            out.w_UH.to(saved[1].scalar_type()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

HeadOutput shared_head_logprobs(const at::Tensor& h_NH, const at::Tensor& w_UH,
                                const at::Tensor& local_targets_N,
                                const SharedHeadOptions& options) {
  if (!at::GradMode::is_enabled()) {
    const at::Tensor rows = whole_statistics(h_NH, w_UH, local_targets_N, options);
    return {rows.select(1, 0).contiguous(), rows.select(1, 1).contiguous()};
  }
  const variable_list out = SharedHeadFunction::apply(h_NH, w_UH, local_targets_N, options);
  return {out[0], out[1]};
}

}  // namespace braid::inline nn
