// The language-model head in chunks of rows: log-probs and entropies leave, logits never do. The
// backward computes each chunk's logits again: d logits = (onehot(target) - p) g / temperature for
// the log-prob, and -p (log p + entropy) g / temperature for the entropy.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "nn/kernels.h"

namespace braid {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor chunk_log_softmax(const at::Tensor& h, const at::Tensor& w, const PackedLinear& packed,
                             double temperature) {
  at::Tensor logits = braid::linear(h, w, {}, &packed).to(at::kFloat);
  if (temperature != 1) logits = logits / temperature;
  return at::_log_softmax(logits, 1, false);
}

struct HeadFunction : torch::autograd::Function<HeadFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& h, const at::Tensor& w,
                               const at::Tensor& targets, double temperature, bool with_entropy,
                               int64_t chunk_rows) {
    const int64_t rows = h.size(0);
    at::Tensor logprobs = at::empty({rows}, h.options().dtype(at::kFloat));
    at::Tensor entropy = at::empty({with_entropy ? rows : 0}, logprobs.options());
    const PackedLinear packed = pack_linear(w, false);
    for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
      const int64_t count = std::min(chunk_rows, rows - begin);
      const at::Tensor logp = chunk_log_softmax(h.narrow(0, begin, count), w, packed, temperature);
      const at::Tensor index = targets.narrow(0, begin, count).unsqueeze(1);
      logprobs.narrow(0, begin, count).copy_(at::gather(logp, 1, index).squeeze(1));
      if (with_entropy) entropy.narrow(0, begin, count).copy_((logp.exp() * logp).sum(1).neg());
    }
    context->save_for_backward({h, w, targets, entropy});
    context->saved_data["temperature"] = temperature;
    context->saved_data["with_entropy"] = with_entropy;
    context->saved_data["chunk_rows"] = chunk_rows;
    return {logprobs, entropy};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &h = saved[0], &w = saved[1], &targets = saved[2], &entropy = saved[3];
    const double temperature = context->saved_data["temperature"].toDouble();
    const bool with_entropy = context->saved_data["with_entropy"].toBool() && grads[1].defined();
    const int64_t chunk_rows = context->saved_data["chunk_rows"].toInt(), rows = h.size(0);
    at::Tensor dh = at::empty_like(h);
    at::Tensor dw = at::zeros({w.size(0), w.size(1)}, w.options().dtype(at::kFloat));
    const PackedLinear packed = pack_linear(w, false);
    for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
      const int64_t count = std::min(chunk_rows, rows - begin);
      const at::Tensor h_chunk = h.narrow(0, begin, count);
      const at::Tensor logp = chunk_log_softmax(h_chunk, w, packed, temperature);
      const at::Tensor p = logp.exp();
      const at::Tensor g =
          grads[0].defined() ? grads[0].narrow(0, begin, count).unsqueeze(1) : at::Tensor();
      at::Tensor dlogits = g.defined() ? p * g.neg() : at::zeros_like(p);
      if (g.defined())
        dlogits.scatter_add_(1, targets.narrow(0, begin, count).unsqueeze(1), g.to(at::kFloat));
      if (with_entropy) {
        const at::Tensor shifted = logp + entropy.narrow(0, begin, count).unsqueeze(1);
        dlogits.sub_(p * shifted * grads[1].narrow(0, begin, count).unsqueeze(1));
      }
      if (temperature != 1) dlogits.div_(temperature);
      const at::Tensor narrow = dlogits.to(h.scalar_type());
      dh.narrow(0, begin, count).copy_(at::mm(narrow, w));
      if (narrow.scalar_type() == at::kFloat) {
        dw.addmm_(narrow.t(), h_chunk);
      } else {
        dw.add_(at::mm(narrow.t(), h_chunk));
      }
    }
    return {dh, dw.to(w.scalar_type()), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

HeadOutput head_logprobs(const at::Tensor& h_NH, const at::Tensor& w_VH,
                         const at::Tensor& targets_N, double temperature, bool with_entropy,
                         int64_t chunk_rows) {
  const variable_list out =
      HeadFunction::apply(h_NH, w_VH, targets_N, temperature, with_entropy, chunk_rows);
  return {out[0], with_entropy ? out[1] : at::Tensor()};
}

}  // namespace braid
